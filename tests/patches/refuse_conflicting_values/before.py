from torch.utils.data import DataLoader

loader = DataLoader(load(dataset))
