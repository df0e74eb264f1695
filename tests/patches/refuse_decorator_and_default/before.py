@torch.compile(mode="default")
def step(batch, loader=DataLoader(dataset)):
    pass
