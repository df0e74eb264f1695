from torch.utils.data import DataLoader

loader = DataLoader(dataset, **one, batch_size=4, **two)
