"""Instructions read off tile programs are those that a target makes, and take as long."""

from functools import cache
from typing import Any

import pytest

from tests.graph.passes.pass_networks import Builder
from tests.network.fusion.kernel_networks import formed, kernels_of
from tilewright.ir.types import shape_of
from tilewright.network.fusion.forms import described, forms_of
from tilewright.network.fusion.learned.pipeline import instructions_of
from tilewright.planning import Planner
from tilewright.planning.domain import Kernel
from tilewright.targets.dpu.core import core_named
from tilewright.targets.dpu.formats import CATEGORIES
from tilewright.targets.dpu.lowering.network import Lowering
from tilewright.targets.dpu.machine import machine_of
from tilewright.targets.dpu.segments import Segments
from tilewright.targets.dpu.timer import timer
from tilewright.targets.dpu.timing import commands_of
from tilewright.tile.lower import tile
from tilewright.tile.tensors import dense_placements

CORE = core_named("zu2")
MACHINE = machine_of(CORE)
PADS: dict[str, Any] = {"pads": (1, 1, 1, 1)}


@cache
def kernels() -> list[Kernel]:
    """A convolution of several tiles, a pool, both as one kernel, and a sum."""
    net = Builder(1, x=(1, 24, 12, 12))
    y = net.op("relu", net.conv(net.inputs["x"], 28, **PADS))
    module, _ = formed(net, net.op("max_pool", y, kernel=(2, 2), strides=(2, 2)), machine=MACHINE)
    alone = kernels_of(module)
    with forms_of(alone, MACHINE) as trials:
        assert isinstance(trials, list)
        both = [described(kernel, MACHINE, primitive) for kernel, primitive in trials]
    net = Builder(1, x=(1, 24, 12, 12), y=(1, 24, 12, 12))
    module, _ = formed(net, net.op("add", net.inputs["x"], net.inputs["y"]), machine=MACHINE)
    alone += kernels_of(module)
    conv, pool, total = (described(kernel, MACHINE) for kernel in alone)
    return [conv, pool, *both, total]


@pytest.mark.parametrize("number", range(4))
def test_instructions(number: int) -> None:
    kernel = kernels()[number]
    planned = Planner(MACHINE).plan(kernel)
    program = tile(
        kernel, planned.schedule, MACHINE, dense_placements(kernel, MACHINE), check=False
    )
    lowering = Lowering(CORE)
    lowering.kernel(program)
    (operations,) = Segments.read(CORE, lowering.words()).programs
    # INITs and END take a cycle each, and planning counts the bytes of a bias fourfold; of no bias
    # it counts none, and a LOAD brings one row of zeros.
    real = commands_of(CORE, operations)
    real = real[[not op.mnemonic.endswith("init") and op.mnemonic != "end" for op in operations]]
    ours = instructions_of(kernel, planned, MACHINE)
    table = ours.table({})
    for engine in range(len(CATEGORIES)):
        mine, theirs = table[table["engine"] == engine], real[real["engine"] == engine]
        assert mine["cycles"].sum() == theirs["cycles"].sum()
        assert 0 <= len(theirs) - len(mine) <= 1
    assert abs(int(table["bytes"].sum()) - int(real["bytes"].sum())) <= 3 * 28
    cycles = timer(CORE, MACHINE)(kernel, planned.schedule)
    assert ours.cycles({}, ready=True) == pytest.approx(cycles, rel=0.05)
    assert ours.computes == (2 if number == 2 else 1)


CHAINS = {
    "turns": ((1, 24, 14, 14), ("conv", "depthwise", "conv")),
    "windows": ((1, 3, 48, 48), ("first", "pool")),
}
"""Kernels in which engines take turns, and whose loads bring every window anew."""


@pytest.mark.parametrize("name", CHAINS)
def test_chains(name: str) -> None:
    """What chains take follows from durations that are known of other kernels."""
    shape, operations = CHAINS[name]
    net = Builder(1, x=shape)
    y = net.inputs["x"]
    for operation in operations:
        if operation == "pool":
            y = net.op("max_pool", y, kernel=(2, 2), strides=(2, 2))
        elif operation == "first":
            y = net.op("relu", net.conv(y, 16, **PADS))
        elif operation == "depthwise":
            y = net.op("relu", net.conv(y, 144, group=144, **PADS))
        else:
            y = net.op("relu", net.conv(y, 144 if shape_of(y)[1] == 24 else 24, 1))
    module, _ = formed(net, y, machine=MACHINE)
    with forms_of(kernels_of(module), MACHINE) as trials:
        assert isinstance(trials, list)
        forms = [described(kernel, MACHINE, primitive) for kernel, primitive in trials]
    values = {"times.load.bias": 0.25}
    for kernel in forms:
        planned = Planner(MACHINE).plan(kernel)
        cycles = timer(CORE, MACHINE)(kernel, planned.schedule)
        ours = instructions_of(kernel, planned, MACHINE)
        assert ours.cycles(values, ready=True) == pytest.approx(cycles, rel=0.03)
        if name == "turns":
            assert ours.cycles({}, ready=False) != pytest.approx(cycles, rel=0.05)
        else:
            # Nothing has to be learned of windows that the machine describes.
            assert not ours.windows
            assert ours.cycles({}, ready=True) == pytest.approx(cycles, rel=0.05)
