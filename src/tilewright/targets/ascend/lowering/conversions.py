"""Changes of format: between rows, Nz and NC1HWC0."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from math import prod

from tilewright.errors import TilewrightError
from tilewright.planning.domain import Stage
from tilewright.planning.layout import Layout
from tilewright.targets.ascend.formats import image, matrices
from tilewright.targets.ascend.isa import WIDTHS
from tilewright.targets.ascend.kernels.channels import to_blocks
from tilewright.targets.ascend.kernels.fractal import fractalise
from tilewright.targets.ascend.kernels.shares import Extent, joined, total
from tilewright.targets.ascend.lowering.launches import Launches, Value
from tilewright.targets.ascend.machine import BLOCK, CUBE
from tilewright.targets.ascend.program import Program
from tilewright.targets.ascend.timing import simulate


def convert(
    launches: Launches, stage: Stage, source: Value, target: Value, *, short: bool = False
) -> None:
    """The launches from a format to rows, or from rows to a format; of ``short`` ones a launch says
    how many rows the matrices have."""
    if source.element not in ("half", "int8_t") or target.element != source.element:
        raise launches.refusal(f"there is no change of format of {source.element}")
    back = bool(source.layout)
    blocked = source if back else target
    shape = blocked.shape
    if blocked.lies_in(Layout.parse(image(), 4)):
        channels = shape[1]
        images, planes, area = _image_extents(launches, stage, shape)
        program = to_blocks(
            *(images, channels, area, launches.core, launches.name("channels")),
            planes=planes if channels % CUBE == 0 else None,
            back=back,
        )
        launches.launch(program, source, target)
        return
    width = WIDTHS[blocked.element]
    if len(shape) < 2 or not blocked.lies_in(matrices(len(shape), element_bytes=width)):
        raise launches.refusal(f"there is no change of format to or from {blocked.layout}")
    rows, columns = shape[-2:]
    count, block = prod(shape[:-2]), BLOCK // width
    if columns * width % 2:
        raise launches.refusal(f"rows of {columns} bytes are no pairs of bytes")
    # A block is 32 bytes of 16 rows, whatever its elements are: pairs of bytes move as halves do.
    columns = columns * width // 2
    lines: Extent = rows
    wide: Extent | None = None
    if shape == stage.output.shape:
        down, along = stage.output.access[-2:]
        if not rows % CUBE:
            lines = joined((launches.extent(down, rows, CUBE), CUBE))
        if not columns % CUBE:
            wide = launches.extent(along, shape[-1], block)
    program = _fractal(launches, lines, columns, wide, back=back, short=short)
    for number in range(count):
        named = replace(program, name=launches.name("fractal"))
        launches.launch(named, _matrix(source, number, count), _matrix(target, number, count))


def _image_extents(
    launches: Launches, stage: Stage, shape: tuple[int, ...]
) -> tuple[Extent, Extent, Extent]:
    """Images, planes of 16 channels and positions, as blocks share them: where the kernel has no
    grid, as many as there are cores."""
    count, channels = shape[:2]
    positions = prod(shape[2:])
    if not launches.grid and positions % CUBE == 0:
        planes = channels // CUBE if channels % CUBE == 0 else 1
        batch, plane, area = launches.own(image=count, plane=planes, pixel=positions // CUBE)
        return batch, plane, joined((area, CUBE))
    images, plane, *sides = (
        launches.extent(axis, size, unit)
        for axis, size, unit in zip(stage.output.access, shape, (1, CUBE, 1, 1), strict=True)
    )
    return images, plane, joined(sides)


def _matrix(value: Value, number: int, count: int) -> Value:
    """Return one of ``count`` matrices of a value."""
    if count == 1:
        return value
    size = value.parsed.size(value.shape) // count * WIDTHS[value.element]
    argument = value.argument.model_copy(update={"offset": number * size})
    return replace(value, argument=argument)


def _fractal(
    launches: Launches, rows: Extent, columns: int, wide: Extent | None, *, back: bool, short: bool
) -> Program:
    """The change of format that takes the fewest cycles, its pipes side by side."""
    core = launches.core
    candidates: list[tuple[float, int, Program]] = []
    for number, method in enumerate(launches.device.methods):
        # Some do not hold as many columns; dma holds all.
        with suppress(TilewrightError):
            program = fractalise(
                *(rows, columns, method, core, "fractal"), back=back, short=short, wide=wide
            )
            candidates.append((simulate(program, core).cycles, number, program))
    if not candidates:
        raise launches.refusal(
            f"{' and '.join(launches.device.methods)} cannot change the format of "
            f"{total(rows)} x {columns} elements: rows have to fit repeats, bursts and UB; "
            "fewer columns would"
        )
    return min(candidates, key=lambda each: each[:2])[2]
