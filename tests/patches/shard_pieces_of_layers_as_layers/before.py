import torch
from torch.distributed.fsdp import fully_shard


def shard(model, mesh, policy):
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            fully_shard(module, mesh=mesh, mp_policy=policy)  # the smaller the better
    return fully_shard(model, mesh=mesh, mp_policy=policy)
