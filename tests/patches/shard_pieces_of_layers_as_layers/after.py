import autotune_layer_units
import torch
from torch.distributed.fsdp import fully_shard


def shard(model, mesh, policy):
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            autotune_layer_units.part_of_layer(fully_shard, module, mesh=mesh, mp_policy=policy)  # the smaller the better
    return autotune_layer_units.by_layer(fully_shard, model, mesh=mesh, mp_policy=policy)
