"""The output layer at labelled positions alone: the same loss, gradients and logits, with fewer products."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from shim_modules import load_shim
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import CohereConfig, Gemma2Config, GPT2Config, LlamaConfig
from transformers.models.auto import AutoModel, AutoModelForCausalLM

SMALL: dict[str, Any] = {
    "vocab_size": 512, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
CONFIGS = {
    "llama": LlamaConfig(**SMALL),
    "gemma2": Gemma2Config(**SMALL, head_dim=8, final_logit_softcapping=30.0),  # soft-capped logits
    "cohere": CohereConfig(**SMALL, logit_scale=0.5),  # scaled ones
    "gpt2": GPT2Config(
        vocab_size=512, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
    ),
}


@pytest.fixture
def shim() -> Any:
    return load_shim("labelled_rows")


def pair(shim: Any, name: str = "llama") -> tuple[Any, Any]:
    """A model and its prepared twin, training."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        copy.deepcopy(CONFIGS[name]), attn_implementation="eager"
    ).train()
    twin = copy.deepcopy(model)
    assert shim.enable(twin) is twin
    return model, twin


def batch() -> dict[str, torch.Tensor]:
    """Four rows of twelve, most of them a prompt."""
    ids = torch.randint(3, 512, (4, 12), generator=torch.Generator().manual_seed(1))
    labels = ids.clone()
    labels[:, :8] = -100
    labels[2] = -100
    return {"input_ids": ids, "labels": labels}


def gradients(model: Any, loss: torch.Tensor) -> torch.Tensor:
    model.zero_grad()
    loss.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


class HeadWork(TorchDispatchMode):
    """Multiplications and additions of products that have the vocabulary as a dimension."""

    total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
            (rows, inner), (_, columns) = args[-2].shape, args[-1].shape
            self.total += 2 * rows * inner * columns * (512 in (rows, inner, columns))
        return func(*args, **(kwargs or {}))


def assert_same(model: Any, twin: Any, step: Callable[[Any], torch.Tensor], most_work: float = 1 / 3) -> None:
    """Loss and gradients of a step, and less work of the output layer in the twin."""
    with HeadWork() as before:
        loss = step(model)
        expected = gradients(model, loss)
    with HeadWork() as after:
        changed = step(twin)
        found = gradients(twin, changed)
    assert type(changed) is torch.Tensor and changed.shape == loss.shape
    assert torch.allclose(changed, loss, rtol=1e-6, atol=1e-7)
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-7)
    assert expected.abs().max() > 0
    assert 0 < after.total < most_work * before.total  # 12 of 48 positions have a label


@pytest.mark.parametrize("name", CONFIGS)
def test_a_model_that_computes_its_own_loss(shim: Any, name: str) -> None:
    model, twin = pair(shim, name)
    assert_same(model, twin, lambda m: m(**batch()).loss)
    assert_same(model, twin, lambda m: m(**batch(), num_items_in_batch=7).loss)
    assert_same(model, twin, lambda m: m(**batch(), return_dict=False)[0])
    out, expected = twin(**batch()), model(**batch())
    assert type(out.logits) is shim.Logits and out.logits.whole is None
    assert isinstance(out.logits, torch.Tensor) and out.logits.shape == expected.logits.shape
    assert out.logits.dtype == expected.logits.dtype and out.logits.requires_grad
    assert torch.allclose(out.logits, expected.logits, atol=1e-6)


LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "mean": lambda logits, targets: F.cross_entropy(logits, targets),
    "module": lambda logits, targets: torch.nn.CrossEntropyLoss()(logits.float(), targets),
    "sum": lambda logits, targets: F.cross_entropy(logits, targets, reduction="sum") / 9,
    "none": lambda logits, targets: F.cross_entropy(logits, targets, reduction="none").mul(0.5).mean(),
    "smoothed": lambda logits, targets: F.cross_entropy(logits, targets, label_smoothing=0.1),
    "weighted": lambda logits, targets: F.cross_entropy(logits, targets, torch.linspace(0.5, 2, 512)),
    "another label": lambda logits, targets: F.cross_entropy(
        logits, targets.masked_fill(targets == -100, 0), ignore_index=0
    ),
    "two functions": lambda logits, targets: F.nll_loss(F.log_softmax(logits / 0.7, dim=-1), targets),
    "a dimension by its number": lambda logits, targets: F.nll_loss(logits.log_softmax(1), targets),
    "chosen rows": lambda logits, targets: F.cross_entropy(logits[targets != -100], targets[targets != -100]),
}  # fmt: skip


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("by_module", [False, True])
def test_a_loss_of_the_jobs_own(shim: Any, kind: str, by_module: bool) -> None:
    def step(m: Any) -> Any:
        hidden = m.model(input_ids=batch()["input_ids"]).last_hidden_state
        targets = batch()["labels"][:, 1:].reshape(-1)
        if by_module:
            logits = m.lm_head(hidden)[..., :-1, :].contiguous().view(-1, 512)
        else:
            logits = (hidden[:, :-1].flatten(0, 1) @ m.lm_head.weight.T).float()
        return LOSSES[kind](logits, targets)

    assert_same(*pair(shim), step)


