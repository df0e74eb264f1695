import torch

optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), fused=True)
