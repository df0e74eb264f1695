from hydra.utils import instantiate

loader = instantiate(cfg.loader)
