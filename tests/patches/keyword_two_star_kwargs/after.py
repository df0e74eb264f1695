from torch.utils.data import DataLoader

loader = DataLoader(dataset, **{**common, **extra, "num_workers": 4})
