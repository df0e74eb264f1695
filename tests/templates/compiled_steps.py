"""Run a rendered script as first_step.py does, and write what the compiler did beside the result.

BACKEND=aot_eager traces forward and backward, but makes no code, which takes most of the time.
"""

from __future__ import annotations

import atexit
import collections
import functools
import json
import os
import runpy
import sys
from pathlib import Path

import torch

RESULT = sys.argv[2]


def write() -> None:
    from torch._dynamo.utils import counters, get_compilation_metrics

    frames = collections.Counter(m.co_name for m in get_compilation_metrics() if m.co_name)
    found = {
        "graph_break": dict(counters["graph_break"]),
        "stats": dict(counters["stats"]),
        "frames": dict(frames),
    }
    Path(RESULT).with_suffix(".json").write_text(json.dumps(found))


atexit.register(write)
torch.compile = functools.partial(torch.compile, backend=os.environ.get("BACKEND", "inductor"))
runpy.run_path(str(Path(__file__).with_name("first_step.py")), run_name="__main__")
