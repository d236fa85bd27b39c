"""One kernel as words of a core, executed, beside what the graph's operations mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.targets.generic.kernel_cases import Case, KernelBuilder

from tilewright.graph.placement import ACTIVATIONS, WEIGHTS
from tilewright.ir import SSAValue
from tilewright.machine import Machine
from tilewright.planning import Planner
from tilewright.planning.layout import Layout
from tilewright.planning.schedule import Schedule
from tilewright.targets.dpu.core import Core
from tilewright.targets.dpu.execute import State, execute, run
from tilewright.targets.dpu.lowering.network import Lowering
from tilewright.targets.dpu.machine import machine_of
from tilewright.targets.dpu.registers import BIASES, GUARD, REGISTERS
from tilewright.targets.dpu.segments import Segments
from tilewright.tile.lower import tile


@dataclass
class Lowered:
    """A kernel as words, and its main memory by base register."""

    segments: Segments
    memory: dict[int, Any]
    case: Case
    output: tuple[int, tuple[int, ...]]
    schedule: Schedule

    def result(self) -> Any:
        operand = self.case.kernel.output
        offset, shape = self.output
        flat = self.memory[REGISTERS[ACTIVATIONS]][offset + GUARD :][: int(np.prod(shape))]
        return Layout.parse(operand.layout, len(operand.shape)).unpack(
            flat.reshape(shape), operand.shape
        )

    def run(self) -> Any:
        """The result where instructions run in the program's order, and in the tokens', which
        order all that touches one place."""
        (program,) = self.segments.programs
        assert not self.segments.problems()
        state = State(self.segments.core, self.memory)
        for operation in program:
            execute(state, operation)
        first = self.result().copy()
        self.memory[REGISTERS[ACTIVATIONS]][self.output[0] + GUARD :] = 0
        run(self.segments.core, program, self.memory)
        np.testing.assert_array_equal(self.result(), first)
        return first


def lower_case(
    case: Case,
    core: Core,
    machine: Machine | None = None,
    schedule: Schedule | None = None,
    *,
    interleaved: bool = True,
) -> Lowered:
    """Plan a kernel, for a machine that may have less memory than the core, and lower it."""
    machine = machine or machine_of(core)
    schedule = schedule or Planner(machine).plan(case.kernel).schedule
    placements: dict[str, tuple[str, int, tuple[int, ...]]] = {}
    ends = {WEIGHTS: 0, ACTIVATIONS: 0}
    images: list[tuple[str, int, bytes]] = []
    output: tuple[int, tuple[int, ...]] = (0, ())
    for operand in case.kernel.operands:
        layout = Layout.parse(operand.layout, len(operand.shape))
        arena = WEIGHTS if operand.role in ("weight", "bias") else ACTIVATIONS
        offset = ends[arena]
        placements[operand.name] = (arena, offset, layout.strides(operand.shape))
        if operand.name == case.kernel.output.name:
            output = (offset, layout.physical_shape(operand.shape))
        else:
            images.append((arena, offset, layout.pack(case.operands[operand.name]).tobytes()))
        ends[arena] += -(-layout.size(operand.shape) * operand.element_bytes // 64) * 64
    memory = {name: np.zeros(size, np.uint8) for name, size in ends.items()}
    # What lies around the activations must not matter.
    memory[ACTIVATIONS] = np.full(ends[ACTIVATIONS] + 2 * GUARD, 77, np.uint8)
    for arena, offset, data in images:
        start = offset + (GUARD if arena == ACTIVATIONS else 0)
        memory[arena][start : start + len(data)] = np.frombuffer(data, np.uint8)
    program = tile(case.kernel, schedule, machine, placements)
    lowering = Lowering(core, memory[WEIGHTS])
    lowering.kernel(program)
    if not interleaved:
        lowering.programs[-1].order.sort()
    words = lowering.words()
    memory[BIASES] = np.frombuffer(bytes(lowering.image), np.uint8)
    registers = {REGISTERS[name]: data.view(np.int8) for name, data in memory.items()}
    return Lowered(Segments.read(core, words), registers, case, output, schedule)


def bias(build: KernelBuilder, count: int, point: int) -> SSAValue:
    """A bias of 8-bit numbers times a power of two, at a sum's binary point."""
    value = build.operand((count,), point, bits=32)
    kind, _ = build.arguments[-1]
    numbers = build.random.integers(-128, 128, count) << int(build.random.integers(0, 9))
    build.arguments[-1] = (kind, numbers.astype(np.int32))
    return value


def image(build: KernelBuilder, *shape: int, fraction: int = 4) -> SSAValue:
    """An image of bytes."""
    return build.operand(shape, fraction, 8, "NHWC")


