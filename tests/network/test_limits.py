"""The bound of a network with every intermediate on the chip, and what limits its kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from tests.end_to_end.end_to_end_models import image, lenet
from tests.machine.test_implied import APART, ONE_SRAM, written
from tilewright.compiler.build import limits_of
from tilewright.compiler.pipeline import resolve, run_pipeline

MICROCONTROLLER = Path(__file__).parents[2] / "examples" / "machines" / "microcontroller.toml"


def network(folder: Path, channels: int, size: int) -> Path:
    """Three convolutions of one shape, 3x3, in a row."""
    random = np.random.default_rng(0)
    names = ["x", "a", "b", "y"]
    weights = [
        helper.make_tensor(
            f"w{n}", TensorProto.FLOAT, (channels, channels, 3, 3),
            random.normal(0, 0.05, channels * channels * 9),
        )
        for n in range(3)
    ]  # fmt: skip
    nodes = [
        helper.make_node("Conv", [names[n], f"w{n}"], [names[n + 1]], pads=[1] * 4)
        for n in range(3)
    ]
    shape = (1, channels, size, size)
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in "xy"]
    path = folder / "network.onnx"
    graph = helper.make_graph(nodes, "network", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph), path)
    return path


@pytest.mark.few(1)
@pytest.mark.parametrize(("channels", "size"), [(16, 20), (64, 4)])
def test_the_bound_counts_what_must_move_once(channels: int, size: int, tmp_path: Path) -> None:
    """Work and bytes from the shapes alone: on 16 x 16 multipliers, at 4 bytes a cycle."""
    model = network(tmp_path, channels, size)
    work = 3 * (8 + size * size * (channels // 16) ** 2 * 9)
    # fixed16: an image in and one out, and three weights.
    moved = 2 * (2 * channels * size * size + 3 * channels * channels * 9) / 4
    bounds: list[float] = []
    for text in (APART, ONE_SRAM):
        package = tilewright.compile(model, written(tmp_path, text))
        summary = package.summary()
        bounds.append(summary["on_chip_bound_cycles"])
        assert summary["predicted_cycles"] >= 0.99 * bounds[-1]
    assert bounds == [pytest.approx(max(work, moved), rel=0.02)] * 2


@pytest.mark.parametrize("slow", ["load", "store"])
def test_the_bound_counts_the_rates_of_moves(slow: str, tmp_path: Path) -> None:
    """A move of a byte in 16 cycles where main memory gives 4 in one: the load moves an image and
    the weights, the store the result alone."""
    rate = f"{slow} = {{ source"
    line = next(line for line in ONE_SRAM.splitlines() if line.startswith(rate))
    text = ONE_SRAM.replace(line, line.replace("bytes_per_cycle = 4", "bytes_per_cycle = 0.0625"))
    image, weights = 2 * 16 * 4 * 4, 2 * 3 * 16 * 16 * 9
    moved = image + weights if slow == "load" else image
    package = tilewright.compile(network(tmp_path, 16, 4), written(tmp_path, text))
    summary = package.summary()
    bound = summary["on_chip_bound_cycles"]
    assert bound == pytest.approx(16 * moved, rel=0.02)
    assert summary["predicted_cycles"] >= 0.99 * bound


def test_the_report_says_all_three(tmp_path: Path) -> None:
    package = tilewright.compile(network(tmp_path, 16, 20), written(tmp_path, ONE_SRAM))
    said = " ".join(package.report().split())
    for part in ("of the granule bound", "of the physical bound", "intermediates on the chip"):
        assert part in said
    facts = package.summary()
    gap = facts["predicted_cycles"] / facts["on_chip_bound_cycles"] - 1
    assert f"gap at most {gap * 100:.1f} %" in said
    every = sum(row["engine"] == "accelerator" for row in facts["kernels"])
    finished = every - facts["search_cut_kernels"]
    assert f"the search for schedules finished for {finished} of {every} kernel" in said


def test_what_stays_limits_no_kernel(tmp_path: Path) -> None:
    """One after the other, and both intermediates stay: the kernels at the ends move 3,200 cycles
    of image and 1,152 of weights, more than the 3,608 cycles of their work; the one between moves
    weights alone."""
    target, machine = resolve(written(tmp_path, ONE_SRAM))
    machine = machine.model_copy(update={"fusions": ()})
    state = run_pipeline(network(tmp_path, 16, 20), target, machine)
    assert len(state.staying) == 2
    limits = limits_of(state)
    assert limits is not None and limits.kernels == {"dram": 2, "compute": 1}


def test_of_a_table_the_rows_that_are_read_are_counted(tmp_path: Path) -> None:
    """3 of 4,096 rows: what the bound counts of the table is less than a tenth of a per cent."""
    table = np.random.default_rng(0).normal(size=(4096, 16)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "rows"], ["g"]),
        helper.make_node("Relu", ["g"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info("rows", TensorProto.INT64, [3]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 16]),
    ]
    stored = [onnx.numpy_helper.from_array(table, "table")]
    graph = helper.make_graph(nodes, "table", ends[:1], ends[1:], stored)
    onnx.save(helper.make_model(graph), tmp_path / "table.onnx")
    summary = tilewright.compile(tmp_path / "table.onnx", "ascend910").summary()
    assert 0 < summary["on_chip_bound_cycles"] < summary["predicted_cycles"]


@pytest.mark.few(1)
def test_no_kernel_is_above_its_bound(tmp_path: Path) -> None:
    """Weights of a kernel are loaded from flash while the one before computes, so that the last
    kernels add less than they take alone: neither plans nor runs are better than their bounds."""
    path = tmp_path / "lenet5.onnx"
    onnx.save(lenet(), path)
    sample = image(onnx.load(path))
    target, machine = resolve(str(MICROCONTROLLER))
    plans = run_pipeline(path, target, machine, calibration=[sample]).plans
    assert any(plan.schedule.stays for plan in plans.values())
    assert all(plan.physical_efficiency <= plan.efficiency <= 1 for plan in plans.values())
    package = tilewright.compile(path, target, machine=machine, calibration=[sample])
    package.run(sample)
    summary = package.summary()
    assert 0.9 < summary["efficiency"] <= 1
    assert all(row["of_bound"] <= 1 for row in summary["kernels"] if row["of_bound"] is not None)
