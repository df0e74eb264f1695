"""Copy the records of a run into `recorded/`, with the folders of the machine replaced by made-up ones.

python tests/notebook/record.py RUN_FOLDER PROJECT_FOLDER

The recorded run is `autotune optimize --steps 8 -- python train.py` in a copy of `examples/slow_loader`, on
two cores that other programs used as well.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

RECORDED = Path(__file__).parent / "recorded"
NAME = "at-20261130-000444-train"
FILES = (
    "run.json",
    "facts.json",
    "diagnosis.json",
    "ladder.json",
    "launches/observe/observation.json",
    "trials/001/verdict.json",
)


def record(run: Path, project: Path) -> None:
    """Copy what `Run` reads."""
    for name in FILES:
        text = (run / name).read_text(encoding="utf-8").replace(str(project), "/home/me/chat")
        text = text.replace(run.name, NAME)
        text = re.sub(r'"/[^"]*/bin/python[0-9.]*"', '"/home/me/venv/bin/python"', text)
        text = re.sub(r'"/[^"]*/site-packages', '"/home/me/venv/lib/site-packages', text)
        place = RECORDED / NAME / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    record(Path(sys.argv[1]), Path(sys.argv[2]))
