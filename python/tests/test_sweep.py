"""Tests of sweeps with every kind of executor, and of how results are stored."""

import json
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from farwrite import model

ARGUMENTS: dict[str, Any] = {
    "scheme": ["sr-rto", "ec-mds:32,8"],
    "message_bytes": [2**20, 2**27, 2**33],
    "bandwidth_bps": 400e9,
    "rtt_s": 25e-3,
    "loss_chunk": np.logspace(-6, -2, 5),
}


def check(table: model.Table) -> None:
    schemes = np.array(ARGUMENTS["scheme"])[:, np.newaxis, np.newaxis]
    sizes = np.array(ARGUMENTS["message_bytes"])[:, np.newaxis]
    time = model.completion_time(schemes, sizes, 400e9, 25e-3, ARGUMENTS["loss_chunk"])
    assert len(table) == 30
    assert np.array_equal(table["mean_s"], time.mean.ravel())
    assert np.array_equal(table["p99.9_s"], time.quantile(0.999).ravel())
    assert table["scheme"].tolist() == ["sr-rto"] * 15 + ["ec-mds:32,8"] * 15
    assert table.settings["rtt_s"] == 25e-3
    assert "farwrite" in table.settings


def test_here() -> None:
    check(model.sweep(ARGUMENTS))
    check(model.sweep(ARGUMENTS, points_per_task=1))


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_pools(kind: str) -> None:
    pool: Executor = (
        ThreadPoolExecutor(2)
        if kind == "threads"
        else ProcessPoolExecutor(2, mp_context=get_context("forkserver"))
    )
    with pool:
        check(model.sweep(ARGUMENTS, executor=pool, points_per_task=7))


@pytest.mark.filterwarnings("default")
def test_dask_cluster() -> None:
    from distributed import Client, LocalCluster

    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "processes": True}
    with LocalCluster(dashboard_address=None, **options) as cluster, Client(cluster) as client:
        check(model.sweep(ARGUMENTS, executor=client.get_executor(), points_per_task=7))


def test_progress(capsys: pytest.CaptureFixture[str]) -> None:
    model.sweep(ARGUMENTS)
    assert capsys.readouterr().err == ""
    model.sweep(ARGUMENTS, progress=True)
    assert "30/30" in capsys.readouterr().err


def test_columns_of_a_csv_file_keep_their_types(tmp_path: Path) -> None:
    columns: dict[str, Any] = {
        "done": np.array([True, False]),
        "bytes": np.array([2**63, 1], dtype=np.uint64),
        "time": np.array([0.1, np.nan]),
        "name": np.array(["4", "1234567890123e45"]),
    }
    for rows in (2, 0):
        table = model.Table({name: column[:rows] for name, column in columns.items()}, {"plan": "x"})
        table.write_csv(tmp_path / "table.csv")
        back = model.Table.read_csv(tmp_path / "table.csv")
        assert back.settings == table.settings
        for name, column in table.columns.items():
            assert back[name].dtype.kind == column.dtype.kind
            np.testing.assert_array_equal(back[name], column)
    wide = [*(tmp_path / "table.csv").read_text().splitlines()[:2], "True,7,0.5,a text that is longer", ""]
    (tmp_path / "table.csv").write_text("\n".join(wide))
    assert model.Table.read_csv(tmp_path / "table.csv")["name"].tolist() == ["a text that is longer"]
    (tmp_path / "table.csv").write_text("\n".join(wide).replace("True,", "true,"))
    with pytest.raises(ValueError, match="^'true' in a column of booleans"):
        model.Table.read_csv(tmp_path / "table.csv")
    objects = model.Table({"of": np.array([1, 2], dtype=object)}, {})
    objects.write_csv(tmp_path / "table.csv")
    assert model.Table.read_csv(tmp_path / "table.csv")["of"].tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="^settings has column_types"):
        model.Table({}, {"column_types": 1}).write_csv(tmp_path / "table.csv")
    # Files of earlier versions have no types.
    (tmp_path / "old.csv").write_text('# {"plan": "x"}\ntime,name\n0.5,a\n')
    old = model.Table.read_csv(tmp_path / "old.csv")
    assert (old["time"].tolist(), old["name"].tolist()) == ([0.5], ["a"])


