"""The job of `examples/founding_case/train.py` in TRL's SFTTrainer, at settings its documentation recommends.

    python bench/h200/rivals.py padded --size 2.4b
    python bench/h200/rivals.py packed --fused-adamw

`padded`: SFTConfig's defaults (checkpointing on, bf16 autocast over fp32 weights), rows of similar length
together, padded to the longest. `packed`: packing="bfd" into rows of --max-tokens, one row a step. Same
model, rows and tokens a step as the job. Prints one line of JSON: useful tokens/s (median over the timed
steps, padding not counted), peak memory and losses. One process, one GPU or the CPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset  # type: ignore[import-untyped]
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3_5TextConfig, TrainerCallback
from trl import SFTConfig, SFTTrainer  # type: ignore[attr-defined]

CASE = Path(__file__).resolve().parents[2] / "examples" / "founding_case"
sys.path.insert(0, str(CASE))
from train import SIZES, ChatRows  # type: ignore[import-not-found]  # noqa: E402

SKIPPED = 6  # first steps, with compilation


class Clock(TrainerCallback):  # type: ignore[misc]
    """Wall time and useful tokens of each step."""

    def __init__(self) -> None:
        self.tokens = self.taken = 0
        self.rates: list[float] = []
        self.losses: list[float] = []
        self.since = time.perf_counter()

    def counted(self, collate: Any) -> Any:
        def wrapped(rows: list[Any]) -> Any:
            batch = collate(rows)
            mask = batch.get("attention_mask")
            self.tokens += int(mask.sum()) if mask is not None else batch["input_ids"].numel()
            return batch

        return wrapped

    def on_step_end(self, *_: Any, **__: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.rates.append((self.tokens - self.taken) / (now - self.since))
        self.taken, self.since = self.tokens, now

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any
    ) -> None:
        if logs and "loss" in logs:
            self.losses.append(logs["loss"])


def tokenizer(size: int) -> PreTrainedTokenizerFast:
    words = {f"t{i}": i for i in range(min(size, 64))}
    made = Tokenizer(WordLevel(words, unk_token="t0"))
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="t0", eos_token="t1", unk_token="t0")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("how", choices=["padded", "packed"])
    parser.add_argument("--size", choices=sorted(SIZES), default="2.4b")
    parser.add_argument("--data", default=str(CASE / "data" / "chat.npz"))
    parser.add_argument("--max-tokens", type=int, default=8192)
    parser.add_argument("--rows", type=int, default=4, help="rows of a padded batch")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--fused-adamw", action="store_true")
    parser.add_argument("--no-checkpointing", action="store_true")
    parser.add_argument("--liger", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(42)
    config = Qwen3_5TextConfig(**SIZES[args.size])
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    rows = ChatRows(args.data, args.max_tokens, config.vocab_size)
    taken = min(len(rows), 16 * args.steps)
    data = Dataset.from_list([{"input_ids": rows[i].tolist()} for i in range(taken)])
    packed = args.how == "packed"
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        settings = SFTConfig(
            output_dir=folder,
            max_length=args.max_tokens,
            packing=packed,
            per_device_train_batch_size=1 if packed else args.rows,
            train_sampling_strategy="random" if packed else "group_by_length",
            max_steps=args.steps,
            learning_rate=2e-5,
            optim="adamw_torch_fused" if args.fused_adamw else "adamw_torch",
            bf16=True,
            gradient_checkpointing=not args.no_checkpointing,
            use_liger_kernel=args.liger,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=not torch.cuda.is_available(),
        )
        trainer = SFTTrainer(
            model,
            args=settings,
            train_dataset=data,
            processing_class=tokenizer(config.vocab_size),
            callbacks=[clock],
        )
        trainer.data_collator = clock.counted(trainer.data_collator)
        trainer.train()
    rates = clock.rates[SKIPPED:]
    row = {
        "how": args.how,
        "size": args.size,
        "useful_tokens_per_s": round(statistics.median(rates), 1) if rates else None,
        "steps": len(rates),
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2)
        if torch.cuda.is_available()
        else None,
        "losses": [round(x, 4) for x in clock.losses[:8]],
        "options": {k: v for k, v in vars(args).items() if v is True},
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
