from torch.utils.data import DataLoader as DL

train, test = DL(a, shuffle=True), DL(b)
