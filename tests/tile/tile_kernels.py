"""Random kernels with their meaning, machines, and random valid schedules."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.graph.dialect import KernelOp, YieldOp
from tilewright.graph.kernels import kernel_of, operand_values
from tilewright.graph.operations import BY_NAME, Operation
from tilewright.ir import Attribute, Block, Region, SSAValue, StringAttr, f32
from tilewright.ir.types import Array, FixedType, element_dtype, shape_of, tensor, tensor_type
from tilewright.machine import Engine, Machine, Memory, Move, Primitive, Storage, Synchronisation
from tilewright.planning.domain import Kernel
from tilewright.planning.schedule import Level, Schedule

OPERATIONS = tuple(sorted(BY_NAME))


@dataclass
class Chain:
    """A kernel in the making: operations in a graph.kernel, and arrays of their operands."""

    fixed: bool
    generator: np.random.Generator
    outer: Block = field(default_factory=Block)
    names: dict[SSAValue, str] = field(default_factory=dict)
    arrays: dict[SSAValue, Array] = field(default_factory=dict)
    operations: list[Callable[[Block, dict[SSAValue, SSAValue]], SSAValue]] = field(
        default_factory=list
    )
    inputs: list[SSAValue] = field(default_factory=list)
    values: dict[int, Array] = field(default_factory=dict)

    def operand(self, name: str, shape: tuple[int, ...], bits: int = 16, fraction: int = 8):
        """A tensor from outside, with random content."""
        element: Attribute = FixedType.of(bits, fraction) if self.fixed else f32
        value = self.outer.insert_arg(tensor(shape, element), len(self.outer.args))
        dtype = element_dtype(element)
        if self.fixed:
            limit = 2000 if bits == 16 else 200000
            array = self.generator.integers(-limit, limit, shape).astype(dtype)
        else:
            array = self.generator.normal(size=shape).astype(dtype)
        self.names[value] = name
        self.arrays[value] = array
        self.inputs.append(value)
        return value

    def narrow(self, op: Any, value: SSAValue) -> SSAValue:
        """A value in 16 bits, as the next operation reads it."""
        element = tensor_type(value).element_type
        if isinstance(element, FixedType) and element.bits.data == 32:
            return op("requantise", value, result_type=tensor(shape_of(value), FixedType.of(16, 7)))
        return value

    def finish(self, build: Callable[[Any], SSAValue], symbol: str) -> tuple[Kernel, Any]:
        """The kernel, and a function from nothing to its operands' arrays and its result."""
        body = Block(arg_types=[value.type for value in self.inputs])
        inner = dict(zip(self.inputs, body.args, strict=True))

        def op(name: str, *operands: Any, result_type: Attribute | None = None, **attributes: Any):
            made = BY_NAME[name].build_from(
                [inner.get(value, value) for value in operands],
                attributes,
                node=f"node_{name}",
                result_type=result_type,
            )
            body.add_op(made)
            return made.result

        result = build(op)
        body.add_op(YieldOp.build(operands=[[result]]))
        kernel_op = KernelOp.build(
            operands=[self.inputs],
            result_types=[result.type],
            properties={"symbol": StringAttr(symbol)},
            regions=[Region(body)],
        )
        self.outer.add_op(kernel_op)
        self.names[kernel_op.result] = "y"
        kernel = kernel_of(kernel_op, self.names)
        known = {inner[value]: array for value, array in self.arrays.items()}
        for operation in kernel_op.operations:
            assert isinstance(operation, Operation)
            known[operation.result] = operation.evaluate(*(known[v] for v in operation.inputs))
        behind = operand_values(kernel_op, self.names)
        feeds = {o.name: self.arrays[behind[o.name]] for o in kernel.inputs}
        return kernel, (feeds, known[result])


@dataclass(frozen=True)
class Case:
    """A kernel with operands and the result that they must give."""

    kernel: Kernel
    feeds: dict[str, Array]
    expected: Array

    def check(self, result: Array) -> None:
        if self.expected.dtype.kind == "f":
            np.testing.assert_allclose(result, self.expected, rtol=2e-5, atol=2e-5)
        else:
            np.testing.assert_array_equal(result, self.expected)


