from torch.utils.data import DataLoader

loader = DataLoader(dataset, 4, True, None, None, 0, collate)
