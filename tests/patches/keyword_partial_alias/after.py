from functools import partial

from torch.utils.data import DataLoader

make = partial(DataLoader, batch_size=4)
loader = make(dataset, num_workers=4)
