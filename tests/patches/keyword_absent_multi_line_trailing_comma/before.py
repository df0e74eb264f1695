from torch.utils.data import DataLoader

def build(dataset):
    return DataLoader(
        dataset,
        batch_size=4,  # per rank
        shuffle=True,  # every epoch anew
    )
