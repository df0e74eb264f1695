"""Parquet tables hold what the trace holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.cli.main import run
from autotune.errors import InputError
from autotune.trace import export
from tests.trace.recorded import H100, MI300X, TABLES, path, rank


def test_tables(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    files = export.export_parquet(path(MI300X), tmp_path / "out", tables_dir=TABLES)
    host, gpu = (parquet.read_table(file) for file in files)
    assert gpu.num_rows == 2_238 + 366 + 81  # without what was launched before the recording
    assert host.num_rows == 34_405 + 8_004 + 3_100 + 24
    kinds = gpu.column("kernel_class").to_pylist()
    assert kinds.count("communication") == 12
    assert host.column("start_ns").to_pylist()[0] >= 0


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(export, "import_module", absent)
    with pytest.raises(InputError, match="pyarrow"):
        export.export_parquet(path(H100), tmp_path, tables_dir=TABLES)


def test_modules_where_stacks_were_recorded() -> None:
    rows = {row.name: row for row in rank(H100).modules}
    assert rows["Qwen2RMSNorm"].calls == 49 and rows["Qwen2RMSNorm"].gpu_ms > 0
    assert sum(row.kernels for row in rows.values()) <= rank(H100).file.kernels


def test_command_writes_one_folder_per_file(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow.parquet")
    target = tmp_path / "tables"
    assert run(["trace", str(path(H100)), "--parquet", str(target), "--quiet"]) == 0
    assert sorted(item.name for item in target.iterdir()) == ["gpu.parquet", "host.parquet"]
    assert (
        run(["trace", str(path(H100)), str(path(MI300X)), "--parquet", str(tmp_path / "two"), "--quiet"]) == 0
    )
    assert len(list((tmp_path / "two").rglob("*.parquet"))) == 4
