"""A Hydra job that changes into a folder of its own and saves there."""

import hydra
import odd_loops
import torch
from hydra.core.config_store import ConfigStore

ConfigStore.instance().store(name="config", node={"epochs": 1})


@hydra.main(version_base=None, config_name="config")
def main(config):
    odd_loops.plain(epochs=config.epochs)
    torch.save(torch.zeros(4), "model.pt")
    print("end of the job")


main()
