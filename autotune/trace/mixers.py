"""All work of a recurrent mixer written in plain operations, found through one operation that gives it away.

Between its projections such a mixer runs hundreds of small operations: everything from the end of the linear
layer before the telling operation to the start of the next one, on the same thread, and the backward of it,
which carries the same sequence numbers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from autotune.trace.context import Context

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_SPAN = 1 << 32  # sequence numbers of one thread lie below


def mixer_work(context: Context, telling: Mask) -> Mask:
    """GPU rows launched between the projections around the telling host rows, forward and backward.

    Without linear layers around them: only what the telling operations launch themselves.
    """
    inside = between_projections(context, telling)
    backward = _backward_of(context, inside)
    return context.gpu_under(telling | backward) | context.through_launch(inside)


def between_projections(context: Context, telling: Mask) -> Mask:
    """Host rows from the linear layer before each telling forward operation to the one after it."""
    host, tree = context.trace.host, context.tree
    inside = np.zeros(len(host), dtype=bool)
    forward = telling & (host.forward == 0)
    linear = context.ops_named("aten::linear")
    for thread in np.unique(host.thread[forward]).tolist():
        first, end = context.thread_rows[thread]
        layers = first + np.flatnonzero(linear[first:end])
        told = first + np.flatnonzero(forward[first:end])
        after = np.searchsorted(host.ts[layers], host.ts[told])
        for place in np.unique(after[(after > 0) & (after < layers.size)]).tolist():
            low, high = int(tree.end[layers[place - 1]]), int(host.ts[layers[place]])
            inside[context.between(thread, low, high)] = True
    return inside


def _backward_of(context: Context, inside: Mask) -> Mask:
    """Autograd's evaluations of what was recorded inside, by sequence number.

    Each thread counts for itself; a worker of autograd serves the thread whose numbers it has most of.
    """
    host = context.trace.host
    result = np.zeros(len(host), dtype=bool)
    nodes = np.flatnonzero((context.eval_row == np.arange(len(host))) & (host.sequence >= 0))
    recorded = (host.forward == 0) & (host.sequence >= 0)
    if not nodes.size or not (inside & recorded).any():
        return result
    key = host.thread.astype(np.int64) * _SPAN + host.sequence
    # An operation without gradient bears the number of the next one that has: edges are left out.
    wanted = np.setdiff1d(key[inside & recorded], key[~inside & recorded])
    threads = np.unique(host.thread[recorded])
    known = {int(t): np.unique(host.sequence[recorded & (host.thread == t)]) for t in threads}
    for worker in np.unique(host.thread[nodes]).tolist():
        own = nodes[host.thread[nodes] == worker]
        thread = max(known, key=lambda t: int(np.isin(host.sequence[own], known[t]).sum()))
        result[own] = np.isin(thread * _SPAN + host.sequence[own].astype(np.int64), wanted)
    return result
