"""Depthwise separable convolution: a block of the depthwise result in scratch, then a product.

Scratch holds one block of points as an image of its own, NCHW16c. With the first output channels
the block's windows are summed into it, then every few vectors of output channels are multiplied
from there. Both parts are the register tiles of the two convolutions on their own (lanewise.py,
product.py), so results are the same, bit for bit, where those keep the order of the sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilewright.codegen.c.address import Address, Extent
from tilewright.codegen.c.source import Writer
from tilewright.codegen.nest.value import variable
from tilewright.planning.domain import Affine
from tilewright.planning.layout import Layout
from tilewright.targets.cpu.instance import Instance, Step
from tilewright.targets.cpu.planning.blocks import register_tiles, runs_of
from tilewright.targets.cpu.primitives import lanewise, product
from tilewright.targets.cpu.primitives.block_products import first_condition
from tilewright.targets.cpu.primitives.code import KernelCode

_ORIGINS = {"oh": "oh_origin", "ow": "ow_origin"}
"""For each dim of points the dim that stands for where the block begins."""


def emit(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write the block: windows into scratch, with the first output channels, then products."""
    block = _Block.of(instance)
    with writer.block():
        condition = first_condition(instance)
        if condition is not None:
            head = "/* the depthwise convolution of the block */"
            with writer.block(f"if ({condition}) {head}" if condition else head):
                _named(writer, block.x, block.window)
                block.write_windows(code, writer)
        with writer.block("/* its product */"):
            _named(writer, block.scratch, block.w)
            block.write_products(code, writer)


def _named(writer: Writer, x: Address, w: Address) -> None:
    """Give the two operands the names that register tiles know them by."""
    for name, address in (("x", x), ("w", w)):
        if address.pointer != name:
            writer.line(f"const {address.c_type} *{name} = {address.pointer};")


@dataclass(frozen=True)
class _Block:
    """One instance and its operands."""

    instance: Instance
    x: Address
    window: Address
    w: Address
    scratch: Address
    biases: tuple[Address, Address]

    @classmethod
    def of(cls, instance: Instance) -> _Block:
        x, window, w, scratch, first, second = instance.tensors
        if instance.split or instance.size("n") != 1:
            raise instance.cannot("a block is of one image and all channels")
        later = [o for step in instance.steps[1:] for o in step.inputs]
        if any(isinstance(o, Address) and o.pointer == x.pointer for o in later):
            raise instance.cannot("the image is read again after the product")
        return cls(instance, x, window, w, scratch, (first, second))

    @property
    def channels(self) -> int:
        """The channels between both convolutions."""
        return self.instance.extents["c"]

    @property
    def down(self) -> str:
        """The loop over the block's rows."""
        return _loop("line", range(self.instance.size("oh")))

    def inner(self, dim: str) -> Address:
        """The block in scratch as an image, with channels along ``dim``."""
        lanes = self.instance.lanes
        shape = (1, self.channels, self.instance.size("oh"), self.instance.size("ow"))
        layout = Layout.parse(f"NCHW{lanes}c", 4)
        points = [Affine(((name, 1), (origin, -1))) for name, origin in _ORIGINS.items()]
        window = (Affine(), Affine(((dim, 1),)), *points)
        strides = layout.strides(shape)
        return Address(self.scratch.pointer, "float32", shape, window, layout, strides)

    def tiles(self, most: int) -> Iterator[tuple[str, dict[str, Extent]]]:
        """Runs of register tiles of a row: the loop over them, and their dims."""
        dims, columns = self.instance.dims, self.instance.size("ow")
        fixed = {origin: replace(dims[dim], size=1) for dim, origin in _ORIGINS.items()}
        fixed["oh"] = _moved(dims["oh"], "line", range(self.instance.size("oh")))
        for size, times, start, _ in runs_of(register_tiles(columns, most)):
            places = range(start, start + times * size, size)
            yield _loop("place", places), {**fixed, "ow": _moved(dims["ow"], "place", places, size)}

    def write_windows(self, code: KernelCode, writer: Writer) -> None:
        """Write the depthwise convolution of the block."""
        instance, lanes = self.instance, self.instance.lanes
        attributes = instance.anchor.attributes
        result = self.inner("c")
        anchor = Step(
            "depthwise_conv",
            (replace(self.x, pointer="x"), replace(self.window, pointer="w"), self.biases[0]),
            attributes,
            result,
            node=instance.anchor.node,
        )
        steps = [anchor]
        if attributes.get("between"):
            bounds = {k: v for k, v in attributes.items() if k in ("minimum", "maximum")}
            steps.append(Step(str(attributes["between"]), (0,), bounds, result))
        full = self.channels // lanes * lanes
        blocks = range(0, full, lanes)
        parts = [Extent(variable("channel"), lanes, tuple(blocks))] if full else []
        if full < self.channels:
            parts.append(Extent(full, self.channels - full, (full,)))
        kept = {dim: e for dim, e in instance.dims.items() if dim not in ("co", "oh", "ow")}
        for part in parts:
            head = "" if isinstance(part.start, int) else _loop("channel", blocks)
            for across, dims in self.tiles(int(instance.options["columns"])):
                tile = replace(
                    instance,
                    primitive="depthwise_conv",
                    steps=tuple(steps),
                    output=result,
                    dims={**kept, **dims, "c": part},
                    reduction=("kh", "kw"),
                )
                with writer.block(f"{head} {self.down} {across}".lstrip()):
                    lanewise.emit(tile, code, writer)

    def write_products(self, code: KernelCode, writer: Writer) -> None:
        """Write the product of the block with a few vectors of output channels."""
        instance = self.instance
        across = tuple(
            Affine(tuple(("ci" if name == "c" else name, n) for name, n in axis.terms))
            for axis in self.w.window
        )
        x, w = replace(self.inner("ci"), pointer="x"), replace(self.w, pointer="w", window=across)
        anchor = Step(
            "conv", (x, w, self.biases[1]), {}, instance.output, node=instance.anchor.node
        )
        dropped = ("c", "kh", "kw", "oh", "ow")
        kept = {dim: e for dim, e in instance.dims.items() if dim not in dropped}
        for across, dims in self.tiles(int(instance.options["points"])):
            tile = replace(
                instance,
                primitive="conv",
                loops=(),  # Weights are read again for every row: none is fetched ahead.
                steps=(anchor, *instance.steps[1:]),
                dims={**kept, **dims, "ci": Extent(0, self.channels)},
                extents={**instance.extents, "ci": self.channels},
                reduction=("ci",),
            )
            with writer.block(f"{self.down} {across}"):
                product.emit(tile, code, writer)


def _moved(extent: Extent, by: str, range_: range, size: int = 1) -> Extent:
    """A dim within the block: ``by`` indices, out of a range, after the block's start."""
    starts = tuple(sorted({start + index for start in extent.starts for index in range_}))
    return Extent(extent.start + variable(by), size, starts)


def _loop(variable: str, places: range) -> str:
    start, end, step = places.start, places.stop, places.step
    return f"for (long {variable} = {start}; {variable} < {end}; {variable} += {step})"
