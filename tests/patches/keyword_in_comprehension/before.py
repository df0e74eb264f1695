from torch.utils.data import DataLoader

loaders = [DataLoader(d, batch_size=4) for d in datasets]
