"""What features say of a kernel's engines is what its instructions say."""

from functools import cache
from typing import Any

import pytest

from tests.graph.passes.pass_networks import Builder
from tests.network.fusion.kernel_networks import formed, kernels_of
from tilewright.network.fusion.forms import described, forms_of
from tilewright.network.fusion.learned.features import features_of
from tilewright.planning import plan
from tilewright.planning.bounds import main_bandwidth
from tilewright.planning.domain import Kernel
from tilewright.targets.dpu.core import core_named
from tilewright.targets.dpu.formats import CATEGORIES
from tilewright.targets.dpu.lowering.network import Lowering
from tilewright.targets.dpu.machine import machine_of
from tilewright.targets.dpu.segments import Segments
from tilewright.targets.dpu.timer import place_dense
from tilewright.targets.dpu.timing import commands_of
from tilewright.tile.lower import tile

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
def test_engines(number: int) -> None:
    kernel = kernels()[number]
    found = plan(kernel, MACHINE)
    base, features = features_of(kernel, found, MACHINE)
    program = tile(kernel, found.schedule, MACHINE, place_dense(kernel), check=False)
    lowering = Lowering(CORE)
    lowering.kernel(program)
    (operations,) = Segments.read(CORE, lowering.words()).programs
    table = commands_of(CORE, operations)
    # INITs and END take a cycle each, and planning counts the bytes of a bias fourfold.
    inits = [one.mnemonic.endswith("init") or one.mnemonic == "end" for one in operations]
    for engine in ("conv", "misc"):
        mine = table["engine"] == CATEGORIES.index(engine)
        computed = int(table["cycles"][mine].sum()) - int(mine[inits].sum())
        assert base * features[f"busy.{engine}"] == pytest.approx(computed, abs=1e-6)
    moved = base * features["bytes"] * main_bandwidth(MACHINE)
    extra = round(moved) - int(table["bytes"].sum())
    assert extra >= 0 and (extra % (3 * 28) == 0 if number in (0, 2) else extra == 0)
    lines = sum(one.mnemonic in ("load", "save") for one in operations)
    assert base * features["lines"] >= lines
    assert features["floor"] <= 0 and features["chain"] == (number == 2)
