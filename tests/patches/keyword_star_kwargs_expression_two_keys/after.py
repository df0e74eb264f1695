from torch.utils.data import DataLoader

loader = DataLoader(dataset, **{**(cfg or {}), "num_workers": 4, "pin_memory": True})
