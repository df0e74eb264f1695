"""Which fix is taken, what goes together, and what is refused with which reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from apply_sites import site_in
from findings_made import PACK, diagnosis, finding, fix, observation, step

from autotune.apply.plan import Choice, build_plan
from autotune.records.findings import Diagnosis
from autotune.records.plan import Plan, PlanGroup

SCRIPT = """\
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("x")
loader = DataLoader(dataset, batch_size=4, collate_fn=collate)
arguments = TrainingArguments("out", gradient_checkpointing=True)
"""
WORKERS = step("set_keyword", at="loader", keywords={"num_workers": "4"})
SDPA = step("insert_after", at="model_create", template='{target}.set_attn_implementation("sdpa")')
INSTALL = step("install", packages=["flash-linear-attention"])


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    (tmp_path / "c.yaml").write_text("bf16: false\n")
    return path


def plan_for(
    script: Path, found: Diagnosis, *words: str, choice: Choice | None = None, **site_changes: Any
) -> Plan:
    sites = [
        site_in(
            script, "from_pretrained", kind="model_create", callee="AutoModelForCausalLM.from_pretrained"
        ),
        site_in(script, "DataLoader", kind="loader", parameters=("dataset",)),
        site_in(script, "TrainingArguments", kind="carrier", parameters=("output_dir",)),
    ]
    sites = [s.model_copy(update=site_changes) for s in sites]
    seen = observation(["python", script.name, *words], script.parent, sites)
    return build_plan(found, seen, choice=choice)


def only(plan: Plan) -> PlanGroup:
    assert len(plan.groups) == 1
    return plan.groups[0]


def test_the_first_surface_that_fits_is_taken_and_the_others_are_explained(script: Path) -> None:
    flag = fix(step("set_flag", name="--bf16", value="true"), surface="flag", title="by flag")
    config = fix(step("set_key", key="fp8", value=True), surface="config", title="by file")
    gone = fix(step("delete_statement", at="debug_flag"), title="delete")
    group = only(plan_for(script, diagnosis(finding("a/b", gone, config, fix(WORKERS), flag))))
    assert group.admissible and group.surfaces == ["call-site"]
    member = group.members[0]
    assert member.places == [f"{script}:5"] and member.sites == ["loader-0"]
    assert member.passed_over == [
        "call-site (delete): no call of the kind 'debug_flag' was seen in the project",
        "config (by file): the command names no configuration file",
    ]


def test_flag_beats_config_beats_call_site_where_they_fit(script: Path) -> None:
    flag = fix(step("set_flag", name="--bf16", value="true"), surface="flag")
    config = fix(step("set_key", key="bf16", value=True), surface="config")
    found = diagnosis(finding("a/b", flag, config))
    assert only(plan_for(script, found)).surfaces == ["flag"]
    found = diagnosis(finding("a/b", config, flag))
    assert only(plan_for(script, found, "--config", "c.yaml")).surfaces == ["config"]
    overridden = only(plan_for(script, found, "--config", "c.yaml", "--bf16", "false"))
    assert overridden.surfaces == ["flag"]
    assert "the command line overrides 'bf16'" in overridden.members[0].passed_over[0]


def test_a_group_is_judged_on_the_state_after_its_earlier_members(script: Path) -> None:
    kernels = finding(
        "kernels/linear-attention-fallback",
        fix(INSTALL, surface="package", predicts={"kernels.linear_attention": "fast"}),
        together_with=["batching/padding-waste"],
        ratio=4.0,
    )
    packing = finding("batching/padding-waste", PACK, after=[kernels.rule], parity="token-exact", ratio=1.5)
    facts = {
        "packing__verdict": "leaks",
        "packing__verdict_with_fast_kernels": "isolated",
        "kernels__linear_attention": "fallback",
    }
    alone = only(plan_for(script, diagnosis(packing, **facts)))
    assert not alone.admissible
    assert (
        'packing.verdict == "isolated" is not met' in alone.reason
        and "packing.verdict is leaks" in alone.reason
    )
    both = only(plan_for(script, diagnosis(packing, kernels, **facts)))
    assert both.admissible and both.rules == [kernels.rule, packing.rule]
    assert both.parity == "token-exact" and both.packages == ["flash-linear-attention"]
    assert both.predicted["packing.verdict"].value == "isolated"
    assert both.ratio_upper is not None and both.ratio_upper >= 6.0
    convolution = {**facts, "kernels__causal_conv": "fallback"}
    half = only(plan_for(script, diagnosis(packing, kernels, **convolution)))
    assert half.rules == [kernels.rule], "a convolution on the fallback still leaks"
    leaky = only(
        plan_for(
            script, diagnosis(packing, kernels, **{**facts, "packing__verdict_with_fast_kernels": "leaks"})
        )
    )
    assert leaky.rules == [kernels.rule]


def test_packing_without_a_condition_of_its_own_still_needs_the_verdict(script: Path) -> None:
    bare = PACK.model_copy(update={"requires": []})
    group = only(plan_for(script, diagnosis(finding("a/b", bare))))
    assert "packing is not known to keep examples apart here (packing.verdict is None)" in group.reason
    keyword = fix(step("set_keyword", at="carrier", keywords={"packing": "True"}))
    assert not only(
        plan_for(script, diagnosis(finding("a/b", keyword), packing__verdict="unknown"))
    ).admissible
    assert only(plan_for(script, diagnosis(finding("a/b", keyword), packing__verdict="isolated"))).admissible


def test_contradicting_rules_are_refused_with_both_names(script: Path) -> None:
    one = finding("data/one", fix(WORKERS), ratio=2.0)
    two = finding("data/two", fix(step("set_keyword", at="loader", keywords={"num_workers": "8"})), ratio=1.5)
    plan = plan_for(script, diagnosis(two, one))
    assert [g.admissible for g in plan.groups] == [True, False]
    assert plan.groups[1].reason == "data/one sets 'num_workers' to 4 and data/two sets it to 8"
    assert plan.conflicts[0].rules == ["data/one", "data/two"]


def test_rules_that_exclude_each_other(script: Path) -> None:
    one = finding("memory/checkpointing-unneeded", fix(WORKERS), excludes=["memory/checkpointing-needed"])
    two = finding("memory/checkpointing-needed", fix(SDPA))
    plan = plan_for(script, diagnosis(one, two))
    assert only(plan).rules == [one.rule]
    assert plan.advice[0].rule == two.rule and "exclude each other" in plan.advice[0].reasons[0]


def test_a_rival_has_its_turn_where_nothing_can_be_done_about_the_other(script: Path) -> None:
    advice = fix(surface="call-site", applicability="advice")
    better = finding("batching/padding-waste", fix(WORKERS), ratio=2.0)
    plain = finding("batching/padded-to-fixed-length", fix(SDPA), ratio=1.5, excludes=[better.rule])
    assert only(plan_for(script, diagnosis(better, plain))).rules == [better.rule]
    bare = better.model_copy(update={"fixes": [advice]})
    for plan in (
        plan_for(script, diagnosis(bare, plain)),
        plan_for(script, diagnosis(better, plain), choice=Choice(exclude=(better.rule,))),
    ):
        assert [g.rules for g in plan.groups if g.admissible] == [[plain.rule]]
    tried = plan_for(script, diagnosis(better, plain), choice=Choice(dropped=(better.rule,)))
    assert plain.rule in [g.id for g in tried.groups if g.admissible]
    eight = fix(step("set_keyword", at="loader", keywords={"num_workers": "8"}))
    alike = plain.model_copy(update={"fixes": [eight]})  # both change the same argument
    tried = plan_for(script, diagnosis(better, alike), choice=Choice(dropped=(better.rule,)))
    assert alike.rule in [g.id for g in tried.groups if g.admissible]


def test_what_a_rival_excluded_goes_with_the_others_where_nothing_comes_of_the_rival(script: Path) -> None:
    """Packing needs the fused kernels, also where a rival that wants a review was listed before it."""
    facts = {
        "kernels__linear_attention": "fallback",
        "packing__verdict": "leaks",
        "packing__verdict_with_fast_kernels": "isolated",
    }
    install = fix(INSTALL, surface="package", predicts={"kernels.linear_attention": "fast"})
    kernels = finding("kernels/linear-attention-fallback", install, ratio=3.0)
    packing = finding(
        "batching/padding-waste", PACK, ratio=2.0, after=[kernels.rule], together_with=[kernels.rule]
    )
    review = fix(WORKERS, applicability="review")
    churn = "batching/shape-churn"
    rival = finding(churn, review, ratio=2.5, excludes=[packing.rule], together_with=[kernels.rule])
    plan = plan_for(script, diagnosis(kernels, rival, packing, **facts))
    assert [g.rules for g in plan.groups if g.admissible] == [[kernels.rule, packing.rule]]
    assert [a.rule for a in plan.advice] == [rival.rule] and "--unsafe" in plan.advice[0].reasons[0]
    bold = plan_for(script, diagnosis(kernels, rival, packing, **facts), choice=Choice(unsafe=True))
    assert [g.rules for g in bold.groups if g.admissible] == [[kernels.rule, rival.rule]]


def test_a_member_that_a_later_one_makes_right_is_looked_at_once_more(script: Path) -> None:
    """Two H200 with transformers 5.16.1: filling rows waits for both kernels, but was listed between them."""
    facts = {
        "kernels__linear_attention": "fallback",
        "kernels__causal_conv": "fallback",
        "packing__verdict": "leaks",
        "packing__verdict_with_fast_kernels": "isolated",
    }
    install = fix(INSTALL, surface="package", predicts={"kernels.linear_attention": "fast"})
    short = fix(
        step("install", packages=["causal-conv1d"]),
        surface="package",
        predicts={"kernels.causal_conv": "fast"},
    )
    kernels = finding("kernels/linear-attention-fallback", install, ratio=5.7)
    both = {"after": [kernels.rule], "together_with": [kernels.rule]}
    rows = PACK.model_copy(update={"applicability": "review", "parity": "statistical"})
    filled = finding("batching/budget-unfilled", rows, ratio=1.7, **both)
    conv = finding("kernels/causal-conv-fallback", short, ratio=1.2, **both)
    group = only(
        plan_for(script, diagnosis(kernels, filled, conv, **facts), choice=Choice(unsafe=True, wheels=True))
    )
    assert group.rules == [kernels.rule, conv.rule, filled.rule] and group.parity == "statistical"
    assert group.ratio_upper is not None and group.ratio_upper > 9
    waits = plan_for(script, diagnosis(kernels, filled, conv, **facts), choice=Choice(wheels=True))
    assert only(waits).rules == [kernels.rule, conv.rule]
    assert [advice.rule for advice in waits.advice] == [filled.rule]  # once, though looked at twice


def test_of_three_rivals_what_the_idle_one_excluded_still_excludes_the_third(script: Path) -> None:
    nothing = fix(surface="call-site", applicability="advice")
    padding = "batching/padding-waste"
    idle = finding("batching/budget-unfilled", nothing, ratio=3.0, excludes=[padding])
    better = finding(padding, fix(WORKERS), ratio=2.0)
    third = finding("batching/shape-churn", fix(SDPA), ratio=1.5, excludes=[padding])
    plan = plan_for(script, diagnosis(idle, better, third), choice=Choice(unsafe=True))
    assert [g.rules for g in plan.groups if g.admissible] == [[better.rule]]
    assert sorted(advice.rule for advice in plan.advice) == [idle.rule, third.rule]


def test_a_change_that_spoilt_a_trial_is_left_out_of_its_group(script: Path) -> None:
    one = finding("a/one", fix(SDPA), ratio=2.0)
    two = finding("a/two", fix(WORKERS), ratio=1.2, together_with=[one.rule])
    plan = plan_for(script, diagnosis(one, two), choice=Choice(without=((two.rule, "it broke training"),)))
    assert only(plan).rules == [one.rule]
    assert plan.advice[0].reasons == ["tried in this run: it broke training"]


def test_order_follows_after_and_then_the_bound(script: Path) -> None:
    late = finding("a/late", fix(WORKERS), ratio=5.0, after=["a/early"])
    early = finding("a/early", fix(SDPA), ratio=1.1)
    plan = plan_for(script, diagnosis(late, early))
    assert [g.id for g in plan.groups] == ["a/early", "a/late"]
    free = late.model_copy(update={"after": []})
    assert [g.id for g in plan_for(script, diagnosis(early, free)).groups] == ["a/late", "a/early"]


def test_of_two_that_exclude_each_other_the_larger_bound_where_a_person_asks_for_all(script: Path) -> None:
    safe = finding("batching/padding-waste", fix(WORKERS), ratio=1.3)
    review = fix(SDPA).model_copy(update={"applicability": "review"})
    bold = finding("batching/budget-unfilled", review, ratio=1.8, excludes=[safe.rule])
    found = diagnosis(safe, bold)
    assert [g.rules for g in plan_for(script, found).groups] == [[safe.rule]]
    assert [g.rules for g in plan_for(script, found, choice=Choice(unsafe=True)).groups] == [[bold.rule]]
    assert [g.rules for g in plan_for(script, diagnosis(safe, bold.model_copy(update={"gain": safe.gain})),
            choice=Choice(unsafe=True)).groups] == [[safe.rule]]  # fmt: skip


def test_a_third_that_both_exclude_stays_out_where_the_larger_bound_takes_the_place(script: Path) -> None:
    """The better one stands against the third as well: what it displaced brings the third not back."""
    first = finding("batching/padding-waste", fix(WORKERS), ratio=1.3)
    third = finding("batching/length-grouping", fix(WORKERS), ratio=1.1, excludes=[first.rule])
    review = fix(SDPA).model_copy(update={"applicability": "review"})
    bold = finding("batching/budget-unfilled", review, ratio=1.8, excludes=[first.rule, third.rule])
    plan = plan_for(script, diagnosis(first, third, bold), choice=Choice(unsafe=True))
    assert [g.rules for g in plan.groups] == [[bold.rule]]


def test_select_exclude_review(script: Path) -> None:
    found = diagnosis(
        finding("data/a", fix(WORKERS)),
        finding("attention/b", fix(SDPA, applicability="review")),
        finding("sync/c", fix(surface="call-site", applicability="advice")),
    )
    plan = plan_for(script, found)
    assert [(g.id, g.admissible) for g in plan.groups] == [("data/a", True), ("attention/b", False)]
    assert "--unsafe" in plan.groups[1].reason
    reviewed = plan_for(script, found, choice=Choice(unsafe=True))
    assert [g.admissible for g in reviewed.groups] == [True, True]
    assert only(plan_for(script, found, choice=Choice(select=("data/*",)))).id == "data/a"
    assert all(g.id != "data/a" for g in plan_for(script, found, choice=Choice(exclude=("data/a",))).groups)


def test_a_symptom_waits_for_its_cause(script: Path) -> None:
    cause = finding("a/cause", fix(WORKERS))
    symptom = finding("a/symptom", fix(SDPA), explained_by="a/cause")
    plan = plan_for(script, diagnosis(symptom, cause))
    assert only(plan).id == "a/cause"
    assert plan.advice[0].reasons == ["a symptom of a/cause, which comes first"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"file_sha256": "0"}, "has changed since it was watched"),
        ({"editable": False}, "is made by library code (reached from "),
        ({"kind": "save"}, "no call of the kind 'loader' was seen"),
        ({"span": None}, "needs a person's review"),
    ],
)
def test_sites_that_cannot_be_edited(script: Path, changes: dict[str, Any], reason: str) -> None:
    group = only(plan_for(script, diagnosis(finding("a/b", fix(WORKERS))), **changes))
    assert not group.admissible and reason in group.reason


def test_what_is_there_already_is_not_planned(script: Path) -> None:
    there = fix(step("set_keyword", at="carrier", keywords={"gradient_checkpointing": "True"}))
    assert "has this change already" in only(plan_for(script, diagnosis(finding("a/b", there)))).reason


def test_traces_alone_give_advice() -> None:
    plan = build_plan(diagnosis(finding("a/b", fix(WORKERS))), None)
    assert plan.groups == [] and "no job" in plan.advice[0].reasons[0]
