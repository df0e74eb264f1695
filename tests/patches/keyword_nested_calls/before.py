from torch.utils.data import DataLoader

loader = Prefetch(DataLoader(DataLoader(dataset).dataset, batch_size=4), depth=2)
