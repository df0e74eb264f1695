from torch.utils.data import DataLoader as DL

train, test = DL(a, shuffle=True, num_workers=4), DL(b)
