"""Packing must not change the loss or its gradients, and examples must not see each other."""

from __future__ import annotations

import copy
from collections import UserDict
from contextlib import nullcontext
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from shim_modules import load_shim
from transformers import BatchEncoding, GPT2Config, LlamaConfig, Qwen3Config
from transformers.models.auto import AutoModelForCausalLM

CONFIGS = {
    "llama": LlamaConfig(
        vocab_size=97, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2,
    ),
    "qwen3-sliding": Qwen3Config(
        vocab_size=97, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=1, head_dim=8, sliding_window=5, use_sliding_window=True, max_window_layers=1,
    ),
}  # fmt: skip


def tiny(name: str, **options: Any) -> Any:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(copy.deepcopy(CONFIGS[name]), **options)


def examples(lengths: tuple[int, ...] = (7, 3, 12, 5)) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(1, 97, (n,), generator=generator) for n in lengths]


def pad(rows: list[torch.Tensor], side: str = "right") -> dict[str, torch.Tensor]:
    longest = max(len(r) for r in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    mask, labels = torch.zeros_like(ids), torch.full_like(ids, -100)
    for i, row in enumerate(rows):
        at = slice(0, len(row)) if side == "right" else slice(longest - len(row), longest)
        ids[i, at], mask[i, at], labels[i, at] = row, 1, row
        labels[i, at][: len(row) // 3] = -100  # a prompt that is not trained on
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def pad_left(rows: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    return pad(rows, "left")


def gradients(model: Any, loss: torch.Tensor) -> torch.Tensor:
    model.zero_grad()
    loss.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.fixture
def batches(attention: Any) -> Any:
    return load_shim("packed_batches")


@pytest.fixture
def attention() -> Any:
    return load_shim("packed_attention")


def moved(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {k: v.to("cpu", non_blocking=True) for k, v in batch.items()}


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("collate", [pad, pad_left])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_loss_and_gradients_are_equal(batches: Any, family: str, collate: Any, dropout: float) -> None:
    model = tiny(family, attn_implementation="eager")
    model.config.attention_dropout = dropout  # the layers were built without: only the gate sees it
    before = model(**collate(examples())).loss
    reference = gradients(model, before)
    with pytest.warns(UserWarning, match="attention_dropout=0.1; eager") if dropout else nullcontext():
        batches.attend_per_example(model)
    assert model.config._attn_implementation == ("eager" if dropout else "autotune_packed")
    packed = batches.flatten(collate)(examples())
    assert packed["input_ids"].shape == (1, 27)
    after = model(**moved(packed)).loss
    assert abs(after.item() - before.item()) < 1e-5
    assert torch.allclose(gradients(model, after), reference, atol=1e-5)


@pytest.mark.parametrize("attend", [True, False])
def test_examples_do_not_see_each_other(batches: Any, attend: bool) -> None:
    model = tiny("llama").eval()
    if attend:
        batches.attend_per_example(model)
    else:
        model.register_forward_pre_hook(batches.hand_over, with_kwargs=True)
    collate = batches.flatten(pad)
    rows = examples()
    logits = model(**collate(rows)).logits
    rows[0] = rows[0].flip(0)
    changed = model(**collate(rows)).logits
    assert not torch.equal(logits[:, :7], changed[:, :7])
    assert torch.equal(logits[:, 7:], changed[:, 7:])


def test_attention_switched_after_packing_is_refused(batches: Any) -> None:
    model = tiny("llama")
    batches.attend_per_example(model)
    model.set_attn_implementation("sdpa")
    with pytest.raises(ValueError, match="switched to sdpa after packing"):
        model(**batches.flatten(pad)(examples()))


def test_boundary_arguments(batches: Any) -> None:
    packed = batches.flatten(pad)(examples((3, 2)))
    assert packed["position_ids"].tolist() == [[0, 1, 2, 0, 1]]
    assert packed["seq_idx"].tolist() == [[0, 0, 0, 1, 1]] and packed["seq_idx"].dtype == torch.int32
    assert packed["cu_seq_lens_q"].tolist() == [0, 3, 5] and packed["cu_seq_lens_q"].dtype == torch.int32
    assert packed["labels"][0, [0, 3]].tolist() == [-100, -100]
    assert all(torch.is_tensor(v) for v in packed.values())


def test_rounded_rows_end_in_one_ignored_example(batches: Any) -> None:
    rounded = load_shim("packed_batches", round_to=8, boundaries="position_ids cu_seq_lens_q")
    packed = rounded.flatten(pad)(examples((3, 2)))
    assert packed["input_ids"].shape == (1, 8) and packed["cu_seq_lens_q"].tolist() == [0, 3, 5, 8]
    assert packed["labels"][0, 5:].tolist() == [-100] * 3 and "seq_idx" not in packed
    load_shim("packed_batches")


def test_arguments_named_at_the_call(batches: Any) -> None:
    model = tiny("llama")
    before = model(**pad(examples())).loss
    batches.attend_per_example(model)
    batch = moved(batches.flatten(pad)(examples()))
    after = model(batch["input_ids"], batch["attention_mask"], labels=batch["labels"]).loss
    assert abs(after.item() - before.item()) < 1e-5
    with pytest.raises(ValueError, match="without their boundaries"):
        model(batch["input_ids"], labels=batch["labels"])


class Triple(NamedTuple):
    ids: torch.Tensor
    mask: torch.Tensor
    labels: torch.Tensor


@pytest.mark.parametrize("kind", [tuple, list, lambda values: Triple(*values)])
def test_tuples_and_own_loss(batches: Any, kind: Any) -> None:
    def collate(rows: list[torch.Tensor]) -> Any:
        return kind(pad(rows).values())

    def loss(ids: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = model(input_ids=ids, attention_mask=mask).logits
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())

    model = tiny("llama")
    before = loss(*collate(examples()))
    batches.attend_per_example(model)
    packed = batches.flatten(collate)(examples())
    assert type(packed) is type(collate(examples()))
    assert abs(loss(*packed).item() - before.item()) < 1e-5


def test_a_job_that_calls_the_base_model_and_has_a_loss_of_its_own(batches: Any) -> None:
    def loss(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        hidden = model.model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])[0]
        logits = model.lm_head(hidden[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), batch["labels"][:, 1:].flatten())

    model = tiny("llama")
    before = loss(pad(examples()))
    expected = gradients(model, before)
    batches.attend_per_example(model)
    after = loss(batches.flatten(pad)(examples()))
    assert abs(after.item() - before.item()) < 1e-5
    assert torch.allclose(gradients(model, after), expected, atol=1e-5)
    # the whole model, afterwards, still knows its boundaries, and padded batches their mask
    assert abs(model(**batches.flatten(pad)(examples())).loss.item() - before.item()) < 1e-5
    assert abs(model(**pad(examples())).loss.item() - before.item()) < 1e-5


def test_rows_packed_before_get_their_boundaries(batches: Any) -> None:
    packed = batches.flatten(pad)(examples())
    bare = {k: packed[k] for k in ("input_ids", "labels", "position_ids")}
    again = batches.flatten(lambda rows: {**bare, "attention_mask": torch.ones(1, 27)})(examples())
    assert all(torch.equal(again[k], packed[k]) for k in packed)
    assert torch.equal(
        batches.flatten(lambda rows: bare)(examples())["cu_seq_lens_q"], packed["cu_seq_lens_q"]
    )


@pytest.mark.parametrize("make", [BatchEncoding, UserDict])
def test_the_type_of_the_batch_stays(batches: Any, make: Any) -> None:
    packed = batches.flatten(lambda rows: make(pad(rows)))(examples())
    assert type(packed) is make
    assert packed["attention_mask"].tolist() == [0, 7, 10, 22, 27]


def test_a_batch_without_a_mask_is_trimmed(batches: Any) -> None:
    def collate(rows: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        batch = pad(rows)
        del batch["attention_mask"]
        return batch

    model = tiny("llama")
    before = model(**collate(examples())).loss
    packed = batches.flatten(collate)(examples())
    assert packed["input_ids"].shape == (1, 27)
    batches.attend_per_example(model)
    assert abs(model(**packed).loss.item() - before.item()) < 1e-5


def no_labels(rows: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    return {k: v for k, v in pad(rows).items() if k != "labels"}


def supervised_padding(rows: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    batch = pad(rows)
    return {**batch, "labels": batch["input_ids"].clone()}


def holes(rows: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    batch = pad(rows)
    batch["attention_mask"][2, 4] = 0
    return batch


@pytest.mark.parametrize(
    ("collate", "reason"),
    [
        (no_labels, "no labels"),
        (supervised_padding, "counts the loss on padding"),
        (holes, "holes"),
        (lambda rows: (pad(rows)["input_ids"] + 1, pad(rows)["labels"]), "no attention mask"),
        (lambda rows: torch.stack([r[:3] for r in rows]), "type Tensor"),
        (lambda rows: {**pad(rows), "attention_mask": torch.ones(4, 1, 12, 12)}, "mask of shape"),
    ],
)
def test_what_cannot_be_packed_says_so(batches: Any, collate: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        batches.flatten(collate)(examples())


def test_workers_can_pickle_it(batches: Any) -> None:
    loader = torch.utils.data.DataLoader(
        examples(), batch_size=2, collate_fn=batches.flatten(pad), num_workers=1
    )
    shapes = [b["input_ids"].shape for b in loader]
    assert shapes == [(1, 10), (1, 17)]


def test_padded_batches_still_get_their_mask(attention: Any) -> None:
    model = tiny("llama")
    padded = pad(examples())
    before = model(**padded).loss
    with pytest.warns(UserWarning, match="without boundaries"):
        after = attention.enable(model)(**padded).loss
    assert abs(after.item() - before.item()) < 1e-6


def test_rows_with_restarting_positions_but_no_boundaries_stay_apart(attention: Any, batches: Any) -> None:
    packed = batches.flatten(pad)(examples())
    bare = {k: packed[k] for k in ("input_ids", "labels", "position_ids")}
    model = tiny("llama")
    before = model(**bare, use_cache=False).loss
    attention.enable(model)
    assert abs(model(**bare, use_cache=False).loss.item() - before.item()) < 1e-6


def test_checkpointing_agrees(batches: Any) -> None:
    model = tiny("llama")
    first, second = (batches.flatten(pad)(examples(n)) for n in ((7, 3, 12, 5), (4, 9)))
    batches.attend_per_example(model)
    reference = gradients(model, model(**first).loss + model(**second).loss)
    model.gradient_checkpointing_enable()
    model.train()
    # Both forwards run before the backward recomputes the first: it must still find its own boundaries.
    assert torch.allclose(gradients(model, model(**first).loss + model(**second).loss), reference, atol=1e-6)


def test_adapters_around_the_model(batches: Any) -> None:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(tiny("llama"), LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM"))
    before = model(**pad(examples())).loss
    reference = gradients(model, before)
    assert batches.attend_per_example(model) is model
    after = model(**batches.flatten(pad)(examples())).loss
    assert abs(after.item() - before.item()) < 1e-5
    assert torch.allclose(gradients(model, after), reference, atol=1e-5)


def test_unsupported_attention_is_refused(attention: Any) -> None:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        LlamaConfig(**{**CONFIGS["llama"].to_diff_dict(), "attention_dropout": 0.1})
    )
    with pytest.raises(ValueError, match="attention_dropout"):
        attention.enable(model)
    with pytest.raises(ValueError, match="has no attention implementation"):
        attention.enable(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="attn_pdrop"):
        attention.enable(
            AutoModelForCausalLM.from_config(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=9))
        )


def flash_2(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: Any, max_seqlen_k: Any,
    dropout_p: float = 0.0, softmax_scale: Any = None, causal: bool = False, window_size: Any = (-1, -1),
) -> Any:  # fmt: skip
    """The arguments of flash-attn 2 and their meaning, computed with a mask."""
    assert causal and max_seqlen_q >= cu_seqlens_q.diff().max() and window_size[1] in (-1, 0)
    example = torch.bucketize(torch.arange(len(q)), cu_seqlens_q[1:].long(), right=True)
    distance = torch.arange(len(q))[:, None] - torch.arange(len(q))[None]
    mask = (example[:, None] == example[None]) & (distance >= 0)
    if window_size[0] not in (-1, None):
        mask &= distance <= window_size[0]
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, mask, scale=softmax_scale, enable_gqa=True)
    return out[0].transpose(0, 1)


def flash_3(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: Any, max_seqlen_k: Any,
    seqused_q: Any = None, softmax_scale: Any = None, causal: bool = False, window_size: Any = (-1, -1),
) -> Any:  # fmt: skip
    ends = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    return flash_2(q, k, v, *ends, 0.0, softmax_scale, causal, window_size), None


def flash_4(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any = None, cu_seqlens_k: Any = None, softmax_scale: Any = None,
    causal: bool = False, window_size: Any = (None, None),
) -> Any:  # fmt: skip
    ends = (cu_seqlens_q, cu_seqlens_k, len(q), len(q))
    left = -1 if window_size[0] is None else window_size[0]
    return flash_2(q, k, v, *ends, 0.0, softmax_scale, causal, (left, 0)), None


@pytest.mark.parametrize("kernel", [flash_2, flash_3, flash_4])
@pytest.mark.parametrize("window", [None, 4])
def test_every_flash_attn_is_called_as_it_wants(attention: Any, kernel: Any, window: int | None) -> None:
    torch.manual_seed(0)
    cu = torch.tensor([0, 7, 8, 20], dtype=torch.int32)
    q, k, v = torch.randn(1, 4, 20, 8), torch.randn(1, 2, 20, 8), torch.randn(1, 2, 20, 8)
    expected = attention.per_example(q, k, v, cu, 0.3, window)
    rows = (t[0].transpose(0, 1) for t in (q, k, v))
    found = attention.call_flash(kernel, *rows, cu, 0.3, window)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