def _epilogue(chain: Chain, op: Any, value: SSAValue, residual: Any, rng: random.Random):
    """A chain of maps after the anchor."""
    if residual is not None:
        value = op("add", *rng.sample([value, residual], 2))
    for name in rng.sample(["relu", "clip", "leaky_relu"], rng.randint(0, 2)):
        values = {"clip": {"minimum": -0.5, "maximum": 90.0}, "leaky_relu": {"alpha": 0.1}}
        value = op(name, value, **values.get(name, {}))
    element = tensor_type(value).element_type
    if chain.fixed and isinstance(element, FixedType) and element.bits.data == 32:
        value = op("requantise", value, result_type=tensor(shape_of(value), FixedType.of(16, 7)))
        if rng.random() < 0.3:
            value = op("sigmoid", value, result_type=tensor(shape_of(value), FixedType.of(16, 13)))
    return value


def convolution(seed: int, fixed: bool) -> Case:
    rng = random.Random(seed)
    chain = Chain(fixed, np.random.default_rng(seed))
    group = rng.choice([1, 1, 1, 2, 3])
    ci, co = rng.randint(1, 5), rng.randint(1, 7)
    if rng.random() < 0.2:
        ci, co, group = 1, 1, rng.choice([2, 5])
    n, h, w = rng.choice([1, 1, 2]), rng.randint(4, 9), rng.randint(4, 9)
    kh, kw = rng.randint(1, 3), rng.randint(1, 3)
    dilations = rng.choice([(1, 1), (1, 1), (2, 1)])
    strides = rng.choice([(1, 1), (2, 2), (1, 2), (3, 1)])
    pads = tuple(rng.randint(0, 2) for _ in range(4))
    x = chain.operand("x", (n, ci * group, h, w))
    weight = chain.operand("w", (co * group, ci, kh, kw), fraction=10)
    operands = [x, weight]
    if rng.random() < 0.7:
        operands.append(chain.operand("b", (co * group,), 32, 18))
    oh, ow = (
        (s + pads[i] + pads[2 + i] - (k - 1) * dilations[i] - 1) // strides[i] + 1
        for i, (s, k) in enumerate(((h, kh), (w, kw)))
    )
    residual = None
    if rng.random() < 0.4:
        shape = (n, co * group, oh, ow) if rng.random() < 0.7 else (1, co * group, 1, 1)
        residual = chain.operand("r", shape, 16, 9)

    def build(op: Any) -> SSAValue:
        value = op(
            "conv",
            *operands,
            strides=strides,
            pads=pads,
            dilations=dilations,
            group=group,
        )
        return _epilogue(chain, op, value, residual, rng)

    kernel, (feeds, expected) = chain.finish(build, f"conv{seed}")
    return Case(kernel, feeds, expected)


def pool(seed: int, fixed: bool) -> Case:
    rng = random.Random(seed)
    chain = Chain(fixed, np.random.default_rng(seed))
    x = chain.operand("x", (rng.choice([1, 2]), rng.randint(1, 6), 9, 8))
    kernel = (rng.randint(1, 3), rng.randint(2, 3))
    attributes: dict[str, Any] = {
        "kernel": kernel,
        "strides": rng.choice([(1, 1), (2, 2), (3, 2)]),
        "pads": tuple(rng.randint(0, min(1, kernel[i % 2] - 1)) for i in range(4)),
    }
    name = rng.choice(["max_pool", "average_pool"])
    if name == "average_pool" and rng.random() < 0.5:
        attributes["counted"] = attributes["pads"]

    def build(op: Any) -> SSAValue:
        return _epilogue(chain, op, op(name, x, **attributes), None, rng)

    made, (feeds, expected) = chain.finish(build, f"pool{seed}")
    return Case(made, feeds, expected)


def product(seed: int, fixed: bool) -> Case:
    rng = random.Random(seed)
    chain = Chain(fixed, np.random.default_rng(seed))
    m, k, n = rng.randint(1, 7), rng.randint(1, 12), rng.randint(1, 9)
    batch = rng.choice([(), (), (3,), (2, 3)])
    swap_a, swap_b = rng.random() < 0.3, rng.random() < 0.5
    a = chain.operand("x", (*batch, *((k, m) if swap_a else (m, k))))
    shared = () if rng.random() < 0.5 else batch
    b = chain.operand("w", (*shared, *((n, k) if swap_b else (k, n))), fraction=10)
    operands = [a, b]
    if rng.random() < 0.6:
        operands.append(chain.operand("b", (n,), 32, 18))

    def build(op: Any) -> SSAValue:
        value = op("matmul", *operands, transpose_a=swap_a, transpose_b=swap_b)
        return _epilogue(chain, op, value, None, rng)

    kernel, (feeds, expected) = chain.finish(build, f"product{seed}")
    return Case(kernel, feeds, expected)


