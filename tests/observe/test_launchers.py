"""Programs in front of a training script, each started for real through `launch`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.observe.launch import launch
from autotune.observe.spec import LaunchSpec
from autotune.records.observation import Observation

pytestmark = pytest.mark.job
SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
PYTHON = sys.executable
TORCHRUN = f"{PYTHON} -m torch.distributed.run --standalone --nproc-per-node 2"
DDP = f"{SCRIPTS / 'distributed_loop.py'} --style ddp --steps 400"


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def told(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    def tell(start: str, style: str, result: str) -> None:
        for name, value in (("start", start), ("style", style), ("result", result)):
            record_property(name, value)

    return tell


def _start(folder: Path, *command: str) -> Observation:
    spec = LaunchSpec(
        command=command,
        cwd=folder,
        folder=folder / "launch",
        mode="profile",
        steps=4,
        warmup_steps=3,
        echo="none",
    )
    observation = launch(spec)
    assert observation.exit_code == 0, observation.log_tail
    assert {rank.status for rank in observation.ranks} == {"stopped"}
    assert [rank.hook_faults for rank in observation.ranks] == [[]] * len(observation.ranks)
    assert len({len(rank.steps) for rank in observation.ranks}) == 1
    return observation


def test_a_shell_script_around_torchrun(tmp_path: Path, told: Callable[..., None]) -> None:
    (tmp_path / "run.sh").write_text(f"set -e\nexport NAME=x\nfor i in 1; do\n  {TORCHRUN} {DDP}\ndone\n")
    observation = _start(tmp_path, "bash", "run.sh")
    assert [(rank.rank, rank.world_size) for rank in observation.ranks] == [(0, 2), (1, 2)]
    told("bash run.sh around torchrun", "DDP", "2 ranks, stopped at the same step, exit code 0")


def test_a_scheduler_that_cleans_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Callable[..., None]
) -> None:
    """A stand-in for srun --export=NONE: nothing of the environment gets through it."""
    program = tmp_path / "bin" / "srun"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/bash\nwhile [ "${1:0:1}" = - ]; do [ "$1" = -n ] && shift; shift; done\n'
        'exec env -i PATH="/usr/bin:/bin" OMP_NUM_THREADS=1 "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    observation = _start(
        tmp_path, "srun", "--export=NONE", "-n", "1", PYTHON, str(SCRIPTS / "plain_loop.py"), "--epochs", "99"
    )
    assert len(observation.ranks) == 1 and observation.launcher == "srun"
    told("srun --export=NONE (a stand-in)", "plain loop", "1 rank, stopped, exit code 0")


@pytest.mark.full
def test_a_console_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Callable[..., None]) -> None:
    program = tmp_path / "bin" / "mytrain"
    program.parent.mkdir()
    program.write_text(
        f"#!{PYTHON}\nimport runpy, sys\nsys.argv[0] = {str(SCRIPTS / 'plain_loop.py')!r}\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    observation = _start(tmp_path, "mytrain", "--epochs", "99")
    assert len(observation.ranks) == 1 and observation.launcher == "mytrain"
    told("console script", "plain loop", "1 rank, stopped, exit code 0")


@pytest.mark.full
def test_the_trl_command_line(tmp_path: Path, told: Callable[..., None]) -> None:
    """No Python of the user's at all: model, data and settings come from a file."""
    pytest.importorskip("trl")
    _tiny_model(tmp_path / "model")
    (tmp_path / "data").mkdir()
    rows = [{"text": " ".join(f"w{(7 * i + j) % 60}" for j in range(5 + i % 30))} for i in range(96)]
    (tmp_path / "data" / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {
        "model_name_or_path": str(tmp_path / "model"), "dataset_name": str(tmp_path / "data"),
        "output_dir": "out", "max_steps": 60, "per_device_train_batch_size": 2, "max_length": 64,
        "use_cpu": True, "bf16": False, "report_to": "none", "save_strategy": "no",
    }  # fmt: skip
    (tmp_path / "sft.yaml").write_text("".join(f"{k}: {json.dumps(v)}\n" for k, v in settings.items()))
    trl = str(Path(PYTHON).with_name("trl"))
    observation = _start(tmp_path, trl, "sft", "--config", "sft.yaml")
    (rank,) = observation.ranks
    assert observation.trainer_kind == "trl" and observation.carrier == "SFTConfig"
    assert observation.launcher == "trl" and rank.model is not None and rank.model.model_type == "llama"
    assert not [site for site in observation.sites if site.editable]  # nothing here is the user's code
    (carrier,) = (
        site for site in observation.sites if site.kind == "carrier"
    )  # its settings are known all the same
    assert carrier.detail["filled_by"] == "parse_args_and_config" and carrier.detail["field.max_length"] == 64
    assert carrier.detail["origin.per_device_train_batch_size"] == "config"
    assert rank.recipe is not None and rank.recipe.loaded[0].columns == {"text": "string"}
    assert all(step.real_tokens and step.tokens for step in rank.steps)
    told("trl sft --config", "TRL SFTTrainer", "1 rank, stopped, exit code 0")


def _tiny_model(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = ["<pad>", "<s>", "</s>", *(f"w{i}" for i in range(60))]
    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<pad>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )
    tokenizer.save_pretrained(folder)
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=2, architectures=["LlamaForCausalLM"],
        )
    ).save_pretrained(folder)  # fmt: skip


HANDLERS = """
    import signal, sys, torch
    seen = []
    signal.signal(signal.SIGUSR1, lambda *a: seen.append("usr1"))
    signal.signal(signal.SIGTERM, lambda *a: seen.append("term"))
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGHUP, signal.SIGALRM)}
    model = torch.nn.Linear(4, 4); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(30):
        model(torch.ones(2, 4)).sum().backward(); optimizer.step(); optimizer.zero_grad()
        if step % 10 == 5:
            signal.raise_signal(signal.SIGUSR1); signal.raise_signal(signal.SIGTERM)
    assert seen == ["usr1", "term"] * 3, seen
    assert before == {n: signal.getsignal(n) for n in before}
    print("end of the job")
"""


def test_signal_handlers_of_the_job_stay_its_own(tmp_path: Path, told: Callable[..., None]) -> None:
    import textwrap

    (tmp_path / "job.py").write_text(textwrap.dedent(HANDLERS))
    spec = LaunchSpec(
        command=(PYTHON, "job.py"),
        cwd=tmp_path,
        folder=tmp_path / "launch",
        mode="timing",
        stop="never",
        echo="none",
    )
    observation = launch(spec)
    assert observation.exit_code == 0 and observation.log_tail == ["end of the job"], observation.log_tail
    assert len(observation.ranks[0].steps) == 30
    told("python", "signal handlers", "1 rank, 30 steps found, every signal reached the job")
