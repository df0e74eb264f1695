import autotune_one_exchange
import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def main(model, loader, optimizer):
    model = DDP(model)
    autotune_one_exchange.once_per_step(model)
    for i, batch in enumerate(loader):
        (model(**batch).loss / 4).backward()
        if (i + 1) % 4 == 0:
            autotune_one_exchange.finish()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
