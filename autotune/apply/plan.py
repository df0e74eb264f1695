"""From a diagnosis to plan groups: which fix of each finding fits this job, what goes together, and when.

A member is judged on the state predicted after the earlier members of its group, so a fix that would be wrong
today (packing on layers that leak) is admitted behind the one that makes it right (the kernels).
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.apply.locate import EditRefused
from autotune.apply.predict import State
from autotune.apply.target import Target, target_of
from autotune.apply.workbench import ConflictError, work_out
from autotune.facts.recipes import cannot_build
from autotune.records.findings import Diagnosis, Finding, Fix
from autotune.records.observation import Observation
from autotune.records.plan import Advice, Conflict, Member, PatchedJob, Plan, PlanGroup
from autotune.records.terms import Applicability, Tier

_TIERS: tuple[Tier, ...] = ("bitwise", "numeric", "token-exact", "statistical")
_LEVELS: tuple[Applicability, ...] = ("safe", "review", "advice")


@dataclass(frozen=True)
class Choice:
    """What the user lets through: rule ids or patterns such as "kernels/*"."""

    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    unsafe: bool = False  # also changes a person should review
    packages: bool = True
    wheels: bool = False  # a folder of wheels is given: nothing has to be compiled
    failed: tuple[tuple[str, str], ...] = ()  # packages that could not be had in this run, with the reason
    without: tuple[tuple[str, str], ...] = ()  # rules that spoilt a trial of others in this run, with how
    dropped: tuple[str, ...] = ()  # rules whose change was tried in this run and not kept

    def reason_against(self, rule: str) -> str:
        """Why the choice leaves the rule out; empty when it does not."""
        if self.select and not any(fnmatch.fnmatchcase(rule, p) for p in self.select):
            return "not selected"
        if any(fnmatch.fnmatchcase(rule, p) for p in self.exclude):
            return "excluded"
        return next((f"tried in this run: {how}" for spoiler, how in self.without if spoiler == rule), "")


def build_plan(
    diagnosis: Diagnosis,
    observation: Observation | None,
    *,
    templates_dir: Path | None = None,
    choice: Choice | None = None,
    base: PatchedJob | None = None,
) -> Plan:
    """Plan groups, best first. Nothing is written; every admitted edit was made once in memory."""
    if observation is None:
        reason = "these are saved traces: there is no job whose script could be edited"
        advice = [Advice(rule=f.rule, title=f.title, reasons=[reason]) for f in diagnosis.findings]
        return Plan(run=diagnosis.run, groups=[], advice=advice)
    planner = _Planner(diagnosis, target_of(observation, base), templates_dir, choice or Choice())
    return planner.plan()


class _Planner:
    def __init__(
        self, diagnosis: Diagnosis, target: Target, templates_dir: Path | None, choice: Choice
    ) -> None:
        self.diagnosis = diagnosis
        self.target = target
        self.templates_dir = templates_dir
        self.choice = choice
        self.advice: list[Advice] = []
        self.conflicts: list[Conflict] = []

    def plan(self) -> Plan:
        idle: set[str] = set()  # rivals of other findings that nothing comes of
        while True:
            chosen, excluded = self._without_excluded(idle)
            made = self._groups(chosen)
            changed = self._changed(made)
            fresh = {rival.rule for _, rival in excluded if rival.rule not in changed}
            if not fresh:
                break
            idle |= fresh  # what they excluded takes part in their place
            self.advice = [advice for advice in self.advice if advice.rule in idle]
        for finding, rival in excluded:
            reason = f"{rival.rule} and {finding.rule} exclude each other"
            self.conflicts.append(Conflict(rules=[rival.rule, finding.rule], reason=reason))
            self._advise(finding, [reason])
        groups = self._ordered([group for group in made if group is not None])
        return Plan(
            run=self.diagnosis.run,
            groups=self._against_each_other(groups),
            conflicts=self.conflicts,
            advice=self.advice,
        )

    def _groups(self, findings: Sequence[Finding]) -> list[PlanGroup | None]:
        return [self._group(together) for together in _components([f for f in findings if self._is_open(f)])]

    def _changed(self, groups: Sequence[PlanGroup | None]) -> set[str]:
        """Rules whose change can be made and was not tried before."""
        made = {member.rule for group in groups if group and group.admissible for member in group.members}
        return made - {*self.choice.dropped}

    def _is_open(self, finding: Finding) -> bool:
        against = self.choice.reason_against(finding.rule)
        if not against and finding.explained_by is not None:
            against = f"a symptom of {finding.explained_by}, which comes first"
        if against:
            self._advise(finding, [against])
        return not against

    def _without_excluded(self, idle: Collection[str]) -> tuple[list[Finding], list[tuple[Finding, Finding]]]:
        """Findings of which no two exclude each other, the more important one of two; the others with their
        rivals. Those of `idle` are left out: nothing can be done about them.

        Where changes for review are asked for, too, the one with the larger bound counts more.
        """
        kept: list[Finding] = []
        others: list[tuple[Finding, Finding]] = []
        given = [finding for finding in self.diagnosis.findings if finding.rule not in idle]
        findings = list(given)
        for finding in given if self.choice.unsafe else ():
            before = findings[: findings.index(finding)]
            rivals = [other for other in before if _exclude_each_other(finding, other)]
            if rivals and all(_gains_more(finding, rival) for rival in rivals):
                findings.remove(finding)
                findings.insert(findings.index(rivals[0]), finding)
        for finding in findings:
            rival = next((k for k in kept if _exclude_each_other(finding, k)), None)
            if rival is None:
                kept.append(finding)
            else:
                others.append((finding, rival))
        return kept, others

    def _advise(self, finding: Finding, reasons: list[str]) -> None:
        self.advice.append(Advice(rule=finding.rule, title=finding.title, reasons=reasons))

    def _group(self, findings: list[Finding]) -> PlanGroup | None:
        state = State(self.diagnosis.facts)
        members: list[Member] = []
        gains: list[float] = []
        refusals: dict[str, list[str]] = {}
        waiting, before = _by_after(findings), -1
        while waiting and len(members) > before:  # what a later member makes right is looked at once more
            before, refusals = len(members), {}
            for finding in waiting:
                member, reasons = self._member(finding, members, state)
                if member is None:
                    refusals[finding.rule] = reasons
                    continue
                members.append(member)
                if finding.gain.ratio_upper is not None:
                    gains.append(finding.gain.ratio_upper)
            waiting = [finding for finding in waiting if finding.rule in refusals]
        for finding in waiting:
            self._advise(finding, refusals[finding.rule])
        if not members:
            if not any(fix.steps for finding in findings for fix in finding.fixes):
                return None  # nothing but advice: no group to speak of
            rules = [f.rule for f in findings]
            alone = len(refusals) == 1  # the group has its name
            reason = "; ".join(
                (f"{rule}: " if not alone else "") + " | ".join(why) for rule, why in refusals.items()
            )
            return PlanGroup(id="+".join(rules), rules=rules, members=[], admissible=False, reason=reason)
        rules = [member.rule for member in members]
        return PlanGroup(
            id="+".join(rules),
            rules=rules,
            members=members,
            ratio_upper=_together(gains),
            admissible=True,
            applicability=max((m.applicability for m in members), key=_LEVELS.index),
            parity=widest(m.parity for m in members),
            after=[rule for f in findings for rule in f.after if rule not in rules],
            predicted=state.changed(),
            packages=list(
                dict.fromkeys(
                    str(p)
                    for m in members
                    for s in m.steps
                    if s.action == "install"
                    for p in _texts(s.arguments.get("packages"))
                )
            ),
        )

    def _member(
        self, finding: Finding, before: list[Member], state: State
    ) -> tuple[Member | None, list[str]]:
        """The first fix that fits, with the reasons against the earlier ones."""
        reasons: list[str] = []
        for fix in finding.fixes:
            why, member = self._try(finding, fix, before, state, reasons)
            if member is not None:
                state.apply(fix)
                return member, reasons
            reasons.append(f"{fix.surface} ({fix.title}): {why}")
        return None, reasons or ["the rule offers no change for this job"]

    def _try(
        self, finding: Finding, fix: Fix, before: list[Member], state: State, passed: list[str]
    ) -> tuple[str, Member | None]:
        if not fix.steps or fix.applicability == "advice":
            return "advice for a person", None
        if fix.applicability == "review" and not self.choice.unsafe:
            return "needs a person's review (--unsafe takes it)", None
        if fix.surface == "package" and not self.choice.packages:
            return "packages are not to be installed", None
        wanted = [
            str(p) for s in fix.steps if s.action == "install" for p in _texts(s.arguments.get("packages"))
        ]
        for package, reason in self.choice.failed:
            if package in wanted:
                return reason, None
        if wanted and not self.choice.wheels and (why := cannot_build(wanted)):
            return why, None
        against = state.reason_against(fix)
        if against:
            return against, None
        member = Member(
            rule=finding.rule,
            title=finding.title,
            fix=fix.title,
            surface=fix.surface,
            applicability=fix.applicability,
            steps=fix.steps,
            sites=self._narrowed(finding),
            passed_over=list(passed),
            parity=fix.parity or finding.parity,
            caution=finding.caution,
        )
        try:
            changes = work_out([*before, member], self.target, self.templates_dir)
        except EditRefused as fault:
            return str(fault), None
        if not changes.differ(self.target):
            return "the job has this change already", None
        sites = changes.places.get(finding.rule, [])
        if any(site.span is None for site in sites) and not self.choice.unsafe:
            return "the interpreter gives no columns, so the place needs a person's review (--unsafe)", None
        update = {
            "sites": [site.id for site in sites],
            "places": [f"{site.file}:{site.line}" for site in sites],
        }
        return "", member.model_copy(update=update)

    def _narrowed(self, finding: Finding) -> list[str]:
        """Ids of the recorded sites that the finding itself points at."""
        lines = {(place.file, place.line) for place in finding.sites}
        seen = zip(self.target.observation.sites, self.target.sites, strict=True)
        return [s.id for raw, s in seen if (raw.file, raw.line) in lines or (s.file, s.line) in lines]

    def _ordered(self, groups: list[PlanGroup]) -> list[PlanGroup]:
        """Groups behind those their rules come after; otherwise the larger bound first."""
        waiting = sorted(groups, key=lambda g: (not g.admissible, -(g.ratio_upper or 1.0)))
        out: list[PlanGroup] = []
        while waiting:
            pending = {rule for g in waiting for rule in g.rules}
            ready = [g for g in waiting if not (set(g.after) & (pending - set(g.rules)))]
            chosen = (ready or waiting)[0]
            waiting.remove(chosen)
            out.append(chosen)
        return out

    def _against_each_other(self, groups: list[PlanGroup]) -> list[PlanGroup]:
        """Refuse a group whose edits contradict those of a better one."""
        out: list[PlanGroup] = []
        members: list[Member] = []
        for group in groups:
            if group.admissible:
                try:
                    work_out([*members, *group.members], self.target, self.templates_dir)
                except ConflictError as clash:
                    self.conflicts.append(Conflict(rules=clash.rules, reason=str(clash)))
                    group = group.model_copy(update={"admissible": False, "reason": str(clash)})
                except EditRefused as fault:
                    # It fits alone, not on top of the others: it can be tried once those are kept or dropped.
                    group = group.model_copy(update={"after": [*group.after, *(m.rule for m in members)]})
                    self.conflicts.append(Conflict(rules=group.rules, reason=str(fault)))
                else:
                    if not set(group.rules) <= set(self.choice.dropped):  # gone: in nobody's way
                        members += group.members
            out.append(group)
        return out


def _exclude_each_other(one: Finding, other: Finding) -> bool:
    return one.rule in other.excludes or other.rule in one.excludes


def _gains_more(finding: Finding, rival: Finding) -> bool:
    """Both bounds are known, and the finding's is the larger one."""
    bound, other = finding.gain.ratio_upper, rival.gain.ratio_upper
    return bound is not None and other is not None and bound > other


