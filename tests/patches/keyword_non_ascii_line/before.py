from torch.utils.data import DataLoader

names = ["é模型", DataLoader(dataset, batch_size=4), "ü"]
