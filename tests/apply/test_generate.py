"""A script without a run: what is read from files, what is guessed, what is refused, and that it trains."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from autotune.apply.data_source import guess_kind
from autotune.apply.generate import decide_packing, find_model, transformers_version
from autotune.cli.main import run
from autotune.errors import InputError
from autotune.records.script import PackingContext

CHAT = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model").mkdir()
    config = {"model_type": "qwen3", "hidden_size": 32, "transformers_version": "5.17.0", "dtype": "bfloat16"}
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    (tmp_path / "chats.jsonl").write_text("\n" + json.dumps(CHAT) + "\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path


def test_models_are_read_from_folders_files_and_the_local_cache(folder: Path) -> None:
    saved = find_model("model")
    assert (saved.path, saved.model_type) == ("model", "qwen3")
    built = find_model("model/config.json")
    assert built.path is None and built.config == {"model_type": "qwen3", "hidden_size": 32}
    unseen = find_model("org/name")
    assert (unseen.path, unseen.model_type) == ("org/name", None)
    snapshot = folder / "hub" / "models--org--name" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(
        json.dumps({"model_type": "qwen3_5", "text_config": {"model_type": "qwen3_5_text"}})
    )
    assert find_model("org/name").model_type == "qwen3_5_text"


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        (CHAT, "messages"),
        ({"prompt": "a", "completion": "b"}, "prompt_completion"),
        ({"text": "a"}, "text"),
        ({"input_ids": [1], "text": "a"}, "tokens"),
        ({"prompt": "a"}, None),
        ([1, 2], None),
    ],
)
def test_the_kind_of_rows_is_seen_from_the_first(folder: Path, row: object, kind: str | None) -> None:
    (folder / "rows.jsonl").write_text(json.dumps(row) + "\n")
    assert guess_kind("rows.jsonl") == kind
    assert guess_kind("org/dataset") is None


@pytest.mark.parametrize(
    ("family", "kernels", "version", "verdict"),
    [
        ("qwen3", None, "5.17.0", "isolated"),
        ("qwen3", None, None, "unknown"),
        ("qwen3_5_text", None, "5.17.0", "unknown"),
        ("qwen3_5_text", "fallback", "5.17.0", "leaks"),
        ("qwen3_5_text", "fast", "5.17.0", "isolated"),
        ("never_heard_of", "fast", "5.17.0", "unknown"),
    ],
)
def test_packing_follows_the_table(family: str, kernels: object, version: str | None, verdict: str) -> None:
    model = find_model("org/elsewhere")
    found = decide_packing(model, family, kernels, version, PackingContext())  # type: ignore[arg-type]
    assert found.verdict == verdict


def test_a_family_that_is_not_known_is_named_as_the_reason(folder: Path) -> None:
    found = decide_packing(find_model("org/elsewhere"), None, None, "5.17.0", PackingContext())
    assert found.verdict == "unknown" and "--model-type" in found.reason


def test_the_training_interpreter_says_its_version(tmp_path: Path) -> None:
    import transformers

    assert transformers_version(sys.executable) == transformers.__version__
    assert transformers_version(str(tmp_path / "no-python")) is None


def test_a_script_is_written_with_what_was_given(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["generate", "--model", "model", "--data", "chats.jsonl", "-o", "out.py", "--lora", "8"]
    words += [
        "--transformers",
        "5.17.0",
        "--examples-per-step",
        "64",
        "--set",
        "optimizer.schedule=linear",
        "--json",
    ]
    assert run([*words, "--set", "model.lora.target_modules=[q_proj, v_proj]", "--processes", "8"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["packed"] is True and answer["launch"] == "torchrun --nproc-per-node 8 out.py"
    text = (folder / "out.py").read_text()
    for part in (
        'schedule="linear"',
        "examples_per_step=64",
        'LORA = {"r": 8, "lora_alpha": 16.0, "lora_dropout": 0.0, "target_modules": ["q_proj", "v_proj"]}',
        "no job was watched",
        'supervise="assistant"',
    ):
        assert part in text
    assert text.count("\n") <= 500
    assert run([*words]) == 2 and "there already" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--model is missing"),
        (["--model", "model"], "--data is missing"),
        (["--model", "model", "--data", "chats.jsonl"], "-o is missing"),
        (["--model", "./nowhere", "--data", "chats.jsonl", "-o", "x.py"], "no such folder"),
        (["--model", "hub", "--data", "chats.jsonl", "-o", "x.py"], "no config.json"),
        (["--model", "chats.json", "--data", "chats.jsonl", "-o", "x.py"], "cannot be read"),
        (["--model", "empty.json", "--data", "chats.jsonl", "-o", "x.py"], "no model_type"),
        (["--model", "model", "--data", "org/set", "-o", "x.py"], "add --kind"),
        (["--model", "model", "--data", "bad.jsonl", "-o", "x.py"], "no JSON object"),
        (["--model", "model", "--data", "no.jsonl", "-o", "x.py"], "no.jsonl: there is no such file"),
        (["--model", "model", "--data", "no/*.parquet", "--kind", "text", "-o", "x.py"], "no such file"),
        (["--model", "model", "--data", "no.py:Rows", "--kind", "text", "-o", "x.py"], "no.py: there is no"),
        (["--model", "model", "--data", "no.csv", "--kind", "text", "-o", "x.py"], "no such file or folder"),
        (
            ["--model", "model/config.json", "--data", "no.jsonl", "--kind", "text", "-o", "x.py"],
            "no such file",
        ),
        (
            ["--model", "model", "--data", "chats.jsonl", "--eval-data", "no.jsonl", "-o", "x.py"],
            "no.jsonl: there is no such file",
        ),
        (["--model", "model", "--data", "hub.txt", "--kind", "text", "-o", "x.py"], "cannot read this kind"),
        (["--model", "model", "--data", "turns.jsonl", "-o", "x.py"], "(user, assistant)"),
        (["--model", "model", "--data", "turns.jsonl", "-o", "x.py"], "prompt_completion (a row has prompt"),
        (
            ["--model", "model", "--data", "turns.jsonl", "--kind", "text", "-o", "x.py"],
            "need text; the first row has user, assistant",
        ),
        (["--model", "model", "--data", "org/set", "-o", "x.py"], "tokens (a row has input_ids)"),
        (["--model", "model", "--data", "chats.jsonl", "-o", "x.py", "--set", "a"], "PART.FIELD=VALUE"),
        (
            ["--model", "model", "--data", "chats.jsonl", "-o", "x.py", "--set", "optimizer.lr=1"],
            "optimizer.lr",
        ),
        (["--model", "model", "--data", "chats.jsonl", "-o", "x.py", "--set", "run.seed=x"], "run.seed"),
        (
            ["--model", "model", "--data", "chats.jsonl", "-o", "x.py", "--template", "no.j2"],
            "no such template",
        ),
    ],
)
def test_what_is_missing_or_wrong_is_one_line(
    folder: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "hub").mkdir()
    (folder / "bad.jsonl").write_text("no json\n")
    (folder / "hub.txt").write_text("words\n")
    (folder / "turns.jsonl").write_text('{"user": "a", "assistant": "b"}\n')
    (folder / "empty.json").write_text("{}")
    assert run(["generate", *words]) == 2
    shown = capsys.readouterr().err
    assert said in shown and shown.count("\n") == 1
    assert not (folder / "x.py").exists()


def test_keys_of_other_names_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "turns.jsonl").write_text('{"user": "a", "assistant": "b"}\n')
    words = ["generate", "--model", "model", "--data", "turns.jsonl", "--kind", "prompt_completion"]
    columns = ["--set", "data.prompt_column=user", "--set", "data.completion_column=assistant"]
    assert run([*words, *columns, "-o", "out.py", "--python", "no-python"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "wrote out.py rows: not packed, one padded example each: " in shown
    assert "run it with: torchrun --nproc-per-node 1 out.py" in shown


def test_a_file_in_the_way_is_replaced_only_when_asked(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "out.py").write_text("mine\n")
    words = ["generate", "--model", "model", "--data", "chats.jsonl", "-o", "out.py"]
    assert run(words) == 2 and "--overwrite" in capsys.readouterr().err
    assert (folder / "out.py").read_text() == "mine\n"
    assert run([*words, "--overwrite"]) == 0 and "torchrun" in (folder / "out.py").read_text()


def test_every_setting_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["generate", "--fields"]) == 0
    shown = capsys.readouterr().out
    assert "optimizer.learning_rate = 2e-05: " in shown and "data.source = required: " in shown


def test_templates_of_ones_own_see_the_same_values(folder: Path) -> None:
    (folder / "mine.py.j2").write_text(
        '"""{{ title }} on {{ context.data.source }}"""\n'
        "{% for line in options %}\n{{ line }}\n{% endfor %}\n"
    )
    words = [
        "generate",
        "--model",
        "model",
        "--data",
        "chats.jsonl",
        "-o",
        "mine.py",
        "--transformers",
        "5.17",
    ]
    assert run([*words, "--template", "mine.py.j2"]) == 0
    assert (
        (folder / "mine.py")
        .read_text()
        .startswith('"""Fine-tuning on chats.jsonl"""\nOPTIONS = dict(model="model"')
    )
    (folder / "wraps.py.j2").write_text('{% include "fsdp2/train.py.j2" %}\nAFTER = 1\n')
    assert run([*words[:-3], "wraps.py", *words[-2:], "--template", "wraps.py.j2"]) == 0
    assert (folder / "wraps.py").read_text().endswith("AFTER = 1\n")
    (folder / "broken.py.j2").write_text("{{ nonesuch }}\n")
    with pytest.raises(InputError, match="nonesuch"):
        _render(folder / "broken.py.j2")


def _render(template: Path) -> None:
    from autotune.apply.generate import make_context
    from autotune.apply.script import render_script, template_place

    context = make_context({"model": {"path": "m"}, "data": {"source": "d.jsonl"}}, [])
    render_script(context, *template_place(str(template)))
