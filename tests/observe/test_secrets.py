"""Nothing secret ends up in a run folder: planted in the environment, the command, errors and traces."""

from __future__ import annotations

import gzip
import json
import re
import socket
import sys
import textwrap
from pathlib import Path

import pytest

from autotune.cli.main import run
from autotune.errors import JobFailedError
from autotune.observe import secrets
from autotune.observe.secrets import hide_command, reveal_command

IN_ENVIRONMENT = "Correct-Horse7-Battery"
ON_COMMAND = "s3cretvalue0f4rgument"
SHAPED = "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vW7"
IN_URL = "user:pa55word"

JOB = """
    import os, sys, torch
    print("using", os.environ["TRACKER_API_KEY"], sys.argv[2], flush=True)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.utils.data.DataLoader([1, 2], batch_size=2, collate_fn=list)
    with open("progress.txt", "w") as file:
        file.write("started")
    for step in range(40):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 3:
            torch.save({"key": os.environ["TRACKER_API_KEY"]}, "weights-%s.pt" % sys.argv[2])
        if step == 5 and sys.argv[-1] == "crash":
            raise RuntimeError(f"cannot log in with {os.environ['TRACKER_API_KEY']} or {sys.argv[2]} at "
                               f"https://user:pa55word@tracker/ token={sys.argv[3]}")
"""


def _everything(folder: Path) -> bytes:
    found = b""
    for path in sorted(folder.rglob("*")):
        found += str(path.relative_to(folder)).encode()
        if path.is_file():
            data = path.read_bytes()
            found += gzip.decompress(data) if path.suffix == ".gz" else data
    return found


@pytest.mark.job
@pytest.mark.parametrize("ending", ["crash", pytest.param("well", marks=pytest.mark.full)])
def test_no_secret_in_the_run_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRACKER_API_KEY", IN_ENVIRONMENT)
    monkeypatch.setenv("UNRELATED_VALUE", "nothing-secret-but-private")
    for name in ("USER", "LOGNAME", "HOSTNAME"):
        monkeypatch.setenv(name, f"ann-of-the-lab-{name}")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text(textwrap.dedent(JOB))
    words = ("--hub_token", ON_COMMAND, SHAPED, f"--remote=https://{IN_URL}@tracker/", ending)
    code = run(["analyze", "-q", "--runs-dir", "out", "--", sys.executable, "job.py", *words])
    assert code == (3 if ending == "crash" else 0), capfd.readouterr()
    (folder,) = (tmp_path / "out").iterdir()
    written = _everything(folder)
    private = ("nothing-secret-but-private", "ann-of-the-lab")
    for secret in (IN_ENVIRONMENT, ON_COMMAND, SHAPED, IN_URL, *private):
        at = written.find(secret.encode())
        assert at < 0, written[max(0, at - 200) : at + 80]
    assert not re.search(rb'"host_?name": *"(?!<host>)', written)  # the profiler writes it into its trace
    record = json.loads((folder / "run.json").read_text())
    assert record["process"]["host"] and socket.gethostname() not in record["process"]["host"]
    assert record["command"][1] == "job.py" and record["command"][-1] == ending
    assert record["command"][3].startswith("<hidden:")
    log = next(folder.glob("launches/*/train.log")).read_text()
    assert log.startswith("using <hidden> <hidden:")  # the job itself got the real ones
    assert reveal_command(record["command"], {})[2:] == list(words)


def test_a_later_process_finds_the_value_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = hide_command(["python", "x.py", "--token", ON_COMMAND])
    assert hidden[:3] == ["python", "x.py", "--token"] and ON_COMMAND not in hidden[3]
    monkeypatch.setattr(secrets, "_known", {})
    assert reveal_command(hidden, {"ANY": ON_COMMAND})[3] == ON_COMMAND
    with pytest.raises(JobFailedError, match="a credential that was not kept"):
        reveal_command(hidden, {"ANY": "another"})


@pytest.mark.parametrize(
    "words",
    [
        ["--pad_token", "<|endoftext|>", "--eos_token=PADDING_9", "--max_tokens", "12345678"],
        ["--tokenizer", "gpt2-medium-8k", "--key", "input_ids_column1", "train_hf_trainer_small.py"],
        ["--lr=1e-4", "task-specific-configuration-9", "--hub_token", "no"],
    ],
)
def test_ordinary_arguments_stay(words: list[str]) -> None:
    assert hide_command(words) == words


def test_a_secret_inside_a_shell_line() -> None:
    line = f"cd x && HF_TOKEN={SHAPED} python train.py --batch_size 4"
    (hidden,) = hide_command([line])
    assert SHAPED not in hidden and hidden.startswith("cd x && HF_TOKEN=<hidden:")
    assert hidden.endswith(" python train.py --batch_size 4") and reveal_command([hidden], {}) == [line]


def test_a_saved_trace_brings_no_credential_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    event = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "args": {}}
    events = [{**event, "name": f"aten::mm {i}", "ts": 10.0 * i, "dur": 5.0} for i in range(6)]
    planted = {
        "login": SHAPED,
        "environment": {"API_KEY": ON_COMMAND},
        "hostname": "n17",
    }
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, **planted, "traceEvents": events}))
    monkeypatch.chdir(tmp_path)
    assert run(["analyze", "--trace", "-q", "--runs-dir", "out", "trace.json"]) == 0
    (folder,) = (tmp_path / "out").iterdir()
    written = _everything(folder)
    assert SHAPED.encode() not in written and ON_COMMAND.encode() not in written and b"n17" not in written


def test_a_secret_set_after_the_first_use_is_hidden_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert secrets.scrub("using Fresh-Horse9-Battery") == "using Fresh-Horse9-Battery"
    monkeypatch.setenv("LATER_API_KEY", "Fresh-Horse9-Battery")
    assert secrets.scrub("using Fresh-Horse9-Battery") == "using <hidden>"
