from torch.utils.data import DataLoader

loader = DataLoader(dataset, batch_size=4)  # training batches
