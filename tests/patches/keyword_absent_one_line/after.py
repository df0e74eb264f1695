from torch.utils.data import DataLoader

loader = DataLoader(dataset, batch_size=4, num_workers=4, pin_memory=True)  # training batches