def test_half_precision_regions_count_as_they_were_at_the_product(shim: Any) -> None:
    model, twin = pair(shim)

    def step(m: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = m.lm_head(m.model(input_ids=batch()["input_ids"]).last_hidden_state)
        assert logits.dtype == torch.bfloat16
        return F.cross_entropy(logits[:, :-1].reshape(-1, 512).float(), batch()["labels"][:, 1:].reshape(-1))

    loss, changed = step(model), step(twin)
    assert torch.allclose(loss, changed, rtol=1e-5)
    assert torch.allclose(gradients(model, loss), gradients(twin, changed), atol=1e-3)


def test_everything_else_sees_all_logits_and_their_gradients(shim: Any) -> None:
    def step(m: Any) -> Any:
        out = m(**batch())
        spread = torch.logsumexp(out.logits, -1).square().mean()
        with torch.no_grad():
            right = (out.logits[:, :-1].argmax(-1) == batch()["labels"][:, 1:]).float().mean()
        return out.loss + 0.1 * spread + right

    model, twin = pair(shim)
    loss, changed = step(model), step(twin)
    assert torch.allclose(loss, changed)
    assert torch.allclose(gradients(model, loss), gradients(twin, changed), rtol=1e-4, atol=1e-7)


def test_logits_looked_at_without_gradients_first_keep_their_graph(shim: Any) -> None:
    model, twin = pair(shim)
    for look in (torch.no_grad, torch.inference_mode):
        out = twin(**batch())
        with look():
            out.logits.max()
        assert torch.allclose(
            gradients(twin, out.logits.mean()), gradients(model, model(**batch()).logits.mean())
        )


def test_logits_that_are_read_after_the_update_are_those_from_before(shim: Any) -> None:
    model, twin = pair(shim)
    expected = model(**batch()).logits.detach()
    optimizer = torch.optim.AdamW(twin.parameters(), lr=0.1)
    out = twin(**batch())
    out.loss.backward()
    optimizer.step()
    assert torch.allclose(out.logits, expected, atol=1e-6)
    assert not torch.allclose(twin(**batch()).logits, expected, atol=1e-2)


def test_weights_changed_by_hand_are_an_error_and_no_other_logits(shim: Any) -> None:
    _, twin = pair(shim)
    out = twin(**batch())
    with torch.no_grad():
        twin.lm_head.weight.mul_(2)
    with pytest.raises(
        RuntimeError, match="the output layer were changed before all of the logits were computed"
    ):
        out.logits.sum()


def test_logits_changed_in_place(shim: Any) -> None:
    def step(m: Any) -> Any:
        logits = m.lm_head(m.model(input_ids=batch()["input_ids"]).last_hidden_state)
        logits[..., :100] = -1e4
        logits /= 2.0
        return F.cross_entropy(
            logits[:, :-1].reshape(-1, 512), batch()["labels"][:, 1:].reshape(-1).clamp(100)
        )

    model, twin = pair(shim)
    loss, changed = step(model), step(twin)
    assert torch.equal(loss, changed) and torch.allclose(gradients(model, loss), gradients(twin, changed))


def test_without_a_label_the_loss_is_what_it_was(shim: Any) -> None:
    model, twin = pair(shim)
    nothing = {**batch(), "labels": torch.full((4, 12), -100)}
    assert model(**nothing).loss.isnan() and twin(**nothing).loss.isnan()
    assert twin(**nothing, num_items_in_batch=3).loss == 0


def test_evaluation_and_generation_are_left_alone(shim: Any) -> None:
    model, twin = pair(shim)
    with torch.no_grad():
        assert type(twin(**batch()).logits) is torch.Tensor
    twin.eval(), model.eval()
    assert type(twin(**batch()).logits) is torch.Tensor
    ids = batch()["input_ids"]
    given = {"max_new_tokens": 4, "do_sample": False}
    assert torch.equal(twin.generate(ids, **given), model.generate(ids, **given))


def test_a_prepared_model_can_be_saved_whole_and_copied(shim: Any) -> None:
    model, twin = pair(shim)
    file = io.BytesIO()
    torch.save(twin, file)
    file.seek(0)
    for again in (torch.load(file, weights_only=False), copy.deepcopy(twin)):
        assert type(again(**batch()).logits).__name__ == "Logits"
        assert torch.allclose(again(**batch()).loss, model(**batch()).loss)


def test_adapters_on_the_output_layer_see_all_positions(shim: Any) -> None:
    peft = pytest.importorskip("peft")
    model, twin = pair(shim)
    config = peft.LoraConfig(r=4, target_modules=["lm_head", "q_proj"], init_lora_weights=False)
    torch.manual_seed(1)
    model = peft.get_peft_model(model, config)
    torch.manual_seed(1)
    twin = peft.get_peft_model(twin, config)
    loss, changed = model(**batch()).loss, twin(**batch()).loss
    assert torch.allclose(loss, changed)
    assert torch.allclose(gradients(model, loss), gradients(twin, changed), rtol=1e-4, atol=1e-7)


def test_a_model_without_an_output_layer_is_refused(shim: Any) -> None:
    with pytest.raises(ValueError, match="LlamaModel has no output layer"):
        shim.enable(AutoModel.from_config(copy.deepcopy(CONFIGS["llama"])))
    with pytest.raises(ValueError, match="Linear has no output layer"):
        shim.enable(torch.nn.Linear(2, 2))


@pytest.mark.job
def test_a_trainer_learns_the_same(shim: Any, tmp_path: Path) -> None:
    """With its own loss (labels counted over the accumulated batches), clipping, and adapters beside it."""
    from transformers import Trainer, TrainingArguments

    rows = [{name: value[n % 4] for name, value in batch().items()} for n in range(32)]
    losses = []
    for model in pair(shim):
        arguments = TrainingArguments(
            output_dir=str(tmp_path), max_steps=6, per_device_train_batch_size=4, logging_steps=1,
            gradient_accumulation_steps=2, report_to=[], use_cpu=True, learning_rate=1e-2, seed=1,
            save_strategy="no", disable_tqdm=True,
        )  # fmt: skip
        with HeadWork() as work:
            trainer = Trainer(model=model, args=arguments, train_dataset=rows)
            trainer.train()
        losses.append([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
        losses[-1].append(work.total)
    (*before, all_rows), (*after, some_rows) = losses
    assert len(before) == 6 and before[-1] < before[0] - 0.5
    assert after == pytest.approx(before, rel=1e-4)
    assert some_rows < all_rows / 2


@pytest.mark.job
@pytest.mark.parametrize("unused", [False, True])
def test_ranks_exchange_the_same_gradients(shim: Any, tmp_path: Path, unused: bool) -> None:
    from torch.nn.parallel import DistributedDataParallel

    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        model, twin = (DistributedDataParallel(m, find_unused_parameters=unused) for m in pair(shim))
        most_work = 0.6 if unused else 1 / 3  # looking for unused parameters it asks for the logits' graph
        for _ in range(2):
            assert_same(model, twin, lambda m: m(**batch()).loss, most_work)
    finally:
        torch.distributed.destroy_process_group()
