import torch

optimizer = autotune_x.fused(torch.optim.AdamW(model.parameters(), lr=1e-4))
