"""Chains that hand on their results in the banks: bit for bit, race-free, and with the traffic that
was planned."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.dpu.lowering.lowered_cases import Lowered, bias, image, lower_case
from tests.targets.dpu.lowering.lowered_cases import machine_of_averages as averages
from tests.targets.dpu.lowering.test_lowered_kernels import SMALL
from tests.targets.generic.kernel_cases import Case, KernelBuilder

from tilewright.graph.operation import Operation
from tilewright.ir import SSAValue, UnitAttr
from tilewright.ir.types import shape_of
from tilewright.machine import Machine
from tilewright.planning import Planner
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.dpu.core import ISA0, ZU2, Core
from tilewright.targets.dpu.machine import machine_of
from tilewright.targets.dpu.registers import BIASES, REGISTERS
from tilewright.targets.dpu.timing import time_program

OLD = replace(ISA0, name="old", rows=4, channels=4, misc_rows=2)
CORES = {"small": SMALL, "zu2": ZU2, "old": OLD}

CHAINS: dict[str, tuple[str, ...]] = {
    "conv-pool": ("conv", "pool"),
    "conv-add": ("conv", "add"),
    "depthwise-add": ("depthwise", "add"),
    "conv-conv": ("conv", "conv"),
    "conv-depthwise": ("conv", "depthwise"),
    "depthwise-conv": ("depthwise", "conv"),
    "pool-conv": ("pool", "conv"),
    "add-conv": ("add", "conv"),
    "conv-conv-pool": ("conv", "conv", "pool"),
    "bottleneck": ("conv", "conv", "conv", "add"),
    "inverted-residual": ("conv", "depthwise", "conv", "add"),
}


class Layers:
    """Layers with random sizes, one behind the other in one kernel."""

    def __init__(self, seed: int, kinds: tuple[str, ...]) -> None:
        self.build = KernelBuilder(seed)
        self.pick = self.build.random
        self.channels = int(self.pick.integers(4, 18))
        size = int(self.pick.integers(14, 33))
        self.first = image(self.build, 1, self.channels, size, size + 3)
        self.value: SSAValue = self.first
        self.point = 4
        for number, kind in enumerate(kinds):
            self.add(kind, begins=bool(number))

    def add(self, kind: str, *, begins: bool) -> None:
        """One layer behind the others; ``begins`` if it is not the first."""
        build, pick, point = self.build, self.pick, self.point
        small = min(shape_of(self.value)[2:]) < 12
        k = int(pick.choice([1, 3] if small else [1, 3, 3, 5]))
        stride = 1 if small else int(pick.choice([1, 1, 2, 3]))
        values: dict[str, Any] = {"strides": (stride, stride)}
        values["pads"] = tuple(int(v) for v in pick.integers(0, (k - 1) // 2 + 1, 4))
        if kind == "pool" and pick.random() < 0.5:
            value = build.op("max_pool", self.value, kernel=(k, k), **values)
        elif kind == "pool":
            values = {"kernel": (k, k), "strides": (stride, stride), "factor": averages(k, k)}
            value = build.op("average_pool", self.value, **values)
        elif kind == "add":
            shape = shape_of(self.value)
            # A residual: what the chain reads, if it has the size, or another image.
            same = shape == shape_of(self.first)
            other = self.first if same and pick.random() < 0.7 else image(build, *shape)
            value = build.op("add", self.value, other, guard=2)
        else:
            co = int(pick.integers(4, 18)) if kind == "conv" else self.channels
            if kind == "conv":
                weight = build.operand((co, self.channels, k, k), 5, 8, "OHWI")
            else:
                weight = build.operand((co, 1, k, k), 5, 8, "HWIO")
                values["group"] = co
            operands = [self.value, weight]
            if pick.random() < 0.7:
                operands.append(bias(build, co, point + 5))
            value, self.channels = build.op("conv", *operands, **values), co
        first = value.owner
        assert isinstance(first, Operation)
        if begins:
            first.begins = UnitAttr()
        if kind != "pool":
            value = build.op("relu", value) if pick.random() < 0.5 else value
            self.point = int(pick.integers(2, 6))
            value = build.op("requantise", value, result=(8, self.point))
        self.value = value


def crowded(core: Core, part: int) -> Machine:
    """The machine of a core of which a part of the banks is used, so that there are many tiles."""
    room = core.group_bytes // part
    return machine_of(core).with_values({"memory.vb0.bytes": room, "memory.vb1.bytes": room})


def chain(kinds: tuple[str, ...], seed: int) -> Case:
    layers = Layers(seed, kinds)
    return layers.build.finish(layers.value)


def check(name: str, seed: int, core: Core, part: int) -> Lowered:
    case = chain(CHAINS[name], seed)
    made = lower_case(case, core, crowded(core, part))
    assert len(made.schedule.inner) == len(CHAINS[name]) - 1
    assert not made.segments.problems()
    np.testing.assert_array_equal(made.run(), case.expected)
    return made


@pytest.mark.few(2)
@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("seed", but_fast(range(3), range(1)))
def test_words_compute_what_the_graph_means(name: str, seed: int) -> None:
    check(name, seed, SMALL, (1, 2, 4)[seed])


@pytest.mark.slow
@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("seed", range(10, 12))
def test_words_compute_what_the_graph_means_on_other_cores(name, core, seed: int) -> None:
    check(name, seed, CORES[core], (1, 2, 4, 8)[seed % 4])


@pytest.mark.few(2)
@pytest.mark.parametrize("name", but_fast(CHAINS, list(CHAINS)[::3]))
def test_as_many_bytes_pass_main_memory_as_were_planned(name: str) -> None:
    """But for biases, which the banks have as single bytes, and zeros where there is none."""
    case = chain(CHAINS[name], 20)
    machine = crowded(SMALL, 2)
    made = lower_case(case, SMALL, machine)
    (program,) = made.segments.programs
    loads = [op.fields for op in program if op.mnemonic == "load"]
    biases = sum(f["channel"] for f in loads if f["reg_id"] == REGISTERS[BIASES])
    moved = time_program(SMALL, program).main_bytes - biases
    planned = Planner(machine).plan(case.kernel)
    sums = [o for o in case.kernel.operands if o.role == "bias"]
    most = sum(np.prod(o.shape) * 4 for o in sums) * planned.candidates
    assert moved <= planned.moved_bytes <= moved + most
    if not sums:
        assert moved == planned.moved_bytes


@pytest.mark.few(2)
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_that_fits_whole_moves_everything_once(name: str) -> None:
    """What is not internal, that is, weights included (DNNVM, section 4.3, condition 2)."""
    case = chain(CHAINS[name], 20)
    kernel, machine = case.kernel, machine_of(SMALL)
    (level,) = Planner(machine).plan(kernel).schedule.levels
    whole = replace(level, tile=tuple(kernel.anchor.extents.items()), order=())
    lowered = lower_case(
        case, SMALL, machine, _whole(Planner(machine).plan(kernel).schedule, whole)
    )
    np.testing.assert_array_equal(lowered.run(), case.expected)
    internal = {operand.name for operand in kernel.produced}
    operands = {o.name: o for o in kernel.operands if o.name not in internal and o.role != "bias"}
    (program,) = lowered.segments.programs
    loads = [op.fields for op in program if op.mnemonic == "load"]
    biases = sum(f["channel"] for f in loads if f["reg_id"] == REGISTERS[BIASES])
    moved = time_program(SMALL, program).main_bytes - biases
    most = sum(int(np.prod(o.shape)) * o.element_bytes for o in operands.values())
    assert 0.95 * most < moved <= most  # Rows at the end that no window reaches are not loaded.


def _whole(schedule: Schedule, level: Level) -> Schedule:
    """The schedule with one tile for everything."""
    producers = tuple(replace(producer, kept=()) for producer in schedule.producers)
    return replace(schedule, levels=(level,), producers=producers, kept=())
