import torch

optimizer = torch.optim.SGD(model.parameters(), 0.1)
