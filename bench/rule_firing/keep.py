"""Keep what a run folder shows as a record of rules that fired: a job of the fault bench, or any other run.

    python bench/rule_firing/keep.py OUT NAME RUN_FOLDER

OUT/NAME.json gets the job's command, the findings and the facts, as bench/rule_firing/run.py writes them.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path


def record(run: Path) -> dict[str, object]:
    """{"job", "findings": {rule: severity}, "facts": {name: value}}; null is a fact that does not apply."""
    facts = json.loads((run / "facts.json").read_text())["facts"]
    findings = json.loads((run / "diagnosis.json").read_text())["findings"]
    observed = json.loads((run / "launches" / "observe" / "observation.json").read_text())
    words = [Path(word).name if word.startswith("/") else word for word in observed["command"]]
    return {
        "job": " ".join(words),
        "findings": {finding["rule"]: finding["severity"] for finding in findings},
        "facts": {
            name: fact["value"] if fact["state"] == "value" else None
            for name, fact in facts.items()
            if fact["state"] != "absent"
        },
    }


def main() -> None:
    out, name, run = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    kept = record(run)
    # places in the job's files without the folder it happened to lie in
    text = re.sub(r"[\w./-]*/job/", "", json.dumps(kept, indent=0, sort_keys=True))
    (out / f"{name}.json").write_text(text + "\n")
    print(f"{name}: {', '.join(map(str, kept['findings'])) or 'nothing'}")  # type: ignore[call-overload]


if __name__ == "__main__":
    main()
