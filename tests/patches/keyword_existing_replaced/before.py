import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False, betas=(0.9, 0.95))