def convolution(seed: int) -> Case:
    build = KernelBuilder(seed)
    pick = build.random
    group = int(pick.choice([1, 1, 1, 2]))
    ci, co = group * int(pick.integers(1, 30)), group * int(pick.integers(1, 30))
    kernel = tuple(int(v) for v in pick.choice([1, 2, 3, 5, 7], 2))
    strides = tuple(int(v) for v in pick.choice([1, 1, 2, 3], 2))
    pads = tuple(int(pick.integers(0, kernel[axis % 2])) for axis in range(4))
    x = image(build, int(pick.choice([1, 2])), ci, *(int(v) for v in pick.integers(8, 30, 2)))
    operands = [x, build.operand((co, ci // group, *kernel), 5, 8, "OHWI")]
    if pick.random() < 0.7:
        operands.append(bias(build, co, 9))
    y = build.op("conv", *operands, strides=strides, pads=pads, dilations=(1, 1), group=group)
    return closed(build, y, 9)


def first_layer(seed: int) -> Case:
    """A convolution of few input channels, whose rows of windows become channels."""
    build = KernelBuilder(seed)
    pick = build.random
    ci, co = int(pick.integers(1, 4)), int(pick.integers(1, 30))
    kernel = int(pick.integers(1, 8)), int(pick.integers(2, 8))
    strides = int(pick.integers(1, 4)), int(pick.integers(1, min(kernel[1], 3) + 1))
    pads = tuple(int(pick.integers(0, max(kernel[axis % 2] // 2, 1) + 1)) for axis in range(4))
    pads = tuple(min(pad, kernel[axis % 2] - 1) for axis, pad in enumerate(pads))
    x = image(build, 1, ci, *(int(v) for v in pick.integers(12, 40, 2)))
    operands = [x, build.operand((co, ci, *kernel), 5, 8, "OHWI")]
    if seed % 3:
        operands.append(bias(build, co, 9))
    return closed(build, build.op("conv", *operands, strides=strides, pads=pads), 9)


def closed(build: KernelBuilder, y: SSAValue, point: int) -> Case:
    """A kernel that ends with an activation, or none, and the result's rounding."""
    kind = int(build.random.integers(4))
    if kind == 1:
        y = build.op("relu", y)
    if kind == 3:
        y = build.op("leaky_relu", y, alpha=0.1, factor=(26, 8))
    result = 4 if kind == 2 else int(build.random.integers(-1, point + 1))
    if kind == 2:
        y = build.op("clip", y, minimum=0.0, maximum=6.0)
    return build.finish(build.op("requantise", y, result=(8, result)))


def product(seed: int) -> Case:
    build = KernelBuilder(seed)
    rows, depth, columns = (int(v) for v in build.random.integers(1, (20, 400, 200)))
    shape = (rows, 1, depth) if seed % 3 == 2 else (rows, depth)
    x, weight = build.operand(shape, 4, 8), build.operand((columns, depth), 6, 8)
    operands = [x, weight, bias(build, columns, 10)][: 2 + seed % 2]
    return closed(build, build.op("matmul", *operands, transpose_b=True), 10)


def depthwise(seed: int) -> Case:
    build = KernelBuilder(seed)
    pick = build.random
    c = int(pick.integers(2, 50))
    kernel, stride = int(pick.choice([3, 5])), int(pick.choice([1, 2]))
    x = image(build, 1, c, 24, 21)
    operands = [x, build.operand((c, 1, kernel, kernel), 5, 8, "HWIO")]
    if seed % 3:
        operands.append(bias(build, c, 9))
    pads = tuple(int(v) for v in pick.integers(0, kernel, 4))
    y = build.op("conv", *operands, strides=(stride, stride), pads=pads, group=c)
    return closed(build, y, 9)


def pool(seed: int) -> Case:
    build = KernelBuilder(seed)
    pick = build.random
    x = image(build, 1, int(pick.integers(1, 40)), int(pick.integers(14, 40)), 18)
    kernel = tuple(int(v) for v in pick.choice([1, 2, 3, 5, 7, 9, 14], 2))
    strides = tuple(int(v) for v in pick.choice([1, 2, 3], 2))
    values: dict[str, Any] = {"kernel": kernel, "strides": strides}
    if seed % 2:
        values["pads"] = tuple(int(pick.integers(0, min(kernel[i % 2], 3))) for i in range(4))
        return build.finish(build.op("max_pool", x, **values))
    if pick.random() < 0.5:
        values["kernel"] = kernel = (kernel[0], kernel[0])
    values["factor"] = machine_of_averages(*kernel)
    return build.finish(build.op("average_pool", x, **values))


def machine_of_averages(height: int, width: int) -> tuple[int, int]:
    """The factor that machines of cores have for windows of that size."""
    from tilewright.targets.dpu.machine import ROUNDING

    found = ROUNDING.average(height, width)
    assert found is not None
    return found


def points(seed: int) -> Case:
    build = KernelBuilder(seed)
    pick = build.random
    shape = (int(pick.choice([1, 2])), int(pick.integers(1, 40)), int(pick.integers(5, 30)), 12)
    low, high = (int(v) for v in pick.integers(-1, 8, 2))
    operands = image(build, *shape, fraction=low), image(build, *shape, fraction=high)
    if seed % 3 == 2:
        y = build.op("mul", *operands)
        return build.finish(build.op("requantise", y, result=(8, low + high - 4)))
    y = build.op("add", *operands, guard=2)
    if seed % 2:
        y = build.op("relu", y)
    result = min(low, high) + int(pick.integers(-3, 3))
    return build.finish(build.op("requantise", y, result=(8, result)))
