"""Grouped convolution where groups do not fill whole vectors of channels.

Vectors of output channels are those of the layout, so one may belong to two groups or more: each
group's inputs are then multiplied with all lanes' weights, and after the group the other groups'
lanes are set back to what they were. Weights of zero there would make NaN of an infinite input.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilewright.codegen.c.address import Address
from tilewright.codegen.c.source import Writer, plus
from tilewright.planning.domain import Affine
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.primitives.channels import by_channels, vectors_of
from tilewright.targets.cpu.primitives.code import KernelCode
from tilewright.targets.cpu.primitives.product import emit_tile, tile_of
from tilewright.targets.cpu.primitives.reduction import stride_between, window_of, write_loops
from tilewright.targets.cpu.primitives.steps import Loop, Tile
from tilewright.targets.cpu.primitives.windows import Columns


def emit(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write the calls for every vector of output channels."""
    depth, per_group = instance.extents["ci"], instance.extents["co"]
    if instance.size("ci") < depth:
        raise instance.cannot("tiles hold all input channels of a group")
    for vector in vectors_of(by_channels(instance, "co"), "co"):
        x = vector.tensor(0)
        # Groups are found by constants; what is left of the channels' axis is the block's start.
        n, _, rows, columns = x.window
        still = replace(x, window=(n, Affine(), rows, columns))
        anchor = replace(vector.anchor, inputs=(still, *vector.anchor.inputs[1:]))
        vector = replace(vector, steps=(anchor, *vector.steps[1:]))
        start, size = vector.dims["co"].starts[0], vector.dims["co"].size
        groups = range(start // per_group, (start + size - 1) // per_group + 1)
        reduce = _Groups(vector, start, groups, depth, per_group)
        emit_tile(tile_of(vector), still, vector.tensor(1), code, writer, reduce, reduce.base)


@dataclass(frozen=True)
class _Part:
    """The offsets of channels in the image and the weights, and their elements of a word."""

    x: int
    w: int
    size: int = 0
    """Elements of the one word; 0 if words are whole."""
    skip: int = 0
    """Elements of the word before those of the group."""


class _Groups:
    """The reduction of one vector of output channels over the groups that it belongs to."""

    def __init__(
        self, instance: Instance, start: int, groups: range, depth: int, per_group: int
    ) -> None:
        self.instance = instance
        self.start = start
        self.groups = groups
        self.depth = depth
        self.per_group = per_group
        x = instance.tensor(0)
        self.base = x.part(1, self._block(groups.start * depth))

    def _block(self, channel: int) -> int:
        """The channel with which a channel's block begins."""
        return channel - channel % self.instance.lanes

    def __call__(
        self, writer: Writer, tile: Tile, x: Address, w: Address, columns: Columns, rows: str
    ) -> None:
        """Write the loops, block by block of each group's input channels."""
        lanes = self.instance.lanes
        window, across, taps = window_of(tile, x, w, columns, rows)
        several = len(self.groups) > 1
        if several:
            writer.line(f"{tile.lane_type} kept[{tile.rows * tile.columns}];")
            writer.line(f"{tile.loops()} kept[{tile.point}] = a[{tile.point}][0];")
        for number, group in enumerate(self.groups):
            channel, end = group * self.depth, (group + 1) * self.depth
            while channel < end:
                size = min(self._block(channel) + lanes, end) - channel
                for loop, part in self._steps(tile, x, w, group, channel, size):
                    place = x.part(1, channel) - self.base + part.x
                    with writer.block():
                        writer.line(f"const {x.c_type} *xg = {plus('x', str(place))};")
                        writer.line(f"const {w.c_type} *wg = {plus('w', str(part.w))};")
                        before, pointers = [window], ("xg", "wg")
                        taken = part.size, part.skip
                        write_loops(writer, tile, w, before, taps, across, [loop], pointers, *taken)
                channel += size
            if several:
                self._write_choice(writer, tile, number, group)

    def _steps(
        self, tile: Tile, x: Address, w: Address, group: int, channel: int, size: int
    ) -> Iterator[tuple[Loop, _Part]]:
        """Loops over ``size`` channels of a group from ``channel`` on, which lie side by side.

        Words that a block of lanes ends within are taken in parts. The last word of a group may
        hold other channels, too, for which the weights are zero.
        """
        first, word = channel - group * self.depth, tile.word
        if word is None:
            step = tile.instance.step(w, "ci", self.depth)
            inner = x.part(1, channel + 1) - x.part(1, channel) if size > 1 else 0
            yield Loop("i", size, inner, step), _Part(0, first * step)
            return
        lanes, elements = self.instance.lanes, word.elements
        step, done = stride_between(w, "ci", elements), 0
        while done < size:
            number, skip = divmod(first + done, elements)
            left = size - done
            whole = 0 if skip else left // elements
            if not skip and first + size == self.depth:
                room = lanes - (channel + done) % lanes
                whole = min(-(-left // elements), room // elements)
            if whole:
                yield Loop("i", whole, elements, step), _Part(done, number * step)
                done += whole * elements
            else:
                taken = min(elements - skip, left)
                yield Loop("i", 1, 0, 0), _Part(done, number * step, taken, skip)
                done += taken

    def _write_choice(self, writer: Writer, tile: Tile, number: int, group: int) -> None:
        """Keep what a group's lanes have added up, and set the others back."""
        lanes = [
            -1 if (self.start + lane) // self.per_group == group else 0
            for lane in range(self.instance.lanes)
        ]
        writer.line(f"const mask own{number} = {{{', '.join(map(str, lanes))}}};")
        with writer.block(tile.loops()):
            chosen = f"choose(own{number}, (vec)a[{tile.point}][0], (vec)kept[{tile.point}])"
            writer.line(f"a[{tile.point}][0] = kept[{tile.point}] = ({tile.lane_type}){chosen};")