def test_files(tmp_path: Path) -> None:
    table = model.sweep(ARGUMENTS | {"loss_chunk": model.Markov(1e-3, 0.5), "variant": "serial"})
    table.write_csv(tmp_path / "sweep.csv")
    table.write_parquet(tmp_path / "sweep.parquet")
    back = [
        model.Table.read_csv(tmp_path / "sweep.csv"),
        model.Table.read_parquet(tmp_path / "sweep.parquet"),
    ]
    for other in back:
        assert other.settings == table.settings
        assert list(other.columns) == ["scheme", "message_bytes", "mean_s", "p50_s", "p99_s", "p99.9_s"]
        for name, column in table.columns.items():
            assert np.array_equal(other[name], column)
    assert json.loads(pq.read_schema(tmp_path / "sweep.parquet").metadata[b"farwrite"]) == table.settings
    frame = table.to_pandas()
    assert frame.attrs == table.settings
    assert frame["mean_s"].tolist() == table["mean_s"].tolist()
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="not a sweep of farwrite"):
        model.Table.read_csv(tmp_path / "other.csv")


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"^loss_chunk = 2 as a probability: .* \(at \{'scheme': 'sr-rto'"):
        model.sweep(ARGUMENTS | {"loss_chunk": [0.1, 2]})
    with ThreadPoolExecutor(2) as pool, pytest.raises(ValueError, match="^loss_chunk = 2 as a probability"):
        model.sweep(ARGUMENTS | {"loss_chunk": [0.1, 2]}, executor=pool)
    with pytest.raises(TypeError, match="^loss is no argument of completion_time"):
        model.sweep({"loss": 0.1})
    with pytest.raises(ValueError, match="^q = 1 as a probability"):
        model.sweep(ARGUMENTS, quantiles=[1])
    with pytest.raises(ValueError, match=r"^message_bytes has shape \(1, 1\)"):
        model.sweep(ARGUMENTS | {"message_bytes": [[1]]})
    with pytest.raises(ValueError, match="^points_per_task = 0 points"):
        model.sweep(ARGUMENTS, points_per_task=0)


def test_every_quantile_has_a_column() -> None:
    levels = (0.5, 0.99, 0.999999, 0.9999995, 0.99999999)
    table = model.sweep(ARGUMENTS, quantiles=levels)
    names = ["p50_s", "p99_s", "p99.9999_s", "p99.99995_s", "p99.999999_s"]
    assert [name for name in table.columns if name.startswith("p")] == names
    assert list(model.sweep(ARGUMENTS, quantiles=(level for level in levels)).columns) == list(table.columns)
    with pytest.raises(ValueError, match="quantiles has 0.99 and 0.99, whose columns would both be p99_s"):
        model.sweep(ARGUMENTS, quantiles=(0.99, 0.5, 0.99))


def test_bursts_are_the_same_for_all_points() -> None:
    bursts = {**ARGUMENTS, "loss_chunk": model.Markov(1e-4, 0.1)}
    assert len(model.sweep(bursts)) == 6
    bursts["loss_chunk"] = model.Markov(np.array([1e-4, 1e-3]), 0.1)
    with pytest.raises(ValueError, match="loss_chunk has fields that are arrays"):
        model.sweep(bursts)


def test_settings_of_numpy_can_be_saved(tmp_path: Path) -> None:
    settings = {
        **ARGUMENTS,
        "message_bytes": np.int64(2**27),
        "loss_chunk": model.Markov(np.float64(1e-4), 0.1),
    }
    table = model.sweep(settings)
    table.write_csv(tmp_path / "table.csv")
    assert table.settings["message_bytes"] == 2**27
