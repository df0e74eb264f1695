"""Reading what a diagnosis needs while the job loads its libraries."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

from autotune.analyze.ahead import reading_ahead
from autotune.analyze.diagnose import RuleSources
from autotune.observe.progress import Progress

ALONE = """
import json, sys, threading
from autotune.analyze.ahead import reading_ahead
from autotune.analyze.diagnose import RuleSources
from autotune.observe.progress import Progress

rules, seen = RuleSources(), []
show = reading_ahead(rules, seen.append)
before = [name for name in ("numpy", "autotune.trace.summary") if name in sys.modules]
for step in (None, 1, 2):
    show(Progress("starting", 0.1, step=step))
readers = [thread for thread in threading.enumerate() if thread.name == "autotune-ahead"]
[thread.join(60) for thread in readers]
wanted = ("numpy", "autotune.trace.summary", "autotune.facts.everything")
after = [name for name in wanted if name in sys.modules]
print(json.dumps([len(seen), len(readers), before, after, "loaded" in vars(rules), len(rules.loaded.rules)]))
"""


def test_it_begins_with_the_jobs_first_sign_and_once() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True)
    told, readers, before, after, read, rules = json.loads(done.stdout)
    assert told == 3 and readers <= 1 and before == []
    assert len(after) == 3 and read and rules > 50


def test_rules_that_cannot_be_read_are_told_where_they_are_used(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("id: [")
    rules = RuleSources(user_dirs=(tmp_path,))
    assert rules.chosen and not RuleSources().chosen  # so a command asks before it starts a job
    reading_ahead(rules)(Progress("starting", 0.1))
    for thread in threading.enumerate():
        if thread.name == "autotune-ahead":
            thread.join(60)
    assert "loaded" not in vars(rules)
