"""Sliding windows at the image's border: which taps of a tile lie inside.

Rows are cut at run time (a first tap and a count); columns by constants: tiles whose columns meet
the border alike form one class, and each class gets a function of its own. So no padded copy of
an image is ever made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.codegen.c.address import Address
from tilewright.codegen.c.source import Writer, plus
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.primitives.code import KernelCode, call


@dataclass(frozen=True)
class Axis:
    """An image axis under a window: input index = out * stride + tap * dilation - before."""

    out: str
    tap: str
    stride: int
    dilation: int
    before: int
    extent: int
    """Extent of the image along the axis."""
    taps: int

    def inside(self, start: int, point: int, tap: int) -> bool:
        """Return True if a tap of an output point lies in the image."""
        index = (start + point) * self.stride + tap * self.dilation - self.before
        return 0 <= index < self.extent


@dataclass(frozen=True)
class Columns:
    """A class of tiles: for each tap the output columns [low, high) for which it is inside.

    ``origin`` is the input column of the first such element, counted from that of the tile's first
    column and tap; loads are addressed from there.
    """

    spans: tuple[tuple[int, int], ...]
    origin: int
    counts: tuple[int, ...] = ()
    """For a mean: for each column the number of taps that count in the divisor."""


def axis_of(instance: Instance, image: Address, tap: str) -> Axis | None:
    """The image's axis along which dim ``tap`` slides, if there is one."""
    for window, extent in zip(image.window, image.shape, strict=True):
        terms = dict(window.terms)
        if tap not in terms:
            continue
        out = next((name for name in window.dims if name != tap), "")
        return Axis(
            out,
            tap,
            terms.get(out, 0),
            terms[tap],
            -window.offset,
            extent,
            instance.extents.get(tap, 1),
        )
    return None


def classes_of(
    instance: Instance, axis: Axis | None, size: int, counted: Axis | None = None
) -> list[tuple[str, Columns]]:
    """The classes of tiles along the columns, each with the C condition that selects it.

    ``size`` is the number of columns in a tile. Conditions are to be asked in order; the last one
    is "". ``counted`` is the axis with the padding that counts in a mean's divisor.
    """
    if axis is None:
        return [("", Columns(((0, size),), 0))]
    dim = instance.dims.get(axis.out)
    starts = dim.starts if dim else (0,)
    classes: list[tuple[int, Columns]] = []
    for start in starts:
        columns = _columns(axis, start, size, counted)
        if not classes or classes[-1][1] != columns:
            classes.append((start, columns))
    bounds = [start for start, _ in classes[1:]]
    name = dim.start if dim else 0
    return [
        (f"{name} < {bounds[i]}" if i < len(bounds) else "", columns)
        for i, (_, columns) in enumerate(classes)
    ]


def _columns(axis: Axis, start: int, size: int, counted: Axis | None) -> Columns:
    spans: list[tuple[int, int]] = []
    origin: int | None = None
    for tap in range(axis.taps):
        inside = [point for point in range(size) if axis.inside(start, point, tap)]
        spans.append((inside[0], inside[-1] + 1) if inside else (0, 0))
        if inside and origin is None:
            origin = inside[0] * axis.stride + tap * axis.dilation
    counts = (
        tuple(
            sum(counted.inside(start, point, tap) for tap in range(axis.taps))
            for point in range(size)
        )
        if counted is not None
        else ()
    )
    return Columns(tuple(spans), origin or 0, counts)


@dataclass(frozen=True)
class Rows:
    """The taps along rows: C expressions of the first one inside, and of their number."""

    first: str
    count: str

    @property
    def constant(self) -> bool:
        """True if the count is a constant, the same everywhere."""
        return self.count.isdigit()


def rows_of(
    writer: Writer,
    instance: Instance,
    axis: Axis | None,
    names: tuple[str, str, str] = ("row", "first", "rows"),
) -> Rows:
    """Write what finds the rows inside; a tile of several rows must not meet the border.

    ``names`` are the C variables to use: the image's row, the first tap, the number of taps.
    """
    row_name, first, count = names
    if axis is None:
        return Rows("0", "1")
    dim = instance.dims.get(axis.out)
    size, starts = (dim.size, dim.starts) if dim else (1, (0,))
    taps_of_rows = {
        tuple(tap for tap in range(axis.taps) if axis.inside(start, point, tap))
        for start in starts
        for point in range(size)
    }
    if len(taps_of_rows) == 1:
        taps = taps_of_rows.pop()
        return Rows(str(taps[0] if taps else 0), str(len(taps)))
    if size > 1:
        raise instance.cannot("a tile of several rows meets the image's border")
    row = (dim.start if dim else 0) * axis.stride - axis.before
    step, taps, extent = axis.dilation, axis.taps, axis.extent
    writer.line(f"const long {row_name} = {row}; /* of the image */")
    if step == 1:
        writer.line(f"const long {first} = {row_name} < 0 ? -{row_name} : 0;")
        end = f"{row_name} + {taps} > {extent} ? {extent} - {row_name} : {taps}"
    else:
        begin = f"{row_name} < 0 ? ({step - 1} - {row_name}) / {step} : 0"
        writer.line(f"const long {first} = {begin};")
        end = (
            f"{row_name} + {(taps - 1) * step} >= {extent} ? "
            f"({extent + step - 1} - {row_name}) / {step} : {taps}"
        )
    writer.line(f"const long {count} = ({end}) - {first};")
    return Rows(first, count)


def write_calls(
    writer: Writer,
    code: KernelCode,
    instance: Instance,
    sliding: Sequence[Address],
    rows: Rows,
    classes: Sequence[tuple[str, Columns]],
    extra: Mapping[str, str],
    function: Callable[[Columns, Sequence[str]], str],
    moved: int = 0,
) -> None:
    """Write the call of a tile's function, one for each class of columns.

    ``sliding`` are the image and what has the window's dims: they begin at the first tap inside,
    the image ``moved`` elements further. ``function`` writes the text for a class with the
    parameters of ``extra`` after the pointers; ``extra`` gives their arguments.
    """
    image = sliding[0]
    column = axis_of(instance, image, "kw")
    for number, (condition, columns) in enumerate(classes):
        arguments: list[str] = []
        for address in instance.addresses:
            added = {"kh": rows.first} if address in sliding and rows.first != "0" else {}
            offset = address.offset(instance.dims, added)
            if address == image and columns.origin:
                step = instance.step(image, "kw", 2) // (column.dilation if column else 1)
                offset = f"{offset} + {columns.origin * step}"
            if address == image and moved:
                offset = f"{offset} + {moved}"
            arguments.append(plus(address.pointer, offset))
        name = code.function(f"{instance.anchor.operation}_tile", function(columns, list(extra)))
        line = call(name, [*arguments, *extra.values()])
        if len(classes) == 1:
            writer.line(line)
            continue
        prefix = f"if ({condition})" if not number else f"else if ({condition})"
        writer.line(prefix if condition else "else")
        writer.line("    " + line)