def other(seed: int, fixed: bool) -> Case:
    """lrn, softmax, sums, maps as anchors."""
    rng = random.Random(seed)
    chain = Chain(fixed, np.random.default_rng(seed))
    name = rng.choice(["lrn", "softmax", "add", "relu", "mul", "reduce_mean"])
    shape = (rng.choice([1, 2]), rng.randint(2, 7), rng.randint(1, 6), rng.randint(1, 6))
    x = chain.operand("x", shape, 16, 8)
    second = None
    if name in ("add", "mul"):
        second = chain.operand("r", shape if rng.random() < 0.5 else (1, shape[1], 1, 1), 16, 9)

    def build(op: Any) -> SSAValue:
        if name == "lrn":
            return op("lrn", x, size=rng.choice([3, 4, 5]), alpha=0.02, beta=0.75, bias=1.5)
        if name == "softmax":
            return op("softmax", x, axis=rng.choice([1, 3, -1]))
        if name == "reduce_mean":
            return op("reduce_mean", x, axes=rng.choice([(2, 3), (1,)]), keep_dims=True)
        value = op(name, x, *([second] if second is not None else []))
        return _epilogue(chain, op, value, None, rng)

    kernel, (feeds, expected) = chain.finish(build, f"other{seed}")
    return Case(kernel, feeds, expected)


def case(seed: int) -> Case:
    """A kernel of any kind, float or fixed."""
    kinds = [convolution, convolution, convolution, pool, product, other]
    return kinds[seed % len(kinds)](seed, fixed=seed % 2 == 0 or seed % 5 == 0)


def machine(
    *,
    engines: tuple[str, str, str] = ("load", "store", "compute"),
    in_place: tuple[str, ...] = (),
    joined: bool = True,
    sizes: Any = "run time",
    bytes: int = 1 << 20,
) -> Machine:
    """A machine with a memory for inputs, one for weights, one for outputs and residuals."""
    load, store, compute = engines
    operands = {
        "input": Storage(memory="a"),
        "weight": Storage(memory="b", multiples={"co": 4}),
        "bias": Storage(memory="b", joined="weight" if joined else None),
        "residual": Storage(memory="c"),
        "output": Storage(memory="c"),
    }
    operands.update({role: Storage(memory="dram") for role in in_place})
    return Machine(
        name="toy",
        clock_hz=1e9,
        memories=(
            Memory(name="dram"),
            *(Memory(name=name, bytes=bytes, granule=8) for name in "abc"),
        ),
        moves=(
            *(
                Move(name=f"in_{n}", source="dram", target=n, engine=load, bytes_per_cycle=8)
                for n in "abc"
            ),
            Move(name="out", source="c", target="dram", engine=store, bytes_per_cycle=8),
        ),
        engines=tuple(Engine(name=name) for name in dict.fromkeys(engines)),
        primitives=(
            Primitive(
                name="any",
                operations=OPERATIONS,
                engine=compute,
                operands=operands,
                cycles="1",
                peak="1",
                epilogue_any=True,
                sizes=sizes,
            ),
        ),
        synchronisation=Synchronisation(style="none" if len(in_place) == 5 else "counters"),
    )


def toy(seed: int) -> Machine:
    """One of several machines."""
    rng = random.Random(seed)
    everything = ("input", "weight", "bias", "residual", "output")
    return machine(
        engines=rng.choice(
            [("load", "store", "compute")] * 3
            + [("dma", "dma", "compute"), ("load", "store", "store")]
        ),
        in_place=rng.choice([(), (), (), everything, ("weight", "bias"), ("output",)]),
        joined=rng.random() < 0.6,
        sizes=rng.choice(["run time", "run time", "fixed"]),
    )


def random_schedule(case: Case, machine: Machine, seed: int) -> Schedule:
    """Valid: reduction loops innermost in the output's level; what must be whole is whole."""
    rng = random.Random(seed)
    anchor = case.kernel.anchor
    sizes = dict(anchor.extents)
    reduced = set(anchor.reduction)
    whole = set(reduced) if anchor.operation in ("lrn", "softmax") else set[str]()
    if "g" in sizes:
        whole |= {"co"}
    slots = tuple((o.name, rng.choice([1, 2, 2, 3])) for o in case.kernel.operands)

    def level(memory: str, inside: bool, cut: float, shuffled: bool = False) -> Level:
        tile: dict[str, int] = {}
        for dim, extent in sizes.items():
            fits = dim not in whole and not (dim in reduced and not inside)
            tile[dim] = rng.randint(1, extent) if fits and rng.random() < cut else extent
        parallel = [d for d in sizes if d not in reduced]
        rest = [d for d in sizes if d in reduced]
        rng.shuffle(parallel)
        rng.shuffle(rest)
        order = [*parallel, *rest]
        if shuffled:
            rng.shuffle(order)
        sizes.update(tile)
        return Level(memory, tuple(tile.items()), tuple(order))

    primitive = machine.primitives[0]
    output, within = primitive.operands["output"].memory, primitive.engine
    if rng.random() < 0.4 and output != "dram":
        # The output stays in its level while the inner level's loops run in any order.
        levels = (level(output, False, 0.5), level(within, True, 0.6, shuffled=True))
    else:
        levels = (level(within, True, 0.6),)
        if output == "dram" and rng.random() < 0.5:
            levels = (*levels, level(within, True, 0.4))
    return Schedule("any", levels, slots, (("vector", "co"),))


