import autotune_packed_batches
from torch.utils.data import DataLoader

loader = DataLoader(dataset, **{**options, "collate_fn": autotune_packed_batches.flatten(options["collate_fn"])})
