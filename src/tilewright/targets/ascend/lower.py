"""Kernels of a network as launches: CCE C functions in their order, and what each is given.

Values lie in main memory as float32, row by row. A product converts its operand to half precision
and to Nz, multiplies, and converts its result back (the thesis' casts, 6.1, and formats, 6.4.2);
constant weights are converted when the package is written. Elementwise operations compute in
float32. What no kernel here computes is refused, with a reason, and falls to the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from tilewright.errors import TilewrightError, refuse
from tilewright.ir.types import Array
from tilewright.planning.domain import Kernel, Operand, Stage
from tilewright.planning.layout import Layout
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.ascend.emit import kernel_text
from tilewright.targets.ascend.flags import synchronised
from tilewright.targets.ascend.formats import nz, padded
from tilewright.targets.ascend.kernels.elementwise import RECIPES, elementwise
from tilewright.targets.ascend.kernels.fractal import METHODS, defractalise, fractalise
from tilewright.targets.ascend.kernels.matmul import Matrices, Tiling, matmul
from tilewright.targets.ascend.machine import DaVinci
from tilewright.targets.ascend.program import Program
from tilewright.targets.ascend.timing import simulate

SLACK = 32
"""Bytes behind every value on the device that kernels may touch."""

LARGEST = 65_504.0
"""Of half precision."""


class Argument(BaseModel):
    """What a kernel's parameter is."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    kind: Literal["operand", "constant", "work", "result"]
    number: int = Field(ge=0)
    """Of the kernel's operands, or of its buffers; where a constant begins in ``constants.bin``."""
    bytes: int = Field(ge=0)


