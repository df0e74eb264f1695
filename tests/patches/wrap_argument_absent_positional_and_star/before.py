from torch.utils.data import DataLoader

one = DataLoader(dataset, batch_size=4)
two = DataLoader(dataset, 4, True, None, None, 0, collate)
three = DataLoader(dataset, **options)
