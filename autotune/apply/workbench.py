"""From members (rules with their steps) to edited texts, flags, variables and packages, all in memory.

Planning and materialising run the same code, so what a plan admits can be made.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autotune.apply import counts, dialects, flags
from autotune.apply.edit import SITE_ACTIONS, Edit, edit_source
from autotune.apply.locate import EditRefused
from autotune.apply.shims import MODULE_NAME, render_shim
from autotune.apply.target import Target
from autotune.records.findings import FixStep
from autotune.records.plan import Member
from autotune.records.sites import Site

_SHIM_IMPORT = re.compile(r"^\s*(?:import|from) (autotune_[a-z0-9_]+)", re.M)


@dataclass
class Changes:
    """Everything a set of members changes."""

    texts: dict[Path, str] = field(default_factory=dict)  # edited source and config files
    configs: set[Path] = field(default_factory=set)
    shims: dict[str, str] = field(default_factory=dict)  # module name -> source
    argv: list[str] = field(default_factory=list)
    env: dict[str, str | None] = field(default_factory=dict)
    packages: list[str] = field(default_factory=list)
    rules: dict[Path, list[str]] = field(default_factory=dict)
    places: dict[str, list[Site]] = field(default_factory=dict)  # rule -> sites it edits

    def differ(self, target: Target) -> bool:
        """Whether anything is changed at all."""
        edited = any(text != target.text(path) for path, text in self.texts.items())
        return edited or self.argv != target.command.argv or bool(self.env or self.packages)


class ConflictError(EditRefused):
    """Two rules want different things; `rules` names them."""

    def __init__(self, rules: list[str], reason: str) -> None:
        super().__init__(reason)
        self.rules = rules


def work_out(members: Sequence[Member], target: Target, templates_dir: Path | None = None) -> Changes:
    """All changes of `members` together. Raises EditRefused (ConflictError for contradictions)."""
    bench = _Bench(target, templates_dir)
    for member in members:
        for step in member.steps:
            bench.add(member, step)
    return bench.finish()


def sites_of(step: FixStep, target: Target, wanted: Sequence[str] = ()) -> list[Site]:
    """Sites a step edits; `wanted` are ids to stay within. Raises EditRefused when there is none."""
    kind = step.arguments.get("at")
    patterns = [str(p) for p in _list(step.arguments.get("callees"))]
    fitting = [
        s
        for s in target.sites
        if s.kind == kind and (not patterns or any(re.search(p, s.callee) for p in patterns))
    ]
    fitting = _of_training(fitting, target)
    editable = [s for s in fitting if s.editable]
    if fitting and not editable:
        first = fitting[0]
        raise EditRefused(
            f"the call of {first.callee} is made by library code (reached from {first.file}:{first.line})"
        )
    if any(s.id in wanted for s in editable):
        editable = [s for s in editable if s.id in wanted]
    if not editable:
        raise EditRefused(f"no call of the kind '{kind}' was seen in the project")
    if step.arguments.get("every_step") is True:
        editable = _in_every_step(editable, target)
    which = step.arguments.get("which", "all")
    return editable[:1] if which == "first" else editable[-1:] if which == "last" else editable


def _in_every_step(sites: list[Site], target: Target) -> list[Site]:
    steps = max((len(rank.steps) for rank in target.observation.ranks), default=0)
    found = [site for site in sites if steps and site.calls >= steps]
    if not found:
        raise EditRefused(f"no call of the kind '{sites[0].kind}' is made in every step")
    return found


def training_lines(target: Target, path: Path) -> list[int]:
    """Lines of a file from which the job computes gradients and updates weights, or calls what does."""
    lines = set()
    for site in target.sites:
        if site.kind in ("backward", "optimizer_step"):
            places = [(site.file, site.line), *((frame.file, frame.line) for frame in site.stack)]
            lines |= {line for file, line in places if file == str(path)}
    return sorted(lines)


def _of_training(sites: list[Site], target: Target) -> list[Site]:
    """Loaders and optimizers that take part in the training steps, where that is known.

    What a library made anew out of the user's own (`accelerator.prepare`) stands for all of the user's.
    """
    if not sites or sites[0].kind not in ("loader", "optimizer_create"):
        return sites
    ranks = target.observation.ranks
    used = {loader.site for rank in ranks for loader in rank.loaders}
    used |= {optimizer.site for rank in ranks for optimizer in rank.optimizers}
    training = [s for s in sites if s.id in used]
    if any(s.editable for s in training):
        return training
    remade = [s for s in training if s.detail.get("written") == "prepare"]
    if remade and any(s.editable for s in sites):
        return [s for s in sites if s.editable]
    return training or sites


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, (list, tuple)) else [] if value is None else [value]


class _Bench:
    def __init__(self, target: Target, templates_dir: Path | None) -> None:
        self.target = target
        self.templates_dir = templates_dir
        self.changes = Changes(argv=list(target.command.argv))
        self.edits: dict[Path, list[Edit]] = {}
        self.imports: dict[Path, list[str]] = {}
        self.modules: dict[
            str, tuple[str, dict[str, object], str]
        ] = {}  # module -> template, arguments, rule
        self.flag_rules: dict[str, tuple[str | None, str]] = {}
        self.key_rules: dict[tuple[Path, str], tuple[object, str]] = {}
        self.env_rules: dict[str, str] = {}
        self.literals: dict[Path, dict[tuple[str, int], tuple[int, str]]] = {}  # (name, was) -> value, rule

    def add(self, member: Member, step: FixStep) -> None:
        arguments = step.arguments
        if step.action in SITE_ACTIONS:
            self._site_step(member, step)
        elif step.action == "use_shim":
            self._shim(member.rule, arguments)
        elif step.action in ("set_flag", "remove_flag"):
            value = None if step.action == "remove_flag" else str(arguments["value"])
            self._flag(member.rule, str(arguments["name"]), value, remove=step.action == "remove_flag")
        elif step.action == "set_count":
            self._count(member, arguments)
        elif step.action == "set_key":
            self._key(member.rule, str(arguments["key"]), arguments["value"])
        elif step.action == "set_env":
            wanted = arguments.get("value")
            self._env(member.rule, str(arguments["name"]), None if wanted is None else str(wanted))
        elif step.action == "install":
            self.changes.packages += [
                str(p) for p in _list(arguments.get("packages")) if str(p) not in self.changes.packages
            ]
        elif step.action == "render":
            raise EditRefused("a whole script is generated with: autotune apply --template")
        else:
            raise EditRefused(f"there is no edit '{step.action}'")

    def _site_step(self, member: Member, step: FixStep) -> None:
        try:
            sites = sites_of(step, self.target, member.sites)
        except EditRefused:
            if step.arguments.get("optional") is True:
                return
            raise
        arguments: dict[str, object] = dict(step.arguments)
        if step.action == "wrap_block":
            sites = self._blocks(member, step, sites)
        for site in sites:
            path = Path(site.file)
            if digest(self.target.content(path)) != site.file_sha256:
                raise EditRefused(f"{site.file} has changed since it was watched")
            if step.action == "wrap_block":
                arguments = {**arguments, "training_lines": training_lines(self.target, path)}
            self.edits.setdefault(path, []).append(Edit(member.rule, step.action, site, arguments))
            _once(self.changes.rules.setdefault(path, []), member.rule)
            _once_site(self.changes.places.setdefault(member.rule, []), site)

    def _blocks(self, member: Member, step: FixStep, sites: list[Site]) -> list[Site]:
        """Those of the places that can be changed. Raises EditRefused when none can."""
        reasons = []
        found = []
        for site in sites:
            path = Path(site.file)
            arguments = {**step.arguments, "training_lines": training_lines(self.target, path)}
            result = edit_source(self.target.text(path), [Edit(member.rule, step.action, site, arguments)])
            reasons += [str(refusal) for refusal in result.refused]
            if not result.refused:
                found.append(site)
        if not found:
            raise EditRefused(reasons[0])
        return found

    def _shim(self, rule: str, arguments: dict[str, object]) -> None:
        module = str(arguments["module"])
        if not MODULE_NAME.fullmatch(module):
            raise EditRefused(f"'{module}' is no name for a shim (autotune_...)")
        options = arguments.get("arguments") or {}
        assert isinstance(options, dict)
        template = str(arguments["template"])
        there = self.modules.get(module)
        if there is not None and there[:2] != (template, options):
            raise ConflictError(
                [there[2], rule], f"{there[2]} and {rule} want different variants of {module}"
            )
        self.modules.setdefault(module, (template, options, rule))

    def _flag(self, rule: str, name: str, value: str | None, *, remove: bool) -> None:
        key = name.lstrip("-").replace("_", "-")
        if key in self.flag_rules and self.flag_rules[key][0] != value:
            other = self.flag_rules[key][1]
            raise ConflictError([other, rule], f"{other} and {rule} want different values of {name}")
        self.flag_rules[key] = (value, rule)
        if remove:
            self.changes.argv = flags.remove_flag(self.changes.argv, self.target.command, name)
        else:
            self.changes.argv = flags.set_flag(self.changes.argv, self.target.command, name, value or None)

    def _count(self, member: Member, arguments: dict[str, object]) -> None:
        """A number of the job, wherever it is written; `at` and `argument` name a call that takes it."""
        was, value = int(str(arguments["was"])), int(str(arguments["value"]))
        if was == value:
            return
        argument = str(arguments.get("argument") or "")
        count: counts.Count | None
        if argument:
            step = FixStep(action="set_keyword", arguments={**arguments, "keywords": {argument: str(value)}})
            sites = sites_of(step, self.target, member.sites)
            if len(sites) != 1:
                raise EditRefused(f"{len(sites)} calls give '{argument}', and not one alone")
            count = counts.find_argument_count(self.target, sites[0], argument, was)
            if count is None:
                self._site_step(member, step)
                return
        else:
            count = counts.find_count(self.target, str(arguments["names"]), was)
        if count.flag is not None:
            self._flag(member.rule, count.flag, str(value), remove=False)
        elif count.key is not None:
            self._key(member.rule, count.key, value)
        elif count.file is not None:
            exact = re.escape(counts.plain(count.name))
            self.literals.setdefault(count.file, {})[exact, was] = (value, member.rule)
            _once(self.changes.rules.setdefault(count.file, []), member.rule)

    def _key(self, rule: str, key: str, value: object) -> None:
        path = self._config_with(key)
        if (path, key) in self.key_rules and self.key_rules[path, key][0] != value:
            other = self.key_rules[path, key][1]
            raise ConflictError([other, rule], f"{other} and {rule} want different values of '{key}'")
        self.key_rules[path, key] = (value, rule)
        if not isinstance(value, (str, int, float, bool)):
            raise EditRefused(f"'{key}' cannot be set to {value!r}")
        text = self.changes.texts.get(path, self.target.text(path))
        self.changes.texts[path] = dialects.set_setting(text, path.suffix.lower(), key, value)
        self.changes.configs.add(path)
        _once(self.changes.rules.setdefault(path, []), rule)

    def _config_with(self, key: str) -> Path:
        """The configuration file that holds `key`; else the only one that holds the job's own settings."""
        files = self.target.command.config_files
        if not files:
            raise EditRefused("the command names no configuration file")
        paths = [Path(file.path) for file in files]
        for path in paths:
            text = self.changes.texts.get(path, self.target.text(path))
            if dialects.has_setting(text, path.suffix.lower(), key):
                self._refuse_overridden(path, text, key)
                return path
        own = [
            Path(file.path)
            for file in files
            if file.owner == "script"
            and dialects.is_place_of_settings(
                self.target.text(Path(file.path)), Path(file.path).suffix.lower()
            )
        ]
        if len(own) != 1:
            raise EditRefused(f"none of {len(paths)} configuration files has '{key}'")
        self._refuse_overridden(own[0], self.target.text(own[0]), key)
        return own[0]

    def _refuse_overridden(self, path: Path, text: str, key: str) -> None:
        for name in dict.fromkeys([*dialects.names_of(text, path.suffix.lower(), key), key]):
            if flags.flag_value(self.changes.argv, self.target.command, f"--{name}") is not None:
                raise EditRefused(f"the command line overrides '{name}' of the configuration file")

    def _env(self, rule: str, name: str, value: str | None) -> None:
        if name in self.changes.env and self.changes.env[name] != value:
            other = self.env_rules[name]
            raise ConflictError([other, rule], f"{other} and {rule} want different values of {name}")
        self.changes.env[name] = value
        self.env_rules[name] = rule

    def finish(self) -> Changes:
        self._render_shims()
        for path in dict.fromkeys([*self.edits, *self.imports]):
            edits = self.edits.get(path, [])
            result = edit_source(self.target.text(path), edits, self.imports.get(path, []))
            if result.conflicts:
                one, other, reason = result.conflicts[0]
                raise ConflictError([one, other], reason)
            if result.refused:
                raise EditRefused(str(result.refused[0]))
            self.changes.texts[path] = result.text
        for path, numbers in self.literals.items():
            text = self.changes.texts.get(path, self.target.text(path))
            for (name, was), (value, _) in numbers.items():
                text = counts.with_literal(text, name, was, value, path)
            self.changes.texts[path] = text
        return self.changes

    def _render_shims(self) -> None:
        for module, (template, options, rule) in self.modules.items():
            self._render(module, template, options)
            users = [
                path
                for path, edits in self.edits.items()
                if any(f"{module}." in str(v) for e in edits for v in e.arguments.values())
            ]
            if not users:
                script = self.target.script
                if script is None:
                    raise EditRefused("the command starts no script of the project that could import a shim")
                users = [script]
            for path in users:
                _once(self.imports.setdefault(path, []), f"import {module}")
                _once(self.changes.rules.setdefault(path, []), rule)

    def _render(self, module: str, template: str, options: dict[str, object]) -> None:
        source = render_shim(template, options, self.templates_dir)
        self.changes.shims[module] = source
        for needed in _SHIM_IMPORT.findall(source):
            if needed not in self.changes.shims and needed not in self.modules:
                self._render(needed, f"shims/{needed.removeprefix('autotune_')}.py.j2", {})


def _once(values: list[str], value: str) -> None:
    if value not in values:
        values.append(value)


def _once_site(values: list[Site], site: Site) -> None:
    if all(v.id != site.id for v in values):
        values.append(site)


def digest(data: bytes) -> str:
    """sha256 in hex."""
    return hashlib.sha256(data).hexdigest()
