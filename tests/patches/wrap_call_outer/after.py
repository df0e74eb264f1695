import autotune_x
import torch

optimizer = autotune_x.fused(torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True))
