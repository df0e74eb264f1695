"""What would leave the machine: hub pushes, uploads to object stores, online experiment trackers.

A shortened run must not overwrite a model on a hub or show up on a dashboard. Calls that only read go on.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from . import finder

Report = Callable[[str, str, str], None]

_HUB_METHODS = [
    "create_commit", "create_repo", "create_branch", "create_tag", "create_pull_request",
    "create_discussion", "delete_branch", "delete_file", "delete_files", "delete_folder", "delete_repo",
    "delete_tag", "duplicate_space", "merge_pull_request", "move_repo", "preupload_lfs_files",
    "super_squash_history", "update_repo_settings", "update_repo_visibility", "upload_file",
    "upload_folder", "upload_large_folder", "create_collection", "add_collection_item",
]  # fmt: skip
_STORE_WRITES = ("Put", "Upload", "Delete", "Create", "Complete", "Copy", "Abort", "Restore")
_FSSPEC_WRITES = {
    "_put", "_put_file", "_pipe", "_pipe_file", "_rm", "_rm_file", "_mv", "_mv_file", "_copy", "_cp_file", 
    "_mkdir", "_makedirs", "_touch", "_rmdir", "_bulk_delete",
}  # fmt: skip


def install(report: Report) -> None:
    """Wrap each library once it has been imported."""
    for name, wrap in (
        ("huggingface_hub.hf_api", _hub),
        ("huggingface_hub.repository", _repository),
        ("wandb", _wandb),
        ("mlflow.tracking._tracking_service.utils", _mlflow),
        ("mlflow", _mlflow),
        ("botocore.client", _botocore),
        ("google.cloud.storage.blob", _google),
        ("fsspec.asyn", _fsspec),
        ("fsspec.spec", _fsspec_open),
    ):
        finder.when_imported(name, functools.partial(wrap, report))


def _target(args: tuple[Any, ...], kwargs: dict[str, Any], *names: str) -> str:
    for name in names:
        if isinstance(kwargs.get(name), str):
            return str(kwargs[name])
    return next((a for a in args if isinstance(a, str)), "")


def _hub(report: Report, module: ModuleType) -> None:
    api = getattr(module, "HfApi", None)
    if api is None:
        return

    def answer(name: str, kwargs: dict[str, Any], target: str) -> Any:
        """Something of the type callers use next."""
        url = f"https://huggingface.co/{target}"
        value: Any = None
        if name == "create_repo" and hasattr(module, "RepoUrl"):
            value = module.RepoUrl(url)
        elif name.startswith(("upload_f", "create_commit", "delete_f")) and hasattr(module, "CommitInfo"):
            fields = {"commit_message": "", "commit_description": "", "oid": "0" * 40}
            value = module.CommitInfo(commit_url=f"{url}/commit/{'0' * 40}", **fields)
        if kwargs.get("run_as_future"):
            from concurrent.futures import Future

            future: Future[Any] = Future()
            future.set_result(value)
            return future
        return value

    def suppressed(name: str, original: Any) -> Any:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            target = _target(args[1:] if name != "upload_file" else (), kwargs, "repo_id")
            report("suppressed", f"huggingface_hub.{name}", target or "hub")
            return answer(name, kwargs, target or "user/model")

        return call

    for name in _HUB_METHODS:
        original = getattr(api, name, None)
        if original is None:
            continue
        method = suppressed(name, original)
        setattr(api, name, method)
        bound = getattr(module, name, None)  # module-level functions are bound methods made at import
        if bound is not None and getattr(bound, "__self__", None) is not None:
            setattr(module, name, method.__get__(bound.__self__))


def _repository(report: Report, module: ModuleType) -> None:
    repository = getattr(module, "Repository", None)
    for name in ("git_push", "push_to_hub", "git_commit", "git_add"):
        if repository is not None and hasattr(repository, name):
            setattr(repository, name, _nothing(report, f"Repository.{name}", getattr(repository, name)))


def _nothing(report: Report, label: str, original: Any, value: Any = None) -> Any:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        report("suppressed", label, _target(args[1:], kwargs) or label)
        return value

    return call


def _wandb(report: Report, module: ModuleType) -> None:
    original = getattr(module, "init", None)
    if original is None or os.environ.get("WANDB_MODE", "offline") not in ("offline", "dryrun"):
        return

    @functools.wraps(original)
    def init(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("mode") not in (None, "offline", "disabled"):
            report("suppressed", "wandb.init", f"mode={kwargs['mode']}")
            kwargs["mode"] = "offline"
        if "dir" in kwargs:
            kwargs["dir"] = os.environ.get("WANDB_DIR")
        return original(*args, **kwargs)

    module.init = init  # type: ignore[attr-defined]


def _mlflow(report: Report, module: ModuleType) -> None:
    original = getattr(module, "set_tracking_uri", None)
    if original is None or hasattr(original, "_autotune_guarded"):
        return

    @functools.wraps(original)
    def set_tracking_uri(uri: Any) -> Any:
        report("suppressed", "mlflow.set_tracking_uri", "tracking server")
        return original(os.environ.get("MLFLOW_TRACKING_URI", uri))

    set_tracking_uri._autotune_guarded = True  # type: ignore[attr-defined]
    module.set_tracking_uri = set_tracking_uri  # type: ignore[attr-defined]


def _botocore(report: Report, module: ModuleType) -> None:
    client = getattr(module, "BaseClient", None)
    original = getattr(client, "_make_api_call", None)
    if original is None:
        return

    @functools.wraps(original)
    def call(self: Any, operation_name: str, api_params: dict[str, Any]) -> Any:
        if operation_name.startswith(_STORE_WRITES):
            bucket = api_params.get("Bucket", "") if isinstance(api_params, dict) else ""
            report("suppressed", f"boto3.{operation_name}", str(bucket) or operation_name)
            return {"ETag": '"0"', "UploadId": "0", "ResponseMetadata": {"HTTPStatusCode": 200}}
        return original(self, operation_name, api_params)

    client._make_api_call = call  # type: ignore[union-attr]


def _google(report: Report, module: ModuleType) -> None:
    blob = getattr(module, "Blob", None)
    for name in (
        "upload_from_file",
        "upload_from_filename",
        "upload_from_string",
        "delete",
        "rewrite",
        "compose",
    ):
        if blob is not None and hasattr(blob, name):
            setattr(blob, name, _nothing(report, f"storage.Blob.{name}", getattr(blob, name)))


def _fsspec(report: Report, module: ModuleType) -> None:
    """Every blocking call of a remote file system goes through `sync`."""
    original = getattr(module, "sync", None)
    if original is None:
        return

    @functools.wraps(original)
    def sync(loop: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        name = getattr(func, "__name__", "")
        if name in _FSSPEC_WRITES:
            report("suppressed", f"fsspec.{name.lstrip('_')}", str(args[0])[:200] if args else name)
            return None
        return original(loop, func, *args, **kwargs)

    module.sync = sync  # type: ignore[attr-defined]


def _fsspec_open(report: Report, module: ModuleType) -> None:
    base = getattr(module, "AbstractFileSystem", None)
    original = getattr(base, "open", None)
    if original is None:
        return

    @functools.wraps(original)
    def opened(self: Any, path: Any, mode: str = "rb", *args: Any, **kwargs: Any) -> Any:
        local = {"file", "local", "memory"} & set(
            (self.protocol,) if isinstance(self.protocol, str) else self.protocol
        )
        if local or not any(letter in mode for letter in "wax+"):
            return original(self, path, mode, *args, **kwargs)
        report("suppressed", "fsspec.open", str(path)[:200])
        return open(os.devnull, mode.replace("x", "w").replace("a", "w"))

    base.open = opened  # type: ignore[union-attr]
