"""The MCP server driven over stdio by the SDK's own client: a job, a trace, faults, cancellation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters, stdio_client

TRACE = Path(__file__).parents[1] / "traces" / "h100_1gpu_qwen1.5-0.5b_infer_scrubbed.json.gz"
JOB = """
import sys, time, torch
from torch.utils.data import DataLoader
class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 4000
    def __getitem__(self, index):
        time.sleep(0.004)
        return torch.randn(16, generator=torch.Generator().manual_seed(index))
if __name__ == "__main__":
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for batch in DataLoader(Slow(), batch_size=4):
        model(batch).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def _server(root: Path, *options: str) -> Any:
    arguments = ["-m", "autotune", "mcp", "--root", str(root), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return stdio_client(StdioServerParameters(command=sys.executable, args=arguments, env=environment))


def _text(result: Any) -> str:
    return " ".join(part.text for part in result.content)


def _record(result: Any) -> dict[str, Any]:
    assert not result.is_error, _text(result)
    assert isinstance(result.structured_content, dict)
    # Clients of the older protocol read the text: it is the same record.
    assert json.loads(_text(result)) == result.structured_content
    return result.structured_content


def test_tools_on_a_saved_trace(tmp_path: Path) -> None:
    async def talk() -> None:
        async with Client(_server(tmp_path)) as client:
            listed = (await client.list_tools()).tools
            assert {tool.name for tool in listed} == {
                "analyze", "analyze_traces", "apply", "explain", "report", "verify"
            }  # fmt: skip
            assert all(tool.description for tool in listed)
            found = _record(await client.call_tool("analyze_traces", {"traces": [str(TRACE)]}))
            assert found["exit_code"] == 0
            assert found["diagnosis"]["verdict"]
            assert found["omitted"]["facts"] > 100 and "facts" not in found["diagnosis"]
            again = _record(await client.call_tool("report", {"detail": True}))
            assert again["diagnosis"]["verdict"] == found["diagnosis"]["verdict"]
            assert again["diagnosis"]["facts"]
            rule = _record(await client.call_tool("explain", {"rule": "attention/eager", "run": "latest"}))
            assert "attention/eager" in json.dumps(rule["explanation"])

    anyio.run(talk)


def test_faults_are_answers_and_nothing_reaches_a_shell_or_an_option(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()

    async def talk() -> None:
        async with Client(_server(tmp_path / "inside")) as client:
            missing = await client.call_tool("report", {"run": "no-such-run"})
            assert missing.is_error and "exit code 2" in _text(missing)
            # A name that looks like an option stays a name.
            option = await client.call_tool("apply", {"run": "--write"})
            assert option.is_error and "no run" in _text(option)
            outside = await client.call_tool("report", {"folder": ".."})
            assert outside.is_error and "outside" in _text(outside)
            empty = await client.call_tool("analyze", {"command": []})
            assert empty.is_error
            as_text = await client.call_tool("analyze", {"command": "touch made"})
            assert as_text.is_error
            shell = await client.call_tool("analyze", {"command": ["true; touch made"]})
            assert shell.is_error and "exit code 3" in _text(shell)
            for tool, given in (("report", {"run": "a\0b"}), ("report", {"folder": "a\0b"})):
                zero = await client.call_tool(tool, given)
                assert zero.is_error and "null byte" in _text(zero)
        assert not list(tmp_path.rglob("made"))

    anyio.run(talk)


def test_no_run_starts_a_job_outside_the_root(tmp_path: Path) -> None:
    """Neither a run named by a path from elsewhere, nor one whose job lies elsewhere."""
    card = {"kind": "job", "created": "", "autotune": "", "state": "diagnosed", "command": ["true"]}
    for folder, cwd in (("at-1", "inside"), ("inside/runs/at-2", ".")):
        (tmp_path / folder).mkdir(parents=True)
        record = {**card, "id": Path(folder).name, "cwd": str(tmp_path / cwd)}
        (tmp_path / folder / "run.json").write_text(json.dumps(record))

    async def talk() -> None:
        async with Client(_server(tmp_path / "inside")) as client:
            for tool in ("apply", "verify"):
                for run, what in (("../at-1", "this run"), ("at-2", "the job of this run")):
                    refused = await client.call_tool(tool, {"run": run})
                    assert refused.is_error and f"{what} lies in" in _text(refused)

    anyio.run(talk)


def test_a_read_only_server_offers_nothing_that_starts_a_job(tmp_path: Path) -> None:
    async def talk() -> None:
        async with Client(_server(tmp_path, "--read-only")) as client:
            listed = {tool.name for tool in (await client.list_tools()).tools}
            assert listed == {"analyze_traces", "explain", "report"}

    anyio.run(talk)


@pytest.mark.job
def test_a_job_is_watched_with_progress_and_its_copy_is_written(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    told: list[tuple[float, str]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told.append((done, message or ""))

    async def talk() -> None:
        async with Client(_server(tmp_path)) as client:
            call = {"command": [sys.executable, "job.py"], "steps": 6}
            found = _record(await client.call_tool("analyze", call, progress_callback=progress))
            assert "data/" in json.dumps([f["rule"] for f in found["diagnosis"]["findings"]])
            shown = _record(await client.call_tool("apply", {"select": ["data/*"]}))
            assert "num_workers" in shown["diff"] and not shown["manifest"]["written"]
            assert not (tmp_path / "job_autotuned.py").exists()
            written = _record(await client.call_tool("apply", {"select": ["data/*"], "write": True}))
            assert written["manifest"]["written"]

    anyio.run(talk)
    assert (tmp_path / "job_autotuned.py").exists()
    assert (tmp_path / "job.py").read_text() == JOB
    assert len(told) > 1 and [done for done, _ in told] == sorted(done for done, _ in told)
    assert {line for _, line in told} - {"starting"}  # what the verb says meanwhile


@pytest.mark.job
def test_a_cancelled_call_stops_the_job(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("import os, time\nopen('pid', 'w').write(str(os.getpid()))\n" + JOB)
    started: list[int] = []

    async def talk() -> None:
        async with Client(_server(tmp_path)) as client:
            with anyio.move_on_after(60) as scope:
                async with anyio.create_task_group() as group:
                    call = {"command": [sys.executable, "job.py"], "steps": 5000}
                    group.start_soon(client.call_tool, "analyze", call)
                    while not (pid := _pid(tmp_path)):
                        await anyio.sleep(0.2)
                    started.append(pid)
                    group.cancel_scope.cancel()
            assert not scope.cancelled_caught
            # The server still answers.
            assert (await client.call_tool("report", {"run": "no-such-run"})).is_error

    anyio.run(talk)
    ends = time.monotonic() + 60
    while _alive(started[0]) and time.monotonic() < ends:
        time.sleep(0.2)
    assert not _alive(started[0])


def _pid(folder: Path) -> int:
    """What the job wrote: its writes go into the run folder while it is watched."""
    for path in folder.glob("runs/*/launches/*/sandbox/**/pid"):
        text = path.read_text() if path.is_file() else ""
        if text:
            return int(text)
    return 0


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.full
@pytest.mark.job
@pytest.mark.timeout(900)
def test_verify_gives_the_verdict(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)

    async def talk() -> None:
        async with Client(_server(tmp_path)) as client:
            call = {"command": [sys.executable, "job.py"], "steps": 6}
            _record(await client.call_tool("analyze", call))
            options = {"select": ["data/*"], "min_pairs": 2, "max_pairs": 2}
            found = _record(await client.call_tool("verify", options))
            verdict = found["verdict"]
            assert verdict["outcome"] == "faster" or found["exit_code"] in (5, 6)
            assert verdict["parity"]["outcome"] == "equal" and "trials" in found["omitted"]

    anyio.run(talk)


def test_without_the_sdk_one_line_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['mcp'] = None; from autotune.cli.main import run; sys.exit(run(['mcp']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert "autotune-training[mcp]" in done.stderr and len(done.stderr.strip().splitlines()) == 1
