from torch.utils.data import DataLoader

train_loader = DataLoader(dataset, batch_size=4,
                          shuffle=True,
                          num_workers=4)
