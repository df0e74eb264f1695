"""Edit every interesting call of a tree of Python files and check each result: a sweep over real code.

    python bench/edit_sweep.py FOLDER...

Every edit must give a file that compiles, differs only around the call, and does not change when made again;
a refused edit must leave the file alone. Prints counts by edit, the reasons for refusals, and each fault.
"""

from __future__ import annotations

import ast
import difflib
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from autotune.apply.edit import Edit, edit_source
from autotune.apply.locate import parse

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "tests" / "apply")]
from apply_sites import calls_named, site_of  # noqa: E402

# (name of the call, kind, edit, arguments, most lines an edit may add or remove)
EDITS: tuple[tuple[str, str, str, dict[str, object], int], ...] = (
    ("DataLoader", "loader", "set_keyword", {"keywords": {"num_workers": "4", "pin_memory": "True"}}, 6),
    ("DataLoader", "loader", "wrap_argument",
     {"argument": "collate_fn", "template": "shim.flatten({original})", "missing": "shim.flatten(None)"}, 4),
    ("AdamW", "optimizer_create", "set_keyword", {"keywords": {"fused": "True"}, "remove": ["foreach"]}, 6),
    ("Adam", "optimizer_create", "wrap_call", {"template": "shim.fused({original})"}, 4),
    ("from_pretrained", "model_create", "set_keyword", {"keywords": {"attn_implementation": '"sdpa"'}}, 4),
    ("from_pretrained", "model_create", "insert_after", {"template": "shim.attend({target})"}, 8),
    ("from_config", "model_create", "insert_after", {"template": "shim.attend({target})"}, 8),
    ("TrainingArguments", "carrier", "set_keyword", {"keywords": {"dataloader_num_workers": "4"}}, 4),
    ("SFTConfig", "carrier", "set_keyword", {"keywords": {"packing": "True", "bf16": "True"}}, 6),
    ("Trainer", "trainer_create", "wrap_argument",
     {"argument": "data_collator", "template": "shim.flatten({original})", "missing": "shim.flatten()"}, 4),
    ("item", "device_read", "wrap_call", {"template": "shim.item({receiver})"}, 4),
    ("item", "device_read", "wrap_statement", {"template": "if shim.now():\n    {statement}"}, 40),
    ("backward", "backward", "insert_before", {"template": "shim.before()"}, 8),
    ("step", "optimizer_step", "insert_after", {"template": "shim.after()"}, 8),
    ("gradient_checkpointing_enable", "checkpoint_enable", "delete_statement", {}, 12),
    ("empty_cache", "empty_cache", "delete_statement", {}, 12),
    ("set_detect_anomaly", "debug_flag", "delete_statement", {}, 12),
    ("no_grad", "debug_flag", "delete_statement", {}, 400),
    ("compile", "compile", "set_keyword", {"keywords": {"dynamic": "False"}}, 4),
    ("fully_shard", "shard", "set_keyword", {"keywords": {"reshard_after_forward": "False"}}, 4),
)  # fmt: skip


def edits_of(text: str, name: str, kind: str, action: str, arguments: dict[str, object]) -> Iterator[Edit]:
    for n, call in enumerate(calls_named(text, name)):
        stars = any(word.arg is None for word in call.keywords)
        star = {"num_workers": "0", "collate_fn": "f"} if stars and n % 2 else None
        site = site_of(text, call, kind=kind, callee=name, site_id=f"s{n}", star=star)  # type: ignore[arg-type]
        yield Edit("sweep/rule", action, site, arguments)


def check(text: str, edit: Edit, most: int) -> str:
    """ "" for a good edit, the reason for a refused one; raises AssertionError for a bad one."""
    result = edit_source(text, [edit], ["import shim"])
    if result.refused:
        assert result.text.replace("import shim", "", 1).split() == text.split(), "refused, yet changed"
        return result.refused[0].reason.split(":")[0][:60]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile(result.text, "edited", "exec", dont_inherit=True)
    changed = [
        line
        for line in difflib.unified_diff(text.splitlines(), result.text.splitlines(), n=0)
        if line[:1] in "+-" and line[:3] not in ("+++", "---") and line[1:].strip() not in ("", "import shim")
    ]
    assert len(changed) <= most + 2, f"{len(changed)} lines changed:\n" + "\n".join(changed[:20])
    if edit.action != "delete_statement":
        again = again_of(result.text, edit)
        assert again is None or edit_source(result.text, [again], ["import shim"]).text == result.text, (
            "not idempotent"
        )
    return ""


def again_of(text: str, edit: Edit) -> Edit | None:
    """The same edit in the edited text: at the call that now stands nearest to the old place."""
    name = edit.site.callee
    found = calls_named(text, name)
    before = [c for c in found if c.lineno >= edit.site.line]
    if not before:
        return None
    n = int(edit.site.id[1:])
    if len(found) <= n:
        return None
    return Edit(
        edit.rule,
        edit.action,
        site_of(text, found[n], kind=edit.site.kind, callee=name, star=stars_of(edit)),
        edit.arguments,
    )


def stars_of(edit: Edit) -> dict[str, str] | None:
    found = {k: a.text for k, a in edit.site.arguments.items() if a.origin == "star-kwargs"}
    return found or None


def main(folders: list[str]) -> int:
    done: Counter[str] = Counter()
    refused: Counter[tuple[str, str]] = Counter()
    faults = files = 0
    for path in sorted(p for folder in folders for p in Path(folder).rglob("*.py")):
        try:
            text = path.read_bytes().decode("utf-8")
            ast.parse(text)
            parse(text)
        except (ValueError, SyntaxError, RecursionError):
            continue
        except Exception as fault:
            print(f"FAULT {path}: parse: {type(fault).__name__}: {fault}")
            faults += 1
            continue
        files += 1
        for name, kind, action, arguments, most in EDITS:
            if name not in text:
                continue
            for edit in edits_of(text, name, kind, action, arguments):
                label = f"{action} {name}"
                try:
                    reason = check(text, edit, most)
                except Exception as fault:
                    print(
                        f"FAULT {path}:{edit.site.line} {label}: {type(fault).__name__}: {str(fault)[:600]}"
                    )
                    faults += 1
                    continue
                done[label] += 1
                if reason:
                    refused[label, reason] += 1
    print(f"{files} files")
    for label, count in sorted(done.items()):
        no = sum(n for (which, _), n in refused.items() if which == label)
        print(f"{count - no:6} done {no:6} refused  {label}")
    for (label, reason), count in refused.most_common():
        print(f"{count:6} {label}: {reason}")
    print(f"{faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
