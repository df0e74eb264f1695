"""Writers and readers that open files in native code: their path argument is redirected instead.

Python's patched functions and the audit hook never see these opens. Each entry names a function and the
argument that holds the path; a new writer is a new line.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from . import finder
from .guard_files import Files

# kinds: write (new content) | update (old content matters) | read | mode (argument `mode` decides) | folder
_FUNCTIONS: tuple[tuple[str, str, str, int, str], ...] = (
    ("torch.serialization", "save", "f", 1, "write"),
    ("torch.serialization", "load", "f", 0, "read"),
    ("torch", "save", "f", 1, "write"),
    ("torch", "load", "f", 0, "read"),
    ("torch.jit", "save", "f", 1, "write"),
    ("torch.jit", "load", "f", 0, "read"),
    ("torch.jit._script", "RecursiveScriptModule.save", "f", 1, "write"),
    ("torch.export", "save", "f", 1, "write"),
    ("torch.onnx", "export", "f", 2, "write"),
    ("torch.utils.cpp_extension", "load", "build_directory", 99, "folder"),
    ("torch.utils.cpp_extension", "load_inline", "build_directory", 99, "folder"),
    ("safetensors", "serialize_file", "filename", 1, "write"),
    ("safetensors", "safe_open", "filename", 0, "read"),
    ("transformers.tokenization_utils_base", "PreTrainedTokenizerBase.save_pretrained", "save_directory", 1,
     "folder"),
    ("huggingface_hub.file_download", "xet_get", "incomplete_path", 99, "write"),
    ("tensorboard.summary.writer.event_file_writer", "EventFileWriter.__init__", "logdir", 1, "folder"),
    ("pyarrow", "OSFile", "path", 0, "mode"),
    ("pyarrow", "memory_map", "path", 0, "mode"),
    ("pyarrow", "create_memory_map", "path", 0, "write"),
    ("pyarrow.parquet", "ParquetWriter.__init__", "where", 1, "write"),
    ("pyarrow.csv", "write_csv", "output_file", 1, "write"),
    ("pyarrow.feather", "write_feather", "dest", 1, "write"),
    ("pyarrow.dataset", "write_dataset", "base_dir", 1, "folder"),
    ("tokenizers", "Tokenizer.save", "path", 1, "write"),
    ("tokenizers", "Tokenizer.from_file", "path", 0, "read"),
    ("tokenizers.models", "BPE.save", "folder", 1, "folder"),
    ("tokenizers.models", "WordPiece.save", "folder", 1, "folder"),
    ("tokenizers.models", "Unigram.save", "folder", 1, "folder"),
    ("tokenizers.models", "WordLevel.save", "folder", 1, "folder"),
    ("polars", "DataFrame.write_csv", "file", 1, "write"),
    ("polars", "DataFrame.write_parquet", "file", 1, "write"),
    ("polars", "DataFrame.write_ndjson", "file", 1, "write"),
    ("polars", "DataFrame.write_ipc", "file", 1, "write"),
    ("cv2", "imwrite", "filename", 0, "write"),
    ("soundfile", "write", "file", 0, "write"),
    ("sentencepiece", "SentencePieceTrainer.train", "model_prefix", 99, "write"),
    ("faiss", "write_index", "fname", 1, "write"),
    ("lmdb", "open", "path", 0, "folder"),
    ("h5py", "File.__init__", "name", 1, "mode"),
    ("sqlite3", "connect", "database", 0, "update"),
)  # fmt: skip


def install(files: Files) -> None:
    """Wrap each function once its module has been imported."""
    for module, name, parameter, position, kind in _FUNCTIONS:
        finder.when_imported(module, functools.partial(_wrap, files, name, parameter, position, kind))


def _wrap(files: Files, name: str, parameter: str, position: int, kind: str, module: ModuleType) -> None:
    owner: Any = module
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part, None)
    original = getattr(owner, last, None)
    if original is None or hasattr(original, "_autotune_guarded"):
        return
    call = f"{module.__name__.partition('.')[0]}.{name}".removesuffix(".__init__")

    @functools.wraps(original, updated=())
    def guarded(*args: Any, **kwargs: Any) -> Any:
        if parameter in kwargs:
            value = kwargs[parameter]
        elif len(args) > position:
            value = args[position]
        else:
            return original(*args, **kwargs)
        place = _place(files, call, kind, value, args, kwargs, position)
        if place is not None:
            if parameter in kwargs:
                kwargs[parameter] = place
            else:
                args = (*args[:position], place, *args[position + 1 :])
        return original(*args, **kwargs)

    guarded._autotune_guarded = True  # type: ignore[attr-defined]
    setattr(owner, last, guarded)


def _place(
    files: Files,
    call: str,
    kind: str,
    value: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    position: int,
) -> Any:
    """The path to use instead, in the type it came in; None for the one given."""
    if not isinstance(value, (str, bytes)) and not hasattr(value, "__fspath__"):
        return None
    if isinstance(value, str) and ("://" in value or value == ":memory:"):
        return None
    if kind == "mode":
        mode = kwargs.get("mode", args[position + 1] if len(args) > position + 1 else "r")
        kind = "read" if not isinstance(mode, str) or mode in ("r", "rb") else "write"
        if isinstance(mode, str) and ("a" in mode or "+" in mode):
            kind = "update"
    if kind == "read":
        place = files.read_path(value)
    elif kind == "folder":
        where = files.kept(value, call, None, True)
        place = None
        if where is not None:
            with files.closed(call, where):
                files.overlay.make_folders(where)
                place = files.overlay.upper(where)
                files.report("redirected", call, where)
    else:
        place = files.write_path(value, call, keep=kind == "update")
    if place is None or isinstance(value, str):
        return place
    return place.encode() if isinstance(value, bytes) else _same_type(value, place)


def _same_type(value: Any, place: str) -> Any:
    make: Callable[[str], Any] = type(value)
    try:
        return make(place)
    except Exception:
        return place
