from torch.utils.data import DataLoader

loader = DataLoader(dataset, **cfg)
