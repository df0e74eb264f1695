"""Whether a setting can be put on the command line is said by who read it from there."""

from __future__ import annotations

from autotune.facts.job.calls import settings_origin
from autotune.records.sites import Argument, Site


def carrier(detail: dict[str, str], **origins: str) -> Site:
    arguments = {name: Argument(text="1", origin=origin) for name, origin in origins.items()}  # type: ignore[arg-type]
    return Site(
        id="s0",
        kind="carrier",
        callee="transformers.training_args.TrainingArguments",
        file="/job/train.py",
        file_sha256="",
        span=None,
        line=1,
        function="main",
        arguments=arguments,
        detail=dict(detail),
    )


def test_a_parser_that_fills_the_arguments_takes_every_setting_as_a_flag() -> None:
    assert settings_origin([carrier({"origin.max_steps": "cli"}, max_steps="star-kwargs")]) == "flag"


def test_a_script_that_hands_on_options_of_its_own_parser_does_not() -> None:
    assert settings_origin([carrier({}, max_steps="cli", optim="literal")]) == "call-site"


def test_a_file_that_was_read_is_a_config() -> None:
    assert settings_origin([carrier({}, max_steps="config")]) == "config"
    assert settings_origin([carrier({"origin.max_steps": "config"})]) == "config"
