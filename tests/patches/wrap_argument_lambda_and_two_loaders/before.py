#!/usr/bin/env python
# Licence: see LICENSE
from torch.utils.data import DataLoader

train = DataLoader(dataset, collate_fn=lambda rows: pad(rows, side="right"), num_workers=2)
test = DataLoader(held_out, collate_fn=None)
