"""The shim's 64 counters beside the representative CPE of plans, over a seeded set of layers."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.sunway.sunway_networks import Network

import tilewright
from tilewright.compiler.pipeline import resolve, run_pipeline
from tilewright.planning.cost.balance import imbalance

SEEDS = range(12)


def drawn(seed: int, folder: Path) -> Path:
    """A convolution, with padding or without, or one time in four a product."""
    draw = random.Random(seed).choice
    path = folder / "layer.onnx"
    if seed % 4 == 3:
        net, inputs = Network(draw([1, 32, 64, 128]), size := draw([256, 1000, 2048])), size
        return net.save(path, net.linear("x", inputs, draw([64, 256, 1024])))
    batch, inputs, outputs = draw([1, 1, 2, 4]), draw([16, 32, 48, 64]), draw([16, 32, 64, 96])
    height, kernel = draw([13, 14, 28, 32, 34]), draw([1, 3, 3, 5])
    net = Network(batch, inputs, height, draw([height, height, height + 3]))
    conv = net.op(
        *("Conv", "x", net.weight(outputs, inputs, kernel, kernel), net.weight(outputs)),
        pads=[draw([0, kernel // 2])] * 4,
        strides=[draw([1, 1, 2])] * 2,
    )
    return net.save(path, conv)


def without_padding(folder: Path) -> Path:
    """One whose tiles along the reduction end in a short one: of 7, the last has two channels."""
    net = Network(1, 32, 34, 34)
    return net.save(folder / "layer.onnx", net.op("Conv", "x", net.weight(64, 32, 3, 3)))


def check(path: Path, folder: Path, planner: str) -> list[str]:
    """Hold each kernel's count to its plan; the reasons why kernels are not balanced."""
    package = tilewright.compile(path, "sunway", directory=folder / "p", planner=planner)
    target, machine = resolve("sunway")
    with target.planner(planner, machine) as asked:
        work = run_pipeline(path, target, machine, ask=asked)
    (info,) = package.inputs
    rng = np.random.default_rng(1)
    inputs = {info.name: rng.normal(size=[int(n) for n in info.shape]).astype(np.float32)}
    assert package.check(inputs, package.run(inputs, profile=True)).equal
    reasons: list[str] = []
    rows = {row["name"]: row for row in package.summary()["kernels"]}
    for kernel in work.kernels:
        if kernel.schedule is None:
            continue
        row = rows[kernel.kernel.symbol]
        reason = imbalance(kernel.kernel, machine, kernel.schedule)
        assert row.get("unbalanced", "") == reason
        reasons.append(reason)
        # Where cores are not alike some have less to do, and the plan's is the busiest.
        least = 0.6 if reason else 0.98
        assert least < row["cycles"] / row["predicted_cycles"] < 1.02, (reason, kernel.schedule)
    return reasons


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", but_fast(SEEDS, [0, 3]))
def test_the_count_is_the_plans_where_cores_are_balanced(seed: int, tmp_path: Path) -> None:
    check(drawn(seed, tmp_path), tmp_path, "model")


@pytest.mark.few(1)
@pytest.mark.parametrize("planner", ["exact", "ldm{share=mesh}"])
def test_short_tiles_count_as_they_are_priced(planner: str, tmp_path: Path) -> None:
    assert check(without_padding(tmp_path), tmp_path, planner) == [""]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("outputs", "side", "pads", "reason"),
    [
        (10, 1, 0, "10 of 64 cores compute"),
        (12, 30, 1, "than the largest"),
        (4, 32, 2, "parts at the border move less"),
    ],
)
def test_reports_say_why_cores_differ(
    outputs: int, side: int, pads: int, reason: str, tmp_path: Path
) -> None:
    net = Network(1, 16, side, side)
    kernel = 2 * pads + 1
    x = net.op("Conv", "x", net.weight(outputs, 16, kernel, kernel), pads=[pads] * 4)
    (found,) = check(net.save(tmp_path / "layer.onnx", x), tmp_path, "exact")
    assert reason in found
