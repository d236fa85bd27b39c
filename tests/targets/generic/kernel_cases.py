"""Kernels with their inputs and expected results, drawn from seeds; and running them as words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.graph.dialect import (
    KernelOp,
    NetworkOp,
    OutputOp,
    YieldOp,
    network_of,
)
from tilewright.graph.kernels import kernel_of, operand_values
from tilewright.graph.operation import Operation
from tilewright.graph.operations import BY_NAME
from tilewright.graph.values import value_names
from tilewright.ir import Attribute, Block, ModuleOp, Region, SSAValue, StringAttr, TensorType, f32
from tilewright.ir.types import FixedType, element_dtype, layout_of, shape_of, tensor
from tilewright.machine import Machine
from tilewright.numerics import sparse
from tilewright.planning.domain import Kernel
from tilewright.planning.layout import Layout
from tilewright.planning.schedule import Schedule
from tilewright.targets.generic.isa import InstructionSet
from tilewright.targets.generic.lower import Lowering
from tilewright.targets.generic.program import Program, decode
from tilewright.targets.generic.simulate import Simulator
from tilewright.tile.dialect import ProgramOp
from tilewright.tile.lower import tile

Array = NDArray[Any]


@dataclass
class Case:
    """One kernel, what goes in, and what must come out."""

    kernel: Kernel
    operands: dict[str, Array]
    """Logical arrays by operand name."""
    expected: Array
    module: ModuleOp


class KernelBuilder:
    """Builds one kernel of fixed16 operations, or of floats."""

    images = "NHWC"
    """The layout of results of rank 4."""

    def __init__(self, seed: int, *, fixed: bool = True, element: Attribute = f32) -> None:
        self.element = element
        self.random = np.random.default_rng(seed)
        self.fixed = fixed
        self.arguments: list[tuple[TensorType[Any], Array]] = []
        self.block = Block()

    def operand(
        self, shape: Sequence[int], fraction: int = 8, bits: int = 16, layout: str = ""
    ) -> SSAValue:
        if self.fixed:
            element: Any = FixedType.of(bits, fraction)
            limit = 1 << (bits - 1) if bits <= 16 else 1 << 24
            spread = self.random.choice([max(limit // 64, 2), limit // 4, limit - 1])
            data: Array = self.random.integers(-spread, spread, shape).astype(f"int{bits}")
        else:
            element = f32 if bits == 32 else self.element
            data = self.random.normal(0, 1, shape).astype(element_dtype(element))
        kind = tensor(shape, element, layout)
        self.arguments.append((kind, data))
        return self.block.insert_arg(kind, len(self.block.args))

    def image(self, *shape: int, fraction: int = 8) -> SSAValue:
        return self.operand(shape, fraction, layout="NHWC" if len(shape) == 4 else "")

    def op(
        self, name: str, *values: SSAValue, result: tuple[int, int] | None = None, **attributes: Any
    ) -> SSAValue:
        made = BY_NAME[name].build_from(values, attributes, node=f"{name}_node")
        kind = made.result.type
        shape = shape_of(made.result)
        element: Any = kind.element_type
        if result is not None and self.fixed:
            element = FixedType.of(*result)
        layout = self.images if len(shape) == 4 else ""
        made.erase(safe_erase=False)
        made = BY_NAME[name].build_from(
            values, attributes, node=f"{name}_node", result_type=tensor(shape, element, layout)
        )
        self.block.add_op(made)
        return made.result

    def plan_only(self, result: SSAValue) -> Kernel:
        """The kernel, without what it computes."""
        return self._closed(result)[2]

    def _closed(self, result: SSAValue) -> tuple[ModuleOp, KernelOp, Kernel]:
        self.block.add_op(YieldOp.build(operands=[[result]]))
        names = [(f"in{i}", kind) for i, (kind, _) in enumerate(self.arguments)]
        network = NetworkOp.of("net", names, ["y"])
        kernel = KernelOp.build(
            operands=[list(network.block.args)],
            result_types=[result.type],
            properties={"symbol": StringAttr("k0")},
            regions=[Region(self.block)],
        )
        network.block.add_op(kernel)
        network.block.add_op(OutputOp.build(operands=[[kernel.result]]))
        module = ModuleOp([network])
        module.verify()
        return module, kernel, _with_constants(kernel_of(kernel, value_names(module)))

    def finish(self, result: SSAValue) -> Case:
        module, kernel, planned = self._closed(result)
        known = value_names(module)
        network = network_of(module)
        values = operand_values(kernel, known)
        data = {a: array for a, (_, array) in zip(network.block.args, self.arguments, strict=True)}
        operands = {name: data[value] for name, value in values.items() if value in data}
        inside: dict[SSAValue, Array] = {
            a: array for a, (_, array) in zip(self.block.args, self.arguments, strict=True)
        }
        last: Array = np.zeros(0)
        for op in self.block.ops:
            if isinstance(op, Operation):
                last = op.evaluate(*(inside[value] for value in op.inputs))
                inside[op.result] = last
        return Case(planned, operands, last, module)


def _with_constants(kernel: Kernel) -> Kernel:
    """The kernel with weights that are constants, as those of most networks are."""
    anchor = kernel.anchor
    inputs = tuple(replace(each, computed=False, constant=None) for each in anchor.inputs)
    return replace(kernel, stages=(replace(anchor, inputs=inputs), *kernel.stages[1:]))


def random_case(seed: int, *, fixed: bool = True) -> Case:
    """A kernel of some kind; kinds take turns."""
    return CASES[seed % len(CASES)](seed, fixed)


def _steps(build: KernelBuilder, x: SSAValue, *, tables: bool = True) -> SSAValue:
    """A random epilogue behind 32-bit (or 16-bit) sums."""
    pick = build.random
    shape = shape_of(x)
    if pick.random() < 0.4:
        fraction = int(pick.integers(6, 12))
        other = build.operand(shape, fraction, layout="NHWC" if len(shape) == 4 else "")
        x = build.op("add", x, other) if pick.random() < 0.7 else build.op("add", other, x)
    choice = int(pick.integers(4))
    if choice == 1:
        x = build.op("relu", x)
    elif choice == 2:
        x = build.op("clip", x, minimum=-0.5, maximum=6.0)
    elif choice == 3:
        x = build.op("leaky_relu", x, alpha=0.1)
    if build.fixed:
        x = build.op("requantise", x, result=(16, int(pick.integers(4, 12))))
    if tables and pick.random() < 0.3:
        name = str(pick.choice(["sigmoid", "tanh", "hard_swish", "exp"]))
        x = build.op(name, x, result=(16, 13))
    return x


def conv_case(seed: int, fixed: bool) -> Case:
    build = KernelBuilder(seed, fixed=fixed)
    pick = build.random
    group = int(pick.choice([1, 1, 1, 2, 3]))
    ci, co = int(pick.integers(1, 24)), int(pick.integers(1, 40))
    kh, kw = int(pick.choice([1, 3, 5])), int(pick.choice([1, 3, 2]))
    h, w = int(pick.integers(6, 18)), int(pick.integers(6, 18))
    n = int(pick.choice([1, 1, 2]))
    x = build.image(n, ci * group, h, w)
    weights = build.operand((co * group, ci, kh, kw), 10, layout="OHWI")
    operands = [x, weights]
    if pick.random() < 0.7:
        operands.append(build.operand((co * group,), 18, bits=32))
    y = build.op(
        "conv",
        *operands,
        strides=tuple(int(v) for v in pick.integers(1, 3, 2)),
        pads=tuple(int(v) for v in pick.integers(0, 3, 4)),
        dilations=(1, 1) if pick.random() < 0.7 else (2, 1),
        group=group,
    )
    return build.finish(_steps(build, y))


def sparse_case(seed: int, density: float) -> Case:
    """A convolution or a product whose weights are compressed."""
    build = KernelBuilder(seed)
    pick = build.random
    rows = seed % 3 == 2
    segment, segments = int(pick.integers(1, 20)), int(pick.integers(1, 5))
    co = int(pick.integers(1, 60))
    kernel = (1, 1) if rows else (int(pick.integers(1, 4)), int(pick.integers(1, 6)))
    weights = pick.integers(-3000, 3000, (co, segment * segments, *kernel)).astype(np.int16)
    weights[pick.random(weights.shape) >= density] = 0
    if rows:
        x = build.image(int(pick.integers(1, 9)), segment * segments)
    else:
        x = build.image(
            int(pick.integers(1, 3)), segment * segments, *pick.integers(5, 12, 2).tolist()
        )
    streams = sparse.encode(weights, segment, 16)
    s = build.operand(streams.shape)
    build.arguments[-1] = (build.arguments[-1][0], streams)
    operands = [x, s]
    if pick.random() < 0.5:
        operands.append(build.operand((co,), 16, 32))
    attributes: dict[str, Any] = {"channels": co, "kernel": kernel}
    cycles = sparse.stream_cycles_of(streams, 16)
    attributes["stream_cycles"] = (cycles.alone, cycles.each, cycles.lead)
    if not rows:
        attributes["pads"] = tuple(int(p) for p in pick.integers(0, 2, 4))
        attributes["strides"] = tuple(int(p) for p in pick.integers(1, 3, 2))
    return build.finish(_steps(build, build.op("sparse_product", *operands, **attributes)))


def depthwise_case(seed: int, fixed: bool) -> Case:
    build = KernelBuilder(seed, fixed=fixed)
    pick = build.random
    c = int(pick.integers(2, 50))
    x = build.image(int(pick.choice([1, 2])), c, int(pick.integers(6, 18)), 11)
    operands = [x, build.operand((c, 1, 3, 3), 10, layout="OHWI")]
    if pick.random() < 0.7:
        operands.append(build.operand((c,), 18, bits=32))
    stride = int(pick.choice([1, 2]))
    y = build.op("conv", *operands, strides=(stride, stride), pads=(1, 1, 1, 1), group=c)
    return build.finish(_steps(build, y))


def matmul_case(seed: int, fixed: bool) -> Case:
    build = KernelBuilder(seed, fixed=fixed)
    pick = build.random
    rows, depth, columns = (int(v) for v in pick.integers(1, (5, 700, 300)))
    a = build.operand((rows, depth), 9)
    swap = bool(pick.integers(2))
    b = build.operand((columns, depth) if swap else (depth, columns), 10)
    operands = [a, b]
    if pick.random() < 0.7:
        operands.append(build.operand((columns,), 19, bits=32))
    y = build.op("matmul", *operands, transpose_b=swap)
    return build.finish(_steps(build, y))


def pool_case(seed: int, fixed: bool) -> Case:
    build = KernelBuilder(seed, fixed=fixed)
    pick = build.random
    x = build.image(int(pick.choice([1, 2])), int(pick.integers(1, 40)), 13, 10)
    kernel = (int(pick.choice([2, 3])), int(pick.choice([2, 3])))
    pads = tuple(int(v) for v in pick.integers(0, 2, 4))
    strides = tuple(int(v) for v in pick.integers(1, 3, 2))
    attributes: dict[str, Any] = {"kernel": kernel, "pads": pads, "strides": strides}
    if pick.random() < 0.5:
        y = build.op("max_pool", x, **attributes)
    else:
        counted = pads if pick.random() < 0.5 else (0, 0, 0, 0)
        y = build.op("average_pool", x, counted=counted, **attributes)
    return build.finish(y)


def points_case(seed: int, fixed: bool) -> Case:
    build = KernelBuilder(seed, fixed=fixed)
    pick = build.random
    shape = (1, int(pick.integers(1, 40)), int(pick.integers(1, 20)), 12)
    x = build.image(*shape, fraction=9)
    kind = int(pick.integers(4))
    if kind == 0:
        y = build.op("add", x, build.image(*shape, fraction=7))
    elif kind == 1:
        y = build.op("mul", x, build.image(1, shape[1], 1, 1, fraction=7))
    elif kind == 2:
        y = build.op("sub", x, build.image(*shape, fraction=11))
    else:
        name = str(pick.choice(["sigmoid", "hard_sigmoid", "neg", "abs", "silu"]))
        table = name in ("sigmoid", "hard_sigmoid", "silu")
        y = build.op(name, x, result=(16, 12) if table else None)
        return build.finish(y)
    return build.finish(build.op("requantise", y, result=(16, 6)) if fixed else y)


def lrn_case(seed: int, fixed: bool) -> Case:
    build = KernelBuilder(seed, fixed=fixed)
    pick = build.random
    x = build.image(1, int(pick.integers(3, 60)), 9, 7)
    y = build.op("lrn", x, size=5, alpha=1e-2, beta=0.75, bias=1.5, result=(16, 9))
    return build.finish(y)


def softmax_case(seed: int, fixed: bool) -> Case:
    build = KernelBuilder(seed, fixed=fixed)
    pick = build.random
    x = build.operand((int(pick.integers(1, 6)), int(pick.integers(2, 900))), 9)
    return build.finish(build.op("softmax", x, axis=-1, result=(16, 14)))


CASES: tuple[Callable[[int, bool], Case], ...] = (
    conv_case,
    matmul_case,
    pool_case,
    conv_case,
    depthwise_case,
    points_case,
    lrn_case,
    softmax_case,
)


@dataclass
class Lowered:
    """A kernel as words, and its main memory."""

    program: Program
    memory: Array
    """Bytes of main memory."""
    case: Case
    output: tuple[int, tuple[int, ...]]
    """Offset and physical shape of the output."""
    starts: list[int]
    tiles: ProgramOp
    """The tile program that the words come from."""
    bases: dict[str, int]
    """Where the arena and the function tables begin in main memory."""

    def run(self) -> Array:
        Simulator(self.program, [(0, self.memory)]).run()
        return self.result()

    def result(self) -> Array:
        operand = self.case.kernel.output
        offset, shape = self.output
        dtype = self.case.expected.dtype
        flat = self.memory[offset : offset + int(np.prod(shape)) * dtype.itemsize]
        return Layout.parse(operand.layout, len(operand.shape)).unpack(
            flat.view(dtype).reshape(shape), operand.shape
        )


def lower_case(
    case: Case, schedule: Schedule, machine: Machine, instructions: InstructionSet
) -> Lowered:
    """Compile a kernel to words with its operands in a fresh main memory."""
    placements: dict[str, tuple[str, int, tuple[int, ...]]] = {}
    offset = 0
    images: list[tuple[int, bytes]] = []
    output: tuple[int, tuple[int, ...]] = (0, ())
    for operand in case.kernel.operands:
        layout = Layout.parse(operand.layout, len(operand.shape))
        placements[operand.name] = ("activations", offset, layout.strides(operand.shape))
        if operand.name == case.kernel.output.name:
            output = (offset, layout.physical_shape(operand.shape))
        else:
            data = case.operands[operand.name]
            images.append((offset, layout.pack(data).tobytes()))
        offset += -(-layout.size(operand.shape) * operand.element_bytes // 64) * 64
    program = tile(case.kernel, schedule, machine, placements)
    program.verify()
    memory = np.zeros(offset, np.uint8)
    for start, data in images:
        memory[start : start + len(data)] = np.frombuffer(data, np.uint8)
    bases = {"activations": 0, "tables": offset}
    lowering = Lowering(instructions, bases, {"activations": memory})
    lowering.kernel(program)
    words, starts = lowering.words()
    tables = np.frombuffer(bytes(lowering.table_image), np.uint8)
    memory = np.concatenate([memory, tables])
    return Lowered(decode(instructions, words), memory, case, output, starts, program, bases)


__all__ = [
    "CASES",
    "Case",
    "KernelBuilder",
    "Lowered",
    "element_dtype",
    "layout_of",
    "lower_case",
    "random_case",
    "sparse_case",
]
