"""`autotune generate`: an FSDP2 training script for a model and data, without a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import click

from autotune.cli.common import current_screen, output_options, refuse_existing
from autotune.cli.kinds import NumberValue, PathValue
from autotune.errors import InputError

_EXAMPLE = "Example: autotune generate --model org/name --data 'chats/*.jsonl' -o train.py"


@click.command("generate", epilog=_EXAMPLE)
@click.option("--model", help="Folder of a saved model, a config.json (random weights), or a hub id.")
@click.option("--data", help="JSONL or parquet files, a data set, or Python (file.py:name).")
@click.option(
    "--kind",
    type=click.Choice(["messages", "prompt_completion", "text", "tokens"]),
    help="What a row of the data is; seen from the first row of a JSONL file.",
)
@click.option("--eval-data", help="Held-out data of the same kind.")
@click.option("--tokenizer", help="Folder, hub id or tokenizer.json; the model's own by default.")
@click.option(
    "--lora", type=click.IntRange(min=1), help="Train adapters of this rank instead of all weights."
)
@click.option(
    "--examples-per-step",
    type=click.IntRange(min=1),
    help="Examples to an optimizer step, all ranks together.",
)
@click.option("--row-tokens", type=click.IntRange(min=8), help="Token budget of a packed row.")
@click.option("--learning-rate", type=NumberValue(), help="Peak learning rate.")
@click.option("--epochs", type=NumberValue(), help="Passes over the data.")
@click.option("--max-steps", type=click.IntRange(min=1), help="Optimizer steps instead of epochs.")
@click.option(
    "--processes", type=click.IntRange(min=1), default=1, show_default=True, help="Ranks of one node."
)
@click.option("--model-type", help="The model's family, where its configuration is not on this machine.")
@click.option(
    "--kernels",
    type=click.Choice(["fast", "fallback"]),
    help="How recurrent layers run where the script will train; packing depends on it.",
)
@click.option(
    "--transformers", "version", help="Version the script will run with; that of --python by default."
)
@click.option(
    "--python", "interpreter", default="python", show_default=True, help="The training interpreter."
)
@click.option(
    "--set", "settings", multiple=True, metavar="PART.FIELD=VALUE", help="Any other setting; repeatable."
)
@click.option("--fields", is_flag=True, help="List every setting of --set and leave.")
@click.option("--template", default="fsdp2", show_default=True, help="A template of your own: PATH.j2.")
@click.option("-o", "--output", type=PathValue(dir_okay=False), help="File to write.")
@click.option("--overwrite", is_flag=True, help="Replace the file of -o if it is there.")
@output_options
def command(
    model: str | None,
    data: str | None,
    kind: Literal["messages", "prompt_completion", "text", "tokens"] | None,
    eval_data: str | None,
    tokenizer: str | None,
    lora: int | None,
    examples_per_step: int | None,
    row_tokens: int | None,
    learning_rate: float | None,
    epochs: float | None,
    max_steps: int | None,
    processes: int,
    model_type: str | None,
    kernels: Literal["fast", "fallback"] | None,
    version: str | None,
    interpreter: str,
    settings: tuple[str, ...],
    fields: bool,
    template: str,
    output: Path | None,
    overwrite: bool,
) -> None:
    """Write a self-contained FSDP2 training script for a model and data, without watching a job."""
    from autotune.apply.generate import field_lines
    from autotune.records.answers import ScriptFields

    screen = current_screen()
    if fields:
        lines = list(field_lines())
        if screen.as_json:
            screen.document(ScriptFields(fields=lines))
        for line in lines:
            screen.answer(line)
        return
    for name, given in (("--model", model), ("--data", data), ("-o", output)):
        if given is None:
            raise InputError(f"{name} is missing", hint=_EXAMPLE.removeprefix("Example: "))
    assert model is not None and data is not None and output is not None
    refuse_existing(output, overwrite)
    from autotune.apply.data_source import refuse_unfit, seen_kind
    from autotune.apply.generate import (
        decide_packing,
        find_model,
        make_context,
        transformers_version,
    )
    from autotune.apply.script import render_script, template_place
    from autotune.records.script import PackingContext
    from autotune.store import write_text

    source = find_model(model)
    set_by_hand = any(setting.startswith("data.kind=") for setting in settings)
    found = kind or ("tokens" if set_by_hand else seen_kind(data, "--kind"))
    wanted = PackingContext(**_given(row_tokens=row_tokens))
    packing = decide_packing(
        source, model_type, kernels, version or transformers_version(interpreter), wanted
    )
    parts: dict[str, Any] = {
        "file_name": output.name,
        "processes": processes,
        "model": _given(
            path=source.path,
            family=model_type or source.model_type,
            config=None if source.path else dict(source.config or {}),
            weights="pretrained" if source.path else "random",
            tokenizer=tokenizer,
            lora={"rank": lora, "alpha": 2.0 * lora} if lora else None,
        ),
        "data": _given(source=data, kind=found, eval_source=eval_data),
        "packing": packing.model_dump(),
        "batch": _given(examples_per_step=examples_per_step),
        "optimizer": _given(learning_rate=learning_rate, epochs=epochs, max_steps=max_steps),
        "run": {"output_dir": f"{output.stem}_output"},
    }
    context = make_context(parts, settings)
    refuse_unfit(context.data)
    text = render_script(context, *template_place(template))
    write_text(output, text)
    launch = f"torchrun --nproc-per-node {processes} {output}"
    if screen.as_json:
        from autotune.records.answers import GeneratedScript

        packs, reason = context.packing.packs, context.packing.reason
        screen.document(
            GeneratedScript(script=str(output), launch=launch, packed=packs, packing_reason=reason)
        )
        return
    how = "packed" if context.packing.packs else "not packed, one padded example each"
    screen.answer(f"wrote {output}\nrows: {how}: {context.packing.reason}")
    screen.answer(f"run it with: {launch}")


def _given(**values: Any) -> dict[str, Any]:
    """Only what was given."""
    return {name: value for name, value in values.items() if value is not None}
