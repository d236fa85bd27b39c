"""Products: conversions to half precision and Nz, the product, and conversions back."""

from __future__ import annotations

from contextlib import suppress
from math import prod

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.ir.types import Array
from tilewright.planning.domain import Kernel, Operand
from tilewright.planning.layout import Layout
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.ascend.formats import nz, padded
from tilewright.targets.ascend.kernels.elementwise import elementwise
from tilewright.targets.ascend.kernels.fractal import METHODS, defractalise, fractalise
from tilewright.targets.ascend.kernels.matmul import Matrices, Tiling, matmul
from tilewright.targets.ascend.lowering.launches import Launches, Value
from tilewright.targets.ascend.machine import DaVinci
from tilewright.targets.ascend.program import Program
from tilewright.targets.ascend.timing import simulate

LARGEST = 65_504.0
"""Of half precision."""


def product(launches: Launches) -> tuple[Value, int]:
    """The launches of a kernel's product with its bias and relu; where its result is, and how many
    of the kernel's stages that takes."""
    anchor, *rest = launches.kernel.stages
    roles = {operand.role: operand for operand in anchor.inputs}
    x, weight, bias = roles.get("input"), roles.get("weight"), roles.get("bias")
    if x is None or weight is None or len(weight.shape) != 2 or anchor.attribute("transpose_a"):
        raise launches.refusal("this product has no right operand that is one matrix")
    transposed = bool(anchor.attribute("transpose_b"))
    columns, depth = weight.shape if transposed else weight.shape[::-1]
    rows = prod(x.shape[:-1])
    relu = bool(rest) and rest[0].operation == "relu"
    of = Matrices(rows, depth, columns, transposed, bias is not None, relu)
    core = launches.core
    program = matmul_of(of, launches.schedule, launches.kernel, core, launches.name("mad"))
    left = _blocks(launches, launches.operand(x), (rows, depth))
    arguments = [left, _right(launches, weight)]
    if bias is not None:
        arguments.append(_bias(launches, bias))
    blocks = launches.buffer((rows, columns), "half", nz())
    # Named anew: conversions may stand before it.
    program.name = launches.name("mad")
    launches.launch(program, *arguments, blocks)
    plain = launches.buffer((rows, columns), "half")
    launches.launch(_conversion(launches, rows, columns, back=True), blocks, plain)
    taken = 1 + int(relu)
    shape = launches.kernel.stages[taken - 1].output.shape
    last = taken == len(launches.kernel.stages)
    target = launches.result() if last else launches.buffer(shape, "float")
    if (target.element, target.layout) != ("float", ""):
        raise launches.refusal("the result is no float32 in row-major order")
    cast = elementwise("cast", "half", rows * columns, core, name=launches.name("cast"))
    launches.launch(cast, plain, target)
    return target, taken


def _blocks(launches: Launches, value: Value, shape: tuple[int, int]) -> Value:
    """float32 in rows to half precision in Nz."""
    if (value.element, value.layout) != ("float", ""):
        raise launches.refusal(f"{value.argument.name} is no float32 in row-major order")
    plain = launches.buffer(shape, "half")
    name = launches.name("cast")
    cast = elementwise("cast", "float", prod(shape), launches.core, name=name)
    launches.launch(cast, value, plain)
    blocks = launches.buffer(shape, "half", nz())
    launches.launch(_conversion(launches, *shape, back=False), plain, blocks)
    return blocks


def _conversion(launches: Launches, rows: int, columns: int, *, back: bool) -> Program:
    """The change of format that takes the fewest cycles, its pipes side by side."""
    convert = defractalise if back else fractalise
    core = launches.core
    found: list[tuple[float, int, Program]] = []
    for number, method in enumerate(METHODS):
        # Some do not hold as many columns; dma holds all.
        with suppress(TilewrightError):
            program = convert(rows, columns, method, core, launches.name(method))
            found.append((simulate(program, core).cycles, number, program))
    if not found:
        raise launches.refusal(f"no method changes the format of {rows} x {columns} elements")
    return min(found, key=lambda one: one[:2])[2]


def _right(launches: Launches, weight: Operand) -> Value:
    """The right operand in Nz, whichever way it lies."""
    data = launches.known.get(weight.name)
    shape = (weight.shape[0], weight.shape[1])
    if data is None:
        return _blocks(launches, launches.operand(weight), shape)
    return launches.constant(_in_blocks(_halves(launches, weight, data)), shape, "half", nz())


def _bias(launches: Launches, bias: Operand) -> Value:
    count = prod(bias.shape)
    data = launches.known.get(bias.name)
    whole = (padded(count),)
    if data is not None:
        halves = np.zeros(whole, np.float16)
        halves[:count] = _halves(launches, bias, data).ravel()
        return launches.constant(halves, whole, "half", "")
    target = launches.buffer(whole, "half")
    name = launches.name("cast")
    cast = elementwise("cast", "float", count, launches.core, name=name)
    launches.launch(cast, launches.operand(bias), target)
    return target


def _halves(launches: Launches, operand: Operand, data: Array) -> Array:
    if data.size and np.abs(data).max() > LARGEST:
        raise launches.refusal(
            f"weights {operand.name} are as large as {np.abs(data).max():g}; half precision "
            f"ends at {LARGEST:g}"
        )
    return data.astype(np.float16)


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
