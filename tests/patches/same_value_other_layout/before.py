import torch

optimizer = torch.optim.AdamW(groups, betas=( 0.9,
                                              0.95 ))
