import torch

optimizer = torch.optim.AdamW(groups, fused=True)