class Launch(BaseModel):
    """One launch of a function."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    function: str
    arguments: tuple[Argument, ...]
    cycles: float = Field(ge=0)
    """Simulated (timing.py)."""
    busy: dict[str, float]
    """Cycles in which each pipe is busy."""
    main_bytes: int = Field(ge=0)


@dataclass
class Device:
    """What a package collects for the core."""

    core: DaVinci
    texts: dict[str, str] = field(default_factory=dict[str, str])
    """The C of each function."""
    launches: list[Launch] = field(default_factory=list[Launch])
    constants: bytearray = field(default_factory=bytearray)

    def kernel(self, kernel: Kernel, schedule: Schedule, known: dict[str, Array]) -> None:
        """Add a kernel's launches; ``known`` has its operands that are constant.

        Raises TilewrightError (``lower-operation`` and others) for what it cannot say, and adds
        nothing then.
        """
        mine = Device(self.core, constants=self.constants[:])
        _Kernel(mine, kernel, schedule, known).lower()
        self.texts |= mine.texts
        self.launches += mine.launches
        self.constants = mine.constants


@dataclass
class _Kernel:
    device: Device
    of: Kernel
    schedule: Schedule
    known: dict[str, Array]
    work: int = 0

    def lower(self) -> None:
        for operand in self.of.operands:
            rank = len(operand.shape)
            if not Layout.parse(operand.layout, rank).row_major or operand.element != "float32":
                raise self._refused(f"operand {operand.name} is no float32 in row-major order")
        anchor, *rest = self.of.stages
        result = self._product(anchor, rest) if anchor.operation == "matmul" else None
        stages = rest if result is not None else self.of.stages
        if result is not None and stages and stages[0].operation == "relu":
            stages = stages[1:]
        if result is not None and not stages:
            return
        for stage in stages:
            result = self._points(stage, result, last=stage is self.of.stages[-1])

    def _refused(self, reason: str) -> TilewrightError:
        node = ", ".join(self.of.nodes) or self.of.symbol
        return refuse("lower-operation", reason, node)

    # Arguments.

    def _operand(self, name: str, operand: Operand) -> Argument:
        numbers = [one.name for one in self.of.inputs]
        size = prod(operand.shape) * 4
        return Argument(
            name=name, kind="operand", number=numbers.index(operand.name), bytes=size + SLACK
        )

    def _buffer(self, name: str, size: int) -> Argument:
        self.work += 1
        return Argument(name=name, kind="work", number=self.work - 1, bytes=size + SLACK)

    def _result(self, name: str) -> Argument:
        size = prod(self.of.output.shape) * 4
        return Argument(name=name, kind="result", number=0, bytes=size + SLACK)

    def _constant(self, name: str, data: Array) -> Argument:
        at = len(self.device.constants)
        self.device.constants += data.tobytes() + bytes(SLACK + -(data.nbytes + SLACK) % 512)
        return Argument(name=name, kind="constant", number=at, bytes=data.nbytes + SLACK)

    def _launch(self, program: Program, *arguments: Argument) -> None:
        names = [tensor.name for tensor in program.tensors]
        renamed = [
            one.model_copy(update={"name": name})
            for name, one in zip(names, arguments, strict=True)
        ]
        whole = synchronised(program, events=self.device.core.events)
        self.device.texts[program.name] = kernel_text(whole)
        time = simulate(whole, self.device.core)
        self.device.launches.append(
            Launch(
                function=program.name,
                arguments=tuple(renamed),
                cycles=time.cycles,
                busy=dict(time.busy),
                main_bytes=time.main_bytes,
            )
        )

    def _name(self, what: str) -> str:
        return f"{self.of.symbol}_{len(self.device.launches)}_{what}"

    # Products.

    def _product(self, anchor: Stage, rest: Sequence[Stage]) -> Argument:
        """The launches of a product with its bias and relu; where its result is."""
        roles = {operand.role: operand for operand in anchor.inputs}
        x, weight, bias = roles.get("input"), roles.get("weight"), roles.get("bias")
        if x is None or weight is None or len(weight.shape) != 2 or anchor.attribute("transpose_a"):
            raise self._refused("this product has no right operand that is one matrix")
        transposed = bool(anchor.attribute("transpose_b"))
        columns, depth = weight.shape if transposed else weight.shape[::-1]
        rows = prod(x.shape[:-1])
        relu = bool(rest) and rest[0].operation == "relu"
        of = Matrices(rows, depth, columns, transposed, bias is not None, relu)
        core = self.device.core
        program = matmul_of(of, self.schedule, self.of, core, self._name("mad"))
        left = self._blocks(self._operand("x", x), rows, depth)
        right = self._right(weight)
        arguments = [left, right]
        if bias is not None:
            arguments.append(self._bias(bias))
        product = self._buffer("c", padded(rows) * padded(columns) * 2)
        # Named anew: conversions may stand before it.
        program.name = self._name("mad")
        self._launch(program, *arguments, product)
        plain = self._buffer("plain", rows * columns * 2)
        back = self._convert(rows, columns, back=True)
        self._launch(back, product, plain)
        last = len(rest) == int(relu)
        target = self._result("out") if last else self._buffer("out", rows * columns * 4)
        cast = elementwise("cast", "half", rows * columns, core, name=self._name("cast"))
        self._launch(cast, plain, target)
        return target

    def _blocks(self, source: Argument, rows: int, columns: int) -> Argument:
        """float32 in rows to half precision in Nz."""
        core = self.device.core
        plain = self._buffer("plain", rows * columns * 2)
        cast = elementwise("cast", "float", rows * columns, core, name=self._name("cast"))
        self._launch(cast, source, plain)
        blocks = self._buffer("nz", padded(rows) * padded(columns) * 2)
        self._launch(self._convert(rows, columns, back=False), plain, blocks)
        return blocks

    def _convert(self, rows: int, columns: int, *, back: bool) -> Program:
        """The change of format that takes the fewest cycles, its pipes side by side."""
        convert = defractalise if back else fractalise
        core = self.device.core
        found: list[tuple[float, int, Program]] = []
        for number, method in enumerate(METHODS):
            # Some do not hold as many columns; dma holds all.
            with suppress(TilewrightError):
                program = convert(rows, columns, method, core, self._name(method))
                found.append((simulate(program, core).cycles, number, program))
        if not found:
            raise self._refused(f"no method changes the format of {rows} x {columns} elements")
        return min(found, key=lambda one: one[:2])[2]

    def _right(self, weight: Operand) -> Argument:
        """The right operand in Nz, whichever way it lies."""
        data = self.known.get(weight.name)
        if data is None:
            return self._blocks(self._operand("x", weight), *weight.shape)
        return self._constant("b", _in_blocks(self._halves(weight, data)))

    def _bias(self, bias: Operand) -> Argument:
        count = prod(bias.shape)
        data = self.known.get(bias.name)
        if data is not None:
            whole = np.zeros(padded(count), np.float16)
            whole[:count] = self._halves(bias, data).ravel()
            return self._constant("bias", whole)
        core = self.device.core
        target = self._buffer("out", padded(count) * 2)
        cast = elementwise("cast", "float", count, core, name=self._name("cast"))
        self._launch(cast, self._operand("x", bias), target)
        return target

    def _halves(self, operand: Operand, data: Array) -> Array:
        if data.size and np.abs(data).max() > LARGEST:
            raise self._refused(
                f"weights {operand.name} are as large as {np.abs(data).max():g}; half precision "
                f"ends at {LARGEST:g}"
            )
        return data.astype(np.float16)

    # Elementwise operations.

    def _points(self, stage: Stage, before: Argument | None, *, last: bool) -> Argument:
        """The launch of one elementwise stage; ``before`` is what the stage before has left."""
        operation = "clamp" if stage.operation == "clip" else stage.operation
        if operation not in RECIPES or operation in ("cast", "gelu"):
            raise self._refused(f"there is no kernel for {stage.operation}")
        if any(operand.shape != stage.output.shape for operand in stage.inputs):
            raise self._refused(f"{stage.operation} broadcasts an operand")
        scalars: tuple[str, ...] = ()
        if operation == "clamp":
            bounds = (stage.attribute("minimum", "-inf"), stage.attribute("maximum", "inf"))
            scalars = tuple(_scalar(bound) for bound in bounds)
        count = prod(stage.output.shape)
        name = self._name(operation)
        program = elementwise(
            operation, "float", count, self.device.core, scalars=scalars, name=name
        )
        arguments: list[Argument] = []
        for operand in stage.inputs:
            if operand.name in self.of.internal:
                assert before is not None
                arguments.append(before)
            else:
                arguments.append(self._operand("x", operand))
        target = self._result("out") if last else self._buffer("out", count * 4)
        self._launch(program, *arguments, target)
        return target


def _scalar(bound: object) -> str:
    """A bound as C."""
    value = np.float32(float(str(bound)))
    if np.isinf(value):
        return "-1.0f / 0.0f" if value < 0 else "1.0f / 0.0f"
    return f"{float(value)!r}f"


def _in_blocks(matrix: Array) -> Array:
    rows, columns = matrix.shape
    widths = [(0, -rows % 16), (0, -columns % 16)]
    return np.ascontiguousarray(Layout.parse(nz(), 2).pack(np.pad(matrix, widths)))


def matmul_of(
    of: Matrices, schedule: Schedule, kernel: Kernel, core: DaVinci, name: str
) -> Program:
    """The product with the schedule's tiles, with as many buffers of it as fit.

    The schedule counts elements of 4 bytes, of which the core's have 2: whatever fits it fits here.
    """
    failed: TilewrightError | None = None
    for tiling in _tilings(of, schedule, kernel):
        try:
            return matmul(of, tiling, core, name)
        except TilewrightError as error:
            failed = failed or error
    assert failed is not None
    raise failed


def _tilings(of: Matrices, schedule: Schedule, kernel: Kernel) -> list[Tiling]:
    roles = {operand.role: operand for operand in kernel.anchor.inputs}
    reduction = kernel.anchor.reduction[0]
    columns = next(
        dim for dim in kernel.anchor.extents if dim in roles["weight"].dims - roles["input"].dims
    )
    outer, inner = schedule.levels[0], schedule.levels[-1]

    def sizes(level: Level) -> tuple[int, int, int]:
        extents = kernel.anchor.extents
        rows = prod(
            level.size(dim, extents[dim]) for dim in extents if dim not in (reduction, columns)
        )
        found = (rows, level.size(reduction, of.N), level.size(columns, of.K))
        return tuple(padded(size) for size in found)  # type: ignore[return-value]

    m1, n1, k1 = sizes(outer)
    m0, n0, k0 = (min(a, b) for a, b in zip(sizes(inner), (m1, n1, k1), strict=True))
    order = [dim for dim in outer.order if dim != reduction]
    by_columns = bool(order) and order[0] == columns
    found: list[Tiling] = []
    for slots in ((2, 2, 2, 2), (2, 2, 1, 2), (2, 2, 1, 1), (2, 1, 1, 1), (1, 1, 1, 1)):
        found.append(
            Tiling(
                *(m1, n1, k1, m0, n0, k0),
                "yx" if by_columns else "xy",
                True,
                *slots,
            )
        )
    return found
