"""Products and convolutions for the cube as kernels of planning, without a network around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.machine import Machine
from tilewright.planning import Budget, Planner
from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Role, Stage, Value
from tilewright.planning.layout import Layout
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.ascend.lowering.cube import cube_kernel
from tilewright.targets.ascend.machine import ASCEND_910, DaVinci
from tilewright.targets.ascend.network import network_machine
from tilewright.targets.ascend.program import Program
from tilewright.targets.ascend.target import AscendTarget
from tilewright.tile.lower import tile

Halves = NDArray[np.float16]


def matrix_layout(rank: int) -> str:
    """Nz of the last two axes."""
    machine = network_machine(ASCEND_910)
    return machine.layout_of(machine.primitive("mad"), "input", rank)


def operand(
    name: str,
    role: Role,
    shape: Sequence[int],
    axes: Sequence[str],
    element: str = "float16",
    layout: str | None = None,
) -> Operand:
    """An operand that reads one dim an axis."""
    text = layout if layout is not None else matrix_layout(len(shape))
    access = tuple(Affine.parse(axis) for axis in axes)
    return Operand(name, tuple(shape), access, element, role, layout=text)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Product:
    """A product of matrices; ``batch`` counts them."""

    m: int
    n: int
    k: int
    batch: int = 1
    left_transposed: bool = False
    right_transposed: bool = False
    turned: bool = False
    """Whether operands lie with rows and columns exchanged."""
    shared: bool = False
    """Whether all matrices are multiplied with one."""
    bias: bool = False
    relu: bool = False
    residual: bool = False

    def kernel(self) -> Kernel:
        """As planning sees it: rows m, summed ci, columns co."""
        extents = {"m": self.m, "co": self.k, "ci": self.n}
        front = ["b0"] if self.batch > 1 else []
        if front:
            extents = {"b0": self.batch, **extents}

        def shape(axes: Sequence[str]) -> list[int]:
            return [extents[axis] for axis in axes]

        a = [*front, *(("ci", "m") if self.left_transposed else ("m", "ci"))]
        b = [
            *([] if self.shared else front),
            *(("co", "ci") if self.right_transposed else ("ci", "co")),
        ]
        c = [*front, "m", "co"]
        dims = tuple(
            Dim(name, size, "reduction" if name == "ci" else "parallel")
            for name, size in extents.items()
        )
        machine = network_machine(ASCEND_910)
        inputs: list[Operand] = []
        sides: tuple[tuple[str, Role, list[str]], ...] = (("a", "input", a), ("b", "weight", b))
        for name, role, axes in sides:
            turned = machine.turned_layout(machine.primitive("mad"), role, len(axes))
            layout = turned if self.turned else None
            inputs.append(operand(name, role, shape(axes), axes, layout=layout))
        if self.bias:
            inputs.append(operand("bias", "bias", (self.k,), ["co"], "float32", ""))
        stages: list[Stage] = []

        def chain(operation: str, extra: Sequence[Operand], element: str, name: str) -> None:
            before = [stages[-1].output] if stages else []
            output = operand(name, "output", shape(c), c, element)
            over = dims if not stages else tuple(dim for dim in dims if dim.kind == "parallel")
            attributes = (
                (("transpose_a", self.left_transposed), ("transpose_b", self.right_transposed))
                if not stages
                else ()
            )
            stages.append(
                Stage(operation, over, (*before, *extra), output, attributes, f"node_{operation}")
            )

        chain("matmul", inputs, "float32", "product")
        if self.residual:
            chain("add", [operand("d", "residual", shape(c), c)], "float32", "sum")
        if self.relu:
            chain("relu", [], "float32", "rectified")
        chain("cast", [], "float16", "c")
        return Kernel("k", tuple(stages), ("node",))

    def arguments(self, seed: int) -> tuple[dict[str, Halves], Halves]:
        """Operands with NaN in their padding, and the result expected; whole numbers."""
        random = np.random.default_rng(seed)

        def whole(*shape: int) -> Halves:
            return random.integers(-3, 4, shape).astype(np.float16)

        front = [self.batch] if self.batch > 1 else []
        a, b = whole(*front, self.m, self.n), whole(*([] if self.shared else front), self.n, self.k)
        expected = a.astype(np.float32) @ b.astype(np.float32)
        given = {
            "a": pack(a.swapaxes(-1, -2) if self.left_transposed != self.turned else a),
            "b": pack(b.swapaxes(-1, -2) if self.right_transposed != self.turned else b),
        }
        if self.bias:
            bias = whole(self.k)
            given["bias"] = np.full(-(-self.k // 16) * 16, np.nan, np.float16)
            given["bias"][: self.k] = bias
            expected = expected + bias
        if self.residual:
            residual = whole(*front, self.m, self.k)
            given["d"] = pack(residual)
            expected = expected + residual
        if self.relu:
            expected = np.maximum(expected, 0)
        result = expected.astype(np.float16)
        given["c"] = pack(np.full(result.shape, np.nan, np.float16))
        return given, result


def pack(array: Halves) -> Halves:
    """Matrices in Nz, with NaN in their padding."""
    widths = [(0, 0)] * (array.ndim - 2) + [(0, -size % 16) for size in array.shape[-2:]]
    whole = np.pad(array, widths, constant_values=np.float16(np.nan))
    return np.ascontiguousarray(Layout.parse(matrix_layout(array.ndim), array.ndim).pack(whole))


def unpack(data: Halves, shape: tuple[int, ...]) -> Halves:
    """The matrices of what lies in Nz."""
    return Layout.parse(matrix_layout(len(shape)), len(shape)).unpack(data, shape)


def planned(kernel: Kernel, machine: Machine | None = None) -> Schedule:
    """The schedule of the planner ``exact``."""
    return (
        Planner(machine or network_machine(ASCEND_910), budget=Budget(greedy=False))
        .plan(kernel)
        .schedule
    )


def program_of(kernel: Kernel, schedule: Schedule, core: DaVinci = ASCEND_910) -> Program:
    """The kernel of the cube, by way of the tile program."""
    return cube_kernel(
        tile(kernel, schedule, network_machine(core), honours=AscendTarget.honours), core, "kernel"
    )


def levels(
    outer: dict[str, int],
    inner: dict[str, int],
    order: tuple[str, ...],
    within: tuple[str, ...],
    slots: int = 1,
    primitive: str = "mad",
) -> Schedule:
    """A schedule of two levels with as many slots for everything."""
    names = ("a", "b", "bias", "d", "c")
    staged = [("a", "cbuf", slots), ("b", "cbuf", slots), ("c", "ub", slots)]
    return Schedule(
        primitive,
        (Level("cbuf", tuple(outer.items()), order), Level("ca", tuple(inner.items()), within)),
        tuple((name, slots) for name in names),
        staged=tuple(staged),
    )


@dataclass(frozen=True)
class Convolution:
    """A convolution of one image; pads are those above, left, below, right."""

    channels: int
    height: int
    width: int
    results: int
    kernel: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    images: int = 1
    bias: bool = False
    relu: bool = False
    residual: bool = False

    @property
    def outputs(self) -> tuple[int, int]:
        """Rows and columns of the result."""
        sizes: list[int] = []
        for axis, extent in enumerate((self.height, self.width)):
            span = self.dilations[axis] * (self.kernel[axis] - 1) + 1
            whole = extent + self.pads[axis] + self.pads[axis + 2]
            sizes.append((whole - span) // self.strides[axis] + 1)
        return sizes[0], sizes[1]

    def of_kernel(self) -> Kernel:
        """As planning sees it."""
        oh, ow = self.outputs
        extents = {
            "n": self.images,
            "co": self.results,
            "oh": oh,
            "ow": ow,
            "ci": self.channels,
            "kh": self.kernel[0],
            "kw": self.kernel[1],
        }
        dims = tuple(
            Dim(name, size, "reduction" if name in ("ci", "kh", "kw") else "parallel")
            for name, size in extents.items()
        )
        (sh, sw), (dh, dw), (top, left, *_) = self.strides, self.dilations, self.pads
        image = (
            *("n", "ci"),
            f"oh*{sh} + kh*{dh} - {top}",
            f"ow*{sw} + kw*{dw} - {left}",
        )
        shape = (self.images, self.channels, self.height, self.width)
        weights = (self.results, self.channels, *self.kernel)
        c = ("n", "co", "oh", "ow")
        result = (self.images, self.results, oh, ow)
        inputs = [
            operand("a", "input", shape, image, layout="NCHW16c"),
            operand("b", "weight", weights, ("co", "ci", "kh", "kw"), layout="IHWO16o16i"),
        ]
        if self.bias:
            inputs.append(operand("bias", "bias", (self.results,), ["co"], "float32", ""))
        attributes = (
            ("strides", self.strides),
            ("pads", self.pads),
            ("dilations", self.dilations),
            ("group", 1),
        )
        chain: list[tuple[str, list[Operand], tuple[tuple[str, Value], ...]]] = [
            ("conv", inputs, attributes)
        ]
        if self.residual:
            summand = operand("d", "residual", result, c, layout="NCHW16c")
            chain.append(("add", [summand], ()))
        if self.relu:
            chain.append(("relu", [], ()))
        chain.append(("cast", [], ()))
        stages: list[Stage] = []
        for number, (operation, extra, values) in enumerate(chain):
            last = number == len(chain) - 1
            output = operand(
                "c" if last else f"v{number}",
                "output",
                result,
                c,
                "float16" if last else "float32",
                "NCHW16c",
            )
            before = [stages[-1].output] if stages else []
            over = dims if not stages else tuple(d for d in dims if d.kind == "parallel")
            stages.append(
                Stage(operation, over, (*before, *extra), output, values, f"node_{operation}")
            )
        return Kernel("k", tuple(stages), ("node",))

    def arguments(self, seed: int) -> tuple[dict[str, Halves], Halves]:
        """Operands, and the result expected; whole numbers. Images have noise in the channels that
        pad them, which weights of 0 meet."""
        random = np.random.default_rng(seed)

        def whole(*shape: int) -> Halves:
            return random.integers(-3, 4, shape).astype(np.float16)

        x = whole(self.images, self.channels, self.height, self.width)
        w = whole(self.results, self.channels, *self.kernel)
        expected = convolved(self, x.astype(np.float32), w.astype(np.float32))
        noise = np.concatenate([x, whole(self.images, -self.channels % 16, *x.shape[2:])], 1)
        given = {
            "a": np.ascontiguousarray(Layout.parse("NCHW16c", 4).pack(noise)),
            "b": np.ascontiguousarray(Layout.parse("IHWO16o16i", 4).pack(w)),
        }
        if self.bias:
            bias = whole(self.results)
            given["bias"] = np.zeros(-(-self.results // 16) * 16, np.float16)
            given["bias"][: self.results] = bias
            expected = expected + bias.reshape(-1, 1, 1)
        if self.residual:
            summand = whole(*expected.shape)
            given["d"] = np.ascontiguousarray(Layout.parse("NCHW16c", 4).pack(summand))
            expected = expected + summand
        if self.relu:
            expected = np.maximum(expected, 0)
        result = expected.astype(np.float16)
        given["c"] = np.full_like(Layout.parse("NCHW16c", 4).pack(result), np.nan)
        return given, result


def convolved(
    of: Convolution, x: NDArray[np.float32], w: NDArray[np.float32]
) -> NDArray[np.float32]:
    """A convolution, by a product for each tap."""
    top, left, below, right = of.pads
    padded = np.pad(x, ((0, 0), (0, 0), (top, below), (left, right)))
    oh, ow = of.outputs
    found = np.zeros((of.images, of.results, oh, ow), np.float32)
    for row in range(of.kernel[0]):
        for column in range(of.kernel[1]):
            down, across = row * of.dilations[0], column * of.dilations[1]
            part = padded[
                :,
                :,
                down : down + (oh - 1) * of.strides[0] + 1 : of.strides[0],
                across : across + (ow - 1) * of.strides[1] + 1 : of.strides[1],
            ]
            found += np.einsum("nchw,oc->nohw", part, w[:, :, row, column])
    return found
