"""Where a loader without workers spends its time: reading examples, tokenising, collating."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

from . import finder
from .core import core
from .hook_calls import count
from .wrapping import observe

_collate_ns = 0
_tokenise_ns = 0


def install(torch: Any) -> None:
    module = torch.utils.data._utils.fetch
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        fetcher = getattr(module, name, None)
        if fetcher is not None:
            observe(fetcher, "fetch", before=_begins, after=_fetched)
    finder.when_imported("transformers.tokenization_utils_base", _tokenizers)


def _begins(original: Any, args: Any, kwargs: Any) -> None:
    """Put a clock around the collate function of this fetcher (an object of the loader's, not the user's)."""
    global _collate_ns, _tokenise_ns
    _collate_ns = _tokenise_ns = 0
    fetcher = args[0]
    if not isinstance(fetcher.collate_fn, _Timed):
        fetcher.collate_fn = _Timed(fetcher.collate_fn)


class _Timed:
    def __init__(self, collate: Any) -> None:
        self.collate = collate

    def __call__(self, data: Any) -> Any:
        global _collate_ns
        start = perf_counter_ns()
        try:
            return self.collate(data)
        finally:
            _collate_ns += perf_counter_ns() - start


def _fetched(original: Any, args: Any, kwargs: Any, result: Any, elapsed_ns: int) -> None:
    if core.rank is None:
        return
    count("loader_fetch_ms", elapsed_ns / 1e6)
    count("loader_collate_ms", _collate_ns / 1e6)
    count("loader_tokenise_ms", _tokenise_ns / 1e6)


def _tokenizers(module: Any) -> None:
    def tokenised(original: Any, args: Any, kwargs: Any, result: Any, elapsed_ns: int) -> None:
        global _tokenise_ns
        _tokenise_ns += elapsed_ns

    base = getattr(module, "PreTrainedTokenizerBase", None)
    if base is not None:
        observe(base, "__call__", after=tokenised)
