#!/usr/bin/env python
# Licence: see LICENSE
import autotune_packed_batches
from torch.utils.data import DataLoader

train = DataLoader(dataset, collate_fn=autotune_packed_batches.flatten(lambda rows: pad(rows, side="right")), num_workers=2)
test = DataLoader(held_out, collate_fn=autotune_packed_batches.flatten(None))