def _components(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Findings grouped by `together_with`, in the diagnosis' order."""
    rules = {f.rule: f for f in findings}
    linked: dict[str, set[str]] = {f.rule: {r for r in f.together_with if r in rules} for f in findings}
    for rule, others in list(linked.items()):
        for other in others:
            linked[other].add(rule)
    done: set[str] = set()
    out = []
    for finding in findings:
        if finding.rule in done:
            continue
        found, frontier = {finding.rule}, [finding.rule]
        while frontier:
            fresh = linked[frontier.pop()] - found
            found |= fresh
            frontier += fresh
        done |= found
        out.append([f for f in findings if f.rule in found])
    return out


def _by_after(findings: list[Finding]) -> list[Finding]:
    """Findings of one group in the order they build on each other."""
    waiting, out = list(findings), []
    while waiting:
        pending = {f.rule for f in waiting}
        ready = [f for f in waiting if not (set(f.after) & (pending - {f.rule}))]
        out.append((ready or waiting)[0])
        waiting.remove(out[-1])
    return out


def _together(gains: list[float]) -> float | None:
    """Bound of several gains: the saved shares of the step add up, unless they overlap beyond it."""
    if not gains:
        return None
    product = 1.0
    for gain in gains:
        product *= gain
    saved = sum(1 - 1 / gain for gain in gains if gain > 0)
    return max(product, 1 / (1 - saved)) if saved < 0.9 else product


def widest(tiers: Iterable[Tier | None]) -> Tier | None:
    """The tier that allows what every one of some changes must be allowed; None when none is named."""
    found = [_TIERS.index(t) for t in tiers if t is not None]
    return _TIERS[max(found)] if found else None


def _texts(value: object) -> list[object]:
    return list(value) if isinstance(value, (list, tuple)) else []
