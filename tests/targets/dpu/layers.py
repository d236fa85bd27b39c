"""Programs for one layer from explicit tile sizes: no planner, no fusion, one input, one result.

Feature maps lie in main memory as [rows, pixels, channels]. A tile is a number of rows of results,
whole in width and, but for those of a convolution, in channels; its input lies in bank group 0, its
results in group 1, and tiles take turns at two halves of the banks, so that LOADs, sums and SAVEs
overlap. Weights come by groups of
output channels into a ring of as many places as the banks have; where all groups fit they come
once. Rows of padding are not loaded: they have places in the banks that nothing reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from tests.targets.dpu.derived import Builder

from tilewright.errors import TilewrightError, refuse
from tilewright.targets.dpu.core import DEPTH, Core
from tilewright.targets.dpu.formats import ACTIVATIONS

PARAMETERS, INPUT, OUTPUT, SECOND = 0, 2, 3, 4
"""Base registers: weights and biases, the input, the result, a second input."""

Kind = Literal["conv", "depthwise", "max", "average"]


@dataclass(frozen=True)
class Layer:
    """One layer with windows.

    Weights lie behind PARAMETERS as [out, kernel_h, kernel_w, in] (depthwise: [kernel_h, kernel_w,
    channels]), biases behind them. ``shift_cut`` of a pool is what its results are multiplied by,
    as a power of two.
    """

    kind: Kind
    height: int
    width: int
    channels: int
    outputs: int
    """Output channels; those of the input but for ``conv``."""
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Top, left, bottom, right."""
    shift_cut: int = 0
    shift_bias: int = 0
    activation: str = "none"

    @property
    def out_height(self) -> int:
        """Rows of the result."""
        return (self.height + self.pads[0] + self.pads[2] - self.kernel[0]) // self.stride[0] + 1

    @property
    def out_width(self) -> int:
        """Pixels of a row of the result."""
        return (self.width + self.pads[1] + self.pads[3] - self.kernel[1]) // self.stride[1] + 1

    @property
    def taps(self) -> int:
        """Elements of the kernel."""
        return self.kernel[0] * self.kernel[1]

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights; biases follow."""
        return self.taps * self.channels * (self.outputs if self.kind == "conv" else 1)


def window_program(
    core: Core, layer: Layer, tile_rows: int, tile_groups: int | None = None
) -> Builder:
    """The program of a layer, ``tile_rows`` rows of results at a time.

    A convolution's results come ``tile_groups`` groups of output channels at a time, all by
    default; the input of a tile is loaded once for all of them.

    Raises TilewrightError: ``lower-layer`` for what the program generator or the core cannot do,
    with the least tile that does not fit, ``isa-field`` for a size that no field holds.
    """
    return _WindowProgram(core, layer, tile_rows, tile_groups or 1 << 16).build()


class _Ring:
    """Places of groups of weights: the oldest makes room for the next."""

    def __init__(self, places: int, size: int) -> None:
        self.size = size
        self.holds: list[int | None] = [None] * places
        self.next = 0

    def place(self, group: int) -> tuple[int, bool]:
        """Bank row of a group, and whether it lies there already."""
        if group in self.holds:
            return self.holds.index(group) * self.size, True
        slot, self.next = self.next, (self.next + 1) % len(self.holds)
        self.holds[slot] = group
        return slot * self.size, False


@dataclass(frozen=True)
class _Block:
    """Rows of results that one instruction computes."""

    first: int
    """First row of the tile."""
    row: int
    """First of the block, in the tile."""
    rows: int
    half: int
    """Where the tile's input begins in its banks."""
    out: int
    """Where its results do."""


