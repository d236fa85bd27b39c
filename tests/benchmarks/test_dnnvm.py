"""The page of DNNVM on LeNet-5: figures that agree with one another."""

from pathlib import Path

import pytest
from benchmarks.papers.dnnvm import experiments, tables

from benchmarks import measuring
from tilewright.targets.dpu.core import core_named


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory):
    patch = pytest.MonkeyPatch()
    patch.setattr(measuring, "MODELS", Path(tmp_path_factory.mktemp("models")))
    throughput, fusion, engines = tables(["lenet5"])
    patch.undo()
    assert throughput.markdown() and fusion.markdown() and engines.markdown()
    return {row["device"]: row for row in throughput.rows}


def test_products_are_those_of_the_layers(rows) -> None:
    layers = 28 * 28 * 6 * 25, 10 * 10 * 16 * 6 * 25, 400 * 120, 120 * 84, 84 * 10
    for row in rows.values():
        assert row["operations"] == pytest.approx(2 * sum(layers) / 1e9)
        assert row["host"] == "softmax"


@pytest.mark.parametrize("device", experiments.DEVICES)
def test_rates_lie_below_the_peak_and_follow_from_the_time(rows, device: str) -> None:
    row, core = rows[device], core_named(device)
    peak = experiments.DEVICES[device] * 2 * core.macs * core.clock_hz / 1e9
    assert 0 < row["rate"] < peak
    assert row["utilisation"] == pytest.approx(row["rate"] / peak)
    assert 0.5 < row["of_bound"] <= 1


@pytest.mark.parametrize("device", experiments.DEVICES)
def test_fusion_moves_less_and_takes_less_time(rows, device: str) -> None:
    row = rows[device]
    assert row["kernels"] < row["kernels_apart"]
    assert row["traffic"] < row["traffic_apart"]
    assert row["speedup"] == row["milliseconds_apart"] / row["milliseconds"] > 1
