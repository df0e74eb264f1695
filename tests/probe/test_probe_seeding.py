"""A comparison over several seeds moves the seeds that the job itself sets, each once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent

SHIFTED = """
import random, sys
sys.path.insert(0, sys.argv[1])
import torch
from probe_parts import part
part("seeding").shift_seeds(5, torch)
import numpy
from torch import manual_seed

def drawn():
    return random.random(), float(torch.rand(())), float(numpy.random.rand())

random.seed(3); manual_seed(3); numpy.random.seed(3)
moved = drawn()
random.seed(a=3); torch.random.manual_seed(seed=3); numpy.random.seed(seed=3)
assert drawn() == moved
assert torch.initial_seed() == 8, torch.initial_seed()
random.Random(8); state = random.Random(8).random()
assert moved[0] == state
assert moved[1] == float(torch.rand((), generator=torch.Generator().manual_seed(8)))
assert moved[2] == numpy.random.RandomState(8).rand()
random.seed(b"bytes"); random.seed(None); numpy.random.seed(None)
numpy.random.seed([1, 2]); numpy.random.seed(2**32 - 1)
torch.cuda.manual_seed_all(7); torch.seed()
print("moved once")
"""


def test_seeds_of_the_job_are_moved_once() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHIFTED, str(TESTS)], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "moved once", done.stderr
