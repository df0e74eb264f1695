"""Export of a run to MLflow or Weights & Biases, through their own clients and their own settings.

Where it goes is the client's matter (MLFLOW_TRACKING_URI, WANDB_MODE, ...): autotune sets nothing and makes
no connection of its own. The packages are optional extras.
"""

from __future__ import annotations

from typing import Any

from autotune.errors import InputError
from autotune.report.figures import number
from autotune.report.sources import Sources

_RECORDS = ("run.json", "diagnosis.json", "facts.json", "plan.json", "ladder.json")


def to_mlflow(sources: Sources, experiment: str) -> str:
    """One MLflow run with parameters, metrics, tags and the records; gives what to call it."""
    try:
        import mlflow
        from mlflow.exceptions import MlflowException
    except ImportError:
        raise _missing("mlflow", "mlflow") from None
    try:
        mlflow.set_experiment(experiment)
        with mlflow.start_run(run_name=sources.run.id) as active:
            mlflow.log_params(_parameters(sources))
            mlflow.log_metrics(metrics(sources))
            mlflow.set_tags({"autotune.run": sources.run.id, "autotune.verdict": sources.diagnosis.verdict})
            for name in _RECORDS:
                if (sources.folder / name).is_file():
                    mlflow.log_artifact(str(sources.folder / name), "autotune")
            return f"MLflow run {active.info.run_id} in experiment {experiment}"
    except MlflowException as fault:
        raise _refused("MLflow", fault) from fault


def to_wandb(sources: Sources, project: str) -> str:
    """One W&B run with config, summary and the records as an artifact; gives what to call it."""
    try:
        import wandb
    except ImportError:
        raise _missing("wandb", "wandb") from None
    try:
        with wandb.init(project=project, name=sources.run.id, job_type="autotune", reinit=True) as run:
            run.config.update(_parameters(sources))
            run.summary.update({**metrics(sources), "autotune.verdict": sources.diagnosis.verdict})
            artifact = wandb.Artifact(f"autotune-{sources.run.id}", type="autotune")
            for name in _RECORDS:
                if (sources.folder / name).is_file():
                    artifact.add_file(str(sources.folder / name), name=name)
            run.log_artifact(artifact)
            return f"W&B run {run.id} in project {project}"
    except wandb.Error as fault:
        raise _refused("W&B", fault) from fault


def metrics(sources: Sources) -> dict[str, float]:
    """Every number there is: facts under their names, bounds of findings, measured ratios."""
    facts = sources.facts
    found = {name: value for name in facts.facts if (value := number(facts, name)) is not None}
    found["autotune.findings"] = float(len(sources.diagnosis.findings))
    for finding in sources.diagnosis.findings:
        if finding.gain.ratio_upper is not None:
            found[f"autotune.bound/{finding.rule}"] = finding.gain.ratio_upper
    if sources.ladder is not None and sources.ladder.rungs[-1].ratio_to_first is not None:
        found["autotune.speedup"] = sources.ladder.rungs[-1].ratio_to_first
    elif sources.verdict is not None and sources.verdict.ratio is not None:
        found["autotune.speedup"] = sources.verdict.ratio
    return found


def _parameters(sources: Sources) -> dict[str, Any]:
    words = sources.run.command or sources.run.traces
    return {"autotune.command": " ".join(words), "autotune.version": sources.run.autotune}


def _missing(package: str, extra: str) -> InputError:
    return InputError(
        f"the export needs the package {package}",
        hint=f"pip install 'autotune-training[{extra}]'",
        code="extra-missing",
    )


def _refused(service: str, fault: Exception) -> InputError:
    return InputError(f"{service} refused the export: {fault}", code="export-refused")