@dataclass(frozen=True)
class _WindowProgram:
    core: Core
    layer: Layer
    tile_rows: int
    tile_groups: int

    @cached_property
    def groups_in(self) -> int:
        return -(-self.layer.channels // self.core.channels)

    @cached_property
    def groups_out(self) -> int:
        return -(-self.layer.outputs // self.core.channels)

    @property
    def _row_in(self) -> int:
        """Bank rows of a row of the input."""
        return self.layer.width * self.groups_in

    @property
    def _turn_in(self) -> int:
        """Bank rows of one turn round the banks: as many rows of the input as the stride."""
        return self.layer.stride[0] * self._row_in

    @property
    def _parts(self) -> list[range]:
        """Groups of output channels that are computed and saved together."""
        step = min(self.tile_groups, self.groups_out)
        starts = range(0, self.groups_out, max(step, 1))
        return [range(start, min(start + step, self.groups_out)) for start in starts]

    def build(self) -> Builder:
        layer, core = self.layer, self.core
        self._check()
        build = Builder(core)
        bias = layer.weight_bytes
        if layer.kind in ("conv", "depthwise"):
            build.add(
                "load", bank_id=core.group("bias").first, channel=layer.outputs,
                reg_id=PARAMETERS, ddr_addr=bias,
            )  # fmt: skip
        if layer.kind == "depthwise":
            build.add(
                "load", bank_id=core.group("depthwise").first, length=layer.taps,
                channel=layer.channels, jump_read=layer.channels, jump_write=self.groups_in,
                reg_id=PARAMETERS,
            )  # fmt: skip
        size = layer.taps * self.groups_in
        weights = _Ring(max(1, DEPTH // size), size)
        part_number = 0
        for tile, first in enumerate(range(0, layer.out_height, self.tile_rows)):
            rows = min(self.tile_rows, layer.out_height - first)
            half = tile % 2 * (DEPTH // 2)
            self._load_input(build, first, rows, half)
            for part in self._parts:
                out = part_number % 2 * (DEPTH // 2)
                part_number += 1
                for group in part if layer.kind == "conv" else part[:1]:
                    place, known = weights.place(group)
                    if layer.kind == "conv" and not known:
                        self._load_weights(build, group, place)
                    for row in range(0, rows, self._at_once):
                        block = _Block(first, row, min(self._at_once, rows - row), half, out)
                        self._compute(build, block, part, group, place)
                self._save(build, first, rows, out, part)
        return build

    @property
    def _at_once(self) -> int:
        return self.core.rows if self.layer.kind == "conv" else self.core.misc_rows

    def _refuse(self, reason: str, help: str) -> TilewrightError:
        return refuse("lower-layer", reason, f"{self.layer.kind} on {self.core.name}", help)

    def _check(self) -> None:
        layer, core = self.layer, self.core
        if min(layer.out_height, layer.out_width, self.tile_rows) < 1:
            raise self._refuse("it has no results", "a larger input, or a tile of 1 row or more")
        if any(pad >= size for pad, size in zip(layer.pads, layer.kernel * 2, strict=True)):
            raise self._refuse("its padding is as large as its kernel", "less padding")
        if layer.kind != "conv" and (layer.outputs != layer.channels or len(self._parts) > 1):
            raise self._refuse("it has as many outputs as channels, all at once", "")
        rows = min(self.tile_rows, layer.out_height)
        turns_in = -(-((rows - 1) + -(-layer.kernel[0] // layer.stride[0])) // core.rows)
        turns_out = -(-rows // core.rows)
        for what, need in (
            ("input", turns_in * self._turn_in),
            ("result", turns_out * layer.out_width * len(self._parts[0])),
        ):
            if need > DEPTH // 2:
                raise self._refuse(
                    f"the {what} of {rows} rows takes {need} rows of the {DEPTH // 2} that a tile "
                    "has in every bank",
                    "fewer rows in a tile; a narrower image, or fewer channels",
                )
        if layer.kind == "conv" and layer.taps * self.groups_in > DEPTH:
            raise self._refuse(
                f"weights of one group take {layer.taps * self.groups_in} rows of {DEPTH}",
                "fewer input channels",
            )

    @cached_property
    def _common(self) -> dict[str, int]:
        """What the INITs of all kinds hold."""
        layer = self.layer
        return {
            "jump_read": self.groups_in,
            "kernel_h": layer.kernel[0], "kernel_w": layer.kernel[1],
            "stride_h": layer.stride[0], "stride_w": layer.stride[1], "shift_cut": layer.shift_cut,
        }  # fmt: skip

    def _lines(self, part: range) -> dict[str, int]:
        """From row to row in one bank; POOLs hold these themselves, sums' INITs do for them."""
        turn = self.layer.out_width * len(part)
        return {"jump_read_endl": self._row_in, "jump_write_endl": turn}

    def _compute(self, build: Builder, block: _Block, part: range, group: int, place: int) -> None:
        layer, core = self.layer, self.core
        self._set_rows(build, block.rows, part)
        turn, bank = divmod(block.row, core.rows)
        left = layer.pads[1]
        bases = {
            name: (block.half + (turn + k) * self._turn_in - left * self.groups_in) % DEPTH
            for k, name in enumerate(
                ("bank_addr_in", "bank_addr_in_1", "bank_addr_in_2", "bank_addr_in_3")
            )
        }
        start = (block.first + block.row) * layer.stride[0] - layer.pads[0]
        end = start + (block.rows - 1) * layer.stride[0] + layer.kernel[0]
        right = (layer.out_width - 1) * layer.stride[1] + layer.kernel[1] - left - layer.width
        values = {
            **bases,
            "bank_id_in": bank,
            "bank_id_out": core.rows + bank,
            "bank_addr_out": block.out + turn * layer.out_width * len(part) + group - part.start,
            "length": layer.out_width,
            "channel_group": self.groups_in,
            "pad_top": max(0, -start),
            "pad_left": left,
            "pad_bottom": layer.kernel[0] - 1 - max(0, end - layer.height),
            "pad_right": layer.kernel[1] - 1 - max(0, right),
        }
        unused = self.groups_in * core.channels - layer.channels
        if layer.kind == "conv":
            build.add(
                "conv", **values, channel_offset=unused, bank_addr_weights=place,
                bank_addr_bias=group,
            )  # fmt: skip
        elif layer.kind == "depthwise":
            build.add(
                "dwconv", **values, channel_offset=unused,
                act_type=ACTIVATIONS.index(layer.activation),
            )  # fmt: skip
        else:
            build.add("pool", **values, **self._lines(part))

    def _set_rows(self, build: Builder, rows: int, part: range) -> None:
        """The INIT of a block, where it differs from the one before."""
        layer = self.layer
        values = {**self._common, "valid_pixel_parallel": rows, "jump_write": len(part)}
        if layer.kind in ("max", "average"):
            shift = values["shift_cut"]
            values["shift_cut"] = shift if shift >= 0 else 8 - shift
            values["pool_type"] = ("max", "average").index(layer.kind)
            name = "poolinit"
        else:
            values |= {"shift_bias": layer.shift_bias, **self._lines(part)}
            name = "dwinit"
            if layer.kind == "conv":
                values["act_type"] = ACTIVATIONS.index(layer.activation)
                name = "convinit"
        last = next(
            (statement for statement in reversed(build.statements) if statement.mnemonic == name),
            None,
        )
        if last is None or last.values != values:
            build.add(name, **values)

    def _load_input(self, build: Builder, first: int, rows: int, half: int) -> None:
        layer = self.layer
        start = first * layer.stride[0] - layer.pads[0]
        end = start + (rows - 1) * layer.stride[0] + layer.kernel[0]
        for y in range(max(start, 0), min(end, layer.height)):
            slot, line = divmod(y - start, layer.stride[0])
            turn, bank = divmod(slot, self.core.rows)
            build.add(
                "load", bank_id=bank,
                bank_addr=half + turn * self._turn_in + line * self._row_in,
                length=layer.width, channel=layer.channels, jump_read=layer.channels,
                jump_write=self.groups_in, reg_id=INPUT,
                ddr_addr=y * layer.width * layer.channels,
            )  # fmt: skip

    def _load_weights(self, build: Builder, group: int, place: int) -> None:
        layer, core = self.layer, self.core
        size = layer.taps * layer.channels
        for channel in range(min(core.channels, layer.outputs - group * core.channels)):
            build.add(
                "load", bank_id=core.group("weight").first + channel, bank_addr=place,
                length=layer.taps, channel=layer.channels, jump_read=layer.channels,
                jump_write=self.groups_in, reg_id=PARAMETERS,
                ddr_addr=(group * core.channels + channel) * size,
            )  # fmt: skip

    def _save(self, build: Builder, first: int, rows: int, out: int, part: range) -> None:
        layer, core = self.layer, self.core
        channel = part.start * core.channels
        for row in range(rows):
            turn, bank = divmod(row, core.rows)
            build.add(
                "save", bank_id=core.rows + bank,
                bank_addr=out + turn * layer.out_width * len(part), length=layer.out_width,
                channel=min(len(part) * core.channels, layer.outputs - channel),
                jump_read=len(part), jump_write=layer.outputs, reg_id=OUTPUT,
                ddr_addr=(first + row) * layer.out_width * layer.outputs + channel,
            )  # fmt: skip


def sum_program(
    core: Core,
    height: int,
    width: int,
    channels: int,
    shifts_read: tuple[int, int],
    shift_write: int,
    tile_rows: int,
    *,
    multiply: bool = False,
    relu: bool = False,
) -> Builder:
    """The program of an elementwise sum, or product, of the inputs behind INPUT and SECOND.

    ``shift_write`` is what results are multiplied by, as a power of two. Raises TilewrightError
    (``lower-layer``, ``isa-field``).
    """
    groups = -(-channels // core.channels)
    row = width * groups
    tile_rows = min(tile_rows, height)
    need = -(-tile_rows // core.rows) * row
    if need > DEPTH // 4:
        raise refuse(
            "lower-layer",
            f"an operand of {tile_rows} rows takes {need} rows of the {DEPTH // 4} that it has in "
            "every bank",
            f"elementwise on {core.name}",
            "fewer rows in a tile; a narrower image, or fewer channels",
        )
    build = Builder(core)
    for tile, first in enumerate(range(0, height, tile_rows)):
        rows = min(tile_rows, height - first)
        half = tile % 2 * (DEPTH // 2)
        places = (half, half + DEPTH // 4)
        for place, register in zip(places, (INPUT, SECOND), strict=True):
            _rows_of(build, "load", first, rows, width, channels, 0, place, register)
        for start in range(0, rows, core.elementwise_rows):
            turns, bank = divmod(start, core.rows)
            for number, (place, shift) in enumerate(zip(places, shifts_read, strict=True)):
                build.add(
                    "elewinit", bank_id_in=bank, bank_addr_in=place + turns * row,
                    jump_read=groups, jump_read_endl=row, shift_read=shift, id=number,
                )  # fmt: skip
            build.add(
                "elew", num=2, length=width, channel_group=groups,
                valid_pixel_parallel=min(core.elementwise_rows, rows - start),
                bank_id_out=core.rows + bank, bank_addr_out=half + turns * row, jump_write=groups,
                jump_write_endl=row, elew_type=int(multiply), act_type=int(relu),
                shift_write=shift_write if shift_write >= 0 else 8 - shift_write,
            )  # fmt: skip
        _rows_of(build, "save", first, rows, width, channels, core.rows, half, OUTPUT)
    return build


def _rows_of(
    build: Builder, mnemonic: str, first: int, rows: int, width: int, channels: int, bank: int,
    place: int, register: int,
) -> None:  # fmt: skip
    """LOADs or SAVEs of the rows of a tile, one bank after the other."""
    core = build.core
    groups = -(-channels // core.channels)
    inside, outside = ("jump_write", "jump_read")[:: 1 if mnemonic == "load" else -1]
    for row in range(rows):
        turn, number = divmod(row, core.rows)
        build.add(
            mnemonic, bank_id=bank + number, bank_addr=place + turn * width * groups,
            length=width, channel=channels, reg_id=register,
            ddr_addr=(first + row) * width * channels,
            **{inside: groups, outside: channels},
        )  # fmt: skip