def deep_machine(seed: int) -> Machine:
    """A machine whose operands pass a memory on the way to and from the primitive's own."""
    rng = random.Random(seed)
    engines = rng.choice(
        [
            ("in", "feed", "compute", "drain", "out"),
            ("dma", "feed", "compute", "feed", "dma"),
            ("dma", "dma", "compute", "dma", "dma"),
            ("in", "compute", "compute", "compute", "out"),
        ]
    )
    into, feed, compute, drain, out = engines
    paths = [
        ("dram", "l1", into), ("l1", "l0a", feed), ("l1", "l0b", feed), ("dram", "ub", into),
        ("l0c", "ub", drain), ("ub", "dram", out),
    ]  # fmt: skip
    joined = "weight" if rng.random() < 0.5 else None
    return Machine(
        name="deep",
        clock_hz=1e9,
        memories=(
            Memory(name="dram"),
            *(Memory(name=n, bytes=1 << 20, granule=8) for n in ("l1", "l0a", "l0b", "l0c", "ub")),
        ),
        moves=tuple(
            Move(name=f"{a}-{b}", source=a, target=b, engine=engine, bytes_per_cycle=8)
            for a, b, engine in paths
        ),
        engines=tuple(Engine(name=name) for name in dict.fromkeys(engines)),
        primitives=(
            Primitive(
                name="any",
                operations=OPERATIONS,
                engine=compute,
                operands={
                    "input": Storage(memory="l0a"),
                    "weight": Storage(memory="l0b", multiples={"co": 4}),
                    "bias": Storage(memory="l0b", joined=joined),
                    "residual": Storage(memory="ub"),
                    "output": Storage(memory="l0c"),
                },
                cycles="1",
                peak="1",
                epilogue_any=True,
                sizes=rng.choice(["run time", "run time", "fixed"]),
            ),
        ),
    )


def deep_schedule(case: Case, seed: int) -> Schedule:
    """A tile in l1, and within it the primitive's; sums never leave the primitive's memory."""
    rng = random.Random(seed)
    anchor = case.kernel.anchor
    sizes, reduced = dict(anchor.extents), set(anchor.reduction)
    whole = set(reduced) if anchor.operation in ("lrn", "softmax") else set[str]()
    whole |= {"co"} if "g" in sizes else set()
    split = rng.random() < 0.5
    levels: list[Level] = []
    for memory in ("l1", "l0a"):
        tile: dict[str, int] = {}
        for dim, extent in sizes.items():
            # Where l1 holds a part of the reduction, its tile of the result is computed at once.
            cut = dim not in whole and (
                (memory == "l1" or split) if dim in reduced else (memory == "l1" or not split)
            )
            cut &= split or memory == "l0a" or dim not in reduced
            tile[dim] = (
                rng.randint(-(-extent // 3), extent) if cut and rng.random() < 0.7 else extent
            )
        if not split and memory == "l0a":
            for dim in reduced - whole:
                tile[dim] = rng.randint(-(-sizes[dim] // 3), sizes[dim])
        parallel = rng.sample([d for d in sizes if d not in reduced], len(sizes) - len(reduced))
        rest = rng.sample([d for d in sizes if d in reduced], len(reduced))
        sizes.update(tile)
        levels.append(Level(memory, tuple(tile.items()), (*parallel, *rest)))
    names = [o.name for o in case.kernel.operands]
    slots = tuple((name, rng.choice([1, 2, 2, 3])) for name in names)
    staged = [(name, "l1", rng.choice([1, 2, 2, 3])) for name in names if name != "y"]
    staged.append(("y", "ub", rng.choice([1, 2])))
    return Schedule("any", tuple(levels), slots, staged=tuple(staged))
