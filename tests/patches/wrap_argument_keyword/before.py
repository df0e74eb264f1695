"""Train."""
from __future__ import annotations

import torch
from torch.utils.data import DataLoader

loader = DataLoader(
    dataset, batch_size=4, collate_fn=collate
)
