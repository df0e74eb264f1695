from torch.utils.data import DataLoader

loader = DataLoader(dataset)
other = DataLoader(dataset); third = DataLoader(dataset)
