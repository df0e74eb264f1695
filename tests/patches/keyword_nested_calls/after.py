from torch.utils.data import DataLoader

loader = Prefetch(DataLoader(DataLoader(dataset, pin_memory=True).dataset, batch_size=4, num_workers=4), depth=2)
