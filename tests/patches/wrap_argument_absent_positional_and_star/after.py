import autotune_packed_batches
from torch.utils.data import DataLoader

one = DataLoader(dataset, batch_size=4, collate_fn=autotune_packed_batches.flatten(None))
two = DataLoader(dataset, 4, True, None, None, 0, autotune_packed_batches.flatten(collate))
three = DataLoader(dataset, **{**options, "collate_fn": autotune_packed_batches.flatten(options["collate_fn"])})
