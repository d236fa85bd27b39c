"""Computes of tiles as instructions: one for as many rows as the core computes at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tilewright.errors import TilewrightError, refuse
from tilewright.ir.types import fraction_of
from tilewright.numerics.power_of_two import AVERAGE_FACTORS, GUARD_BITS
from tilewright.targets.dpu.core import DEPTH, Core
from tilewright.targets.dpu.formats import ACTIVATIONS, ALU_MODES
from tilewright.targets.dpu.lowering.dependences import Area
from tilewright.targets.dpu.lowering.epilogue import Epilogue
from tilewright.targets.dpu.lowering.program import Program
from tilewright.targets.dpu.lowering.tiles import Tile
from tilewright.targets.dpu.places import BASES
from tilewright.tile.dialect import BufferOp, StageOp

MOST_SHIFT = 63
"""Right shift of sums of products at most."""

MOST_STEP = 4
"""The most rows of results in a bank (``stride_out``)."""

MOST_POOL = 8
"""The most rows and columns of a POOL's window, and the largest strides."""


@dataclass(frozen=True)
class Window:
    """The size, strides and padding of a window that moves over an image."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int] = (0, 0)
    """Top and left; those of the far side follow from the sizes."""


@dataclass(frozen=True)
class Execution:
    """One execution of a compute, on one tile."""

    build: Program
    stage: StageOp
    inputs: list[Tile]
    output: Tile
    epilogue: Epilogue
    bias_row: int
    bias: Sequence[Area]
    """Places of the bias, or of the zeros that stand for it."""
    bias_shift: int
    """The value of field ``shift_bias``."""

    @property
    def core(self) -> Core:
        """The core for which the kernel is built."""
        return self.build.core

    @cached_property
    def parameters(self) -> Mapping[str, object]:
        """The attributes of the stage's operation."""
        return self.stage.parameters

    def pair(self, name: str, default: tuple[int, int] = (1, 1)) -> tuple[int, int]:
        """The two integers of an attribute."""
        pair = self.parameters.get(name, default)
        assert isinstance(pair, Sequence)
        return int(pair[0]), int(pair[1])

    def refuse(self, code: str, reason: str, help: str = "") -> TilewrightError:
        """The refusal of this operation."""
        node = self.stage.node.data if self.stage.node is not None else ""
        return refuse(code, f"{self.stage.operation.data}: {reason}", node, help)

    def refuse_dilation(self) -> None:
        """Refuse (``lower-dilation``) windows whose elements lie apart."""
        if self.pair("dilations") != (1, 1):
            raise self.refuse("lower-dilation", "windows cannot be dilated", "a dilation of 1")

    def blocks(self, most: int, window: Window | None = None) -> Iterator[tuple[int, int]]:
        """First row, counted from the tile's, and number of rows of what is computed at once.

        Refuses (``lower-window``) a window that goes on in more turns round the banks than an
        instruction has addresses for.
        """
        row, end = 0, self.output.rows
        while row < end:
            rows = min(most, end - row, self.output.following(row))
            if window is not None:
                rows = min(rows, self._addressed(window, row))
            yield row, rows
            row += rows

    def _addressed(self, window: Window, row: int) -> int:
        """The most rows of results from one on whose windows an instruction's addresses reach."""
        kernel, stride = window.kernel[0], window.strides[0]
        y = (self.output.first_row + row) * stride - window.pads[0]
        _, bank, line = self.inputs[0].line(y - self.inputs[0].first_row)
        columns_left = (len(BASES) * self.core.rows - bank) * stride - line
        if columns_left < kernel:
            raise self.refuse(
                "lower-window",
                f"its window has {kernel} rows, {self.core.rows * stride} a round over the banks, "
                f"and an instruction has addresses for {len(BASES)} rounds",
                f"a window of {(len(BASES) - 1) * self.core.rows * stride + 1} rows or less",
            )
        return (columns_left - kernel) // stride + 1

    def source(self, window: Window, row: int, rows: int) -> dict[str, int]:
        """Fields of the windows of some rows of results: where they begin, and their padding."""
        image, out = self.inputs[0], self.output
        (kernel_h, kernel_w), (down, along) = window.kernel, window.strides
        y = (out.first_row + row) * down - window.pads[0]
        x = out.first_pixel * along - window.pads[1]
        turn, bank, line = image.line(y - image.first_row)
        left = (x - image.first_pixel) * image.jump
        bases = {name: (image.beginning(turn + k) + left) % DEPTH for k, name in enumerate(BASES)}
        below = y + (rows - 1) * down + kernel_h - image.height
        beyond = x + (out.pixels - 1) * along + kernel_w - image.width
        if max(0, below) >= kernel_h or max(0, beyond) >= kernel_w:
            raise self.refuse(
                "lower-padding",
                f"its last window lies {max(0, below)} rows and {max(0, beyond)} pixels after the "
                f"image, and is {kernel_h} x {kernel_w}: it would read nothing but padding",
                "less padding at the end than the kernel's size",
            )
        return {
            **bases,
            "bank_id_in": image.group.first + bank,
            "stride_offset_in": line,
            "length": out.pixels,
            "channel_group": image.groups,
            "pad_top": max(0, -y),
            "pad_left": max(0, -x),
            "pad_bottom": kernel_h - 1 - max(0, below),
            "pad_right": kernel_w - 1 - max(0, beyond),
        }

    def touch(
        self, first: int, row: int, rows: int, window: Window, further: Sequence[Area] = ()
    ) -> None:
        """Say that the instructions from ``first`` on compute some rows of results from windows."""
        image, down = self.inputs[0], window.strides[0]
        y = (self.output.first_row + row) * down - window.pads[0] - image.first_row
        reads = image.areas(y, (rows - 1) * down + window.kernel[0])
        self.build.touch(first, [*reads, *further], self.output.areas(row, rows))

    def target(self, row: int, group: int = 0) -> dict[str, int]:
        """Fields of where results go; of several rows of a bank, the address of the first."""
        bank, address = self.output.bank(row)
        return {"bank_id_out": bank, "bank_addr_out": (address + group) % DEPTH}

    def common(self, window: Window, row: int, rows: int) -> dict[str, int]:
        """Fields of windows and results that do not depend on where they begin."""
        image, out = self.inputs[0], self.output
        if window.strides[0] != image.step:
            raise self.refuse("lower-stride", "its rows in the banks are for another stride")
        if out.step > MOST_STEP:
            raise self.refuse(
                "lower-stride",
                f"its result is read by windows of stride {out.step}, for which it would write "
                f"{out.step} rows to a bank",
                f"strides up to {MOST_STEP}",
            )
        turns = out.circle > self.core.rows and out.step == 1
        return {
            "jump_read": image.jump,
            "jump_read_endl": image.row_jump,
            "jump_write": out.jump,
            "jump_write_endl": out.turn if turns else out.row_jump,
            "stride_out": out.step,
            "stride_offset_out": out.line(row)[2],
            "kernel_h": window.kernel[0],
            "kernel_w": window.kernel[1],
            "stride_h": window.strides[0],
            "stride_w": window.strides[1],
            "valid_pixel_parallel": rows,
        }

    def sums(self) -> dict[str, int]:
        """Fields of sums of products."""
        shift, image = self.epilogue.shift, self.inputs[0]
        if not 0 <= shift <= MOST_SHIFT:
            raise self.refuse(
                "lower-shift",
                f"its sums have binary point {self.epilogue.sums}, its result "
                f"{self.epilogue.result}: a shift to the right by {shift}",
                f"binary points with a shift of 0 to {MOST_SHIFT}",
            )
        return {
            "shift_cut": shift,
            "shift_bias": self.bias_shift,
            "channel_offset": image.groups * self.core.channels - image.channels,
            "act_type": ACTIVATIONS.index(self.epilogue.activation),
        }

    def compute(
        self,
        mnemonic: str,
        window: Window,
        values: Mapping[str, int],
        weights: Sequence[Area] = (),
    ) -> None:
        """Add an instruction of the MISC engine for each block of rows of results, with ``values``
        beside the fields of its windows."""
        for row, rows in self.blocks(self.core.misc_rows, window):
            fields = {**self.source(window, row, rows), **self.common(window, row, rows), **values}
            number = self.build.add_with_init(mnemonic, {**fields, **self.target(row)})
            self.touch(number, row, rows, window, weights)


def product(at: Execution) -> None:
    """A convolution, or a product of matrices as one with a kernel of 1 x 1."""
    build, core = at.build, at.core
    weight = at.inputs[1]
    window = Window((1, 1))
    if at.stage.operation.data == "conv":
        at.refuse_dilation()
        sizes = weight.tensor.shape
        window = Window((sizes[2], sizes[3]), at.pair("strides"), at.pair("pads", (0, 0)))
        if at.inputs[0].runs is not None:
            (down, _), (top, _) = window.strides, window.pads
            window = Window((sizes[2], 1), (down, 1), (top, 0))
    elif not at.parameters.get("transpose_b", False):
        raise at.refuse("lower-layout", "weights are [input, output]", "constant weights")
    elif at.parameters.get("transpose_a", False):
        raise at.refuse("lower-layout", "rows of the input are its channels")
    if max(window.strides) > MOST_POOL:
        raise at.refuse("lower-stride", f"strides {list(window.strides)}", "strides up to 8")
    image, sums = at.inputs[0], at.sums()
    step = window.kernel[0] * window.kernel[1] * image.groups
    for row, rows in at.blocks(core.rows, window):
        fields = {**at.source(window, row, rows), **at.common(window, row, rows), **sums}
        numbers: list[int] = []
        for group in range(at.output.groups):
            taps = (weight.base + group * step) % DEPTH
            bias = at.bias_row + (group if at.bias_shift else 0)
            given = {"bank_addr_weights": taps, "bank_addr_bias": bias, **at.target(row, group)}
            numbers.append(build.add_with_init("conv", {**fields, **given}))
            build.touch(numbers[-1], [weight.block(taps, step)])
        at.touch(numbers[0], row, rows, window, at.bias)


def depthwise(at: Execution) -> None:
    """A convolution channel by channel."""
    weight, image = at.inputs[1], at.inputs[0]
    at.refuse_dilation()
    sizes = weight.tensor.shape
    window = Window((sizes[2], sizes[3]), at.pair("strides"), at.pair("pads", (0, 0)))
    if max(window.strides) > 16:
        raise at.refuse("lower-stride", f"strides {list(window.strides)}", "strides up to 16")
    values = {**at.sums(), "bank_addr_weights": weight.base, "bank_addr_bias": at.bias_row}
    taps = weight.block(weight.base, window.kernel[0] * window.kernel[1] * image.groups)
    at.compute("dwconv", window, values, [taps, *at.bias])


def maximum(at: Execution) -> None:
    """The maximum of windows: by POOL where its fields hold the window, else by the ALU."""
    at.refuse_dilation()
    window = Window(at.pair("kernel"), at.pair("strides"), at.pair("pads", (0, 0)))
    if max(*window.kernel, *window.strides) <= MOST_POOL:
        at.compute("pool", window, {"pool_type": 0, "shift_cut": 0})
    else:
        _alu(at, window, {"exec_mode": ALU_MODES.index("max"), "shift_cut": 0})


def average(at: Execution) -> None:
    """The mean of windows, by the factor that stands for the division."""
    window = Window(at.pair("kernel"), at.pair("strides"), at.pair("pads", (0, 0)))
    if "factor" not in at.parameters:
        raise at.refuse(
            "lower-average",
            "windows at the border count fewer elements, and the core divides all by one number",
            "count the padding (count_include_pad), or pad less",
        )
    factor, shift = at.pair("factor")
    height, width = window.kernel
    plain = factor == 1 or (height == width and (factor, shift) == AVERAGE_FACTORS.get(width))
    if at.core.isa == 0 and plain and max(*window.kernel, *window.strides) <= MOST_POOL:
        return at.compute("pool", window, {"pool_type": 1, "shift_cut": 0})
    values = {"exec_mode": ALU_MODES.index("average"), "shift_cut": 8 + shift}
    return _alu(at, window, values | {"multi_factor": factor})


def _alu(at: Execution, window: Window, values: dict[str, int]) -> None:
    if at.core.isa == 0:
        raise at.refuse(
            "lower-window", f"a window of {list(window.kernel)} with strides "
            f"{list(window.strides)}: this revision has only POOL", f"sizes up to {MOST_POOL}",
        )  # fmt: skip
    at.compute("alu", window, values)


def points(at: Execution) -> None:
    """A sum or a product of two maps of one size."""
    build, out = at.build, at.output
    shapes = {operand.tensor.shape for operand in (*at.inputs, out)}
    if len(shapes) != 1 or len(out.tensor.shape) != 4 or len(at.inputs) != 2:
        raise at.refuse("lower-broadcast", "operands are images of one size", "")
    multiply = at.stage.operation.data == "mul"
    buffers = [value.owner for value in at.stage.inputs if isinstance(value.owner, BufferOp)]
    fractions = [fraction_of(buffer.result.type.of) for buffer in buffers]
    least = min(fractions)
    if multiply:
        shifts, write = [0, 0], at.epilogue.result - sum(fractions)
    else:
        if at.parameters.get("guard") != GUARD_BITS:
            raise at.refuse("lower-sum", f"operands are cut at {GUARD_BITS} guard bits")
        shifts, write = [operand - least for operand in fractions], at.epilogue.result - least
    if max(shifts) > 15 or not -23 <= write <= 7:
        raise at.refuse(
            "lower-shift",
            f"operands have binary points {fractions}, the result {at.epilogue.result}",
            "binary points that are closer to each other",
        )
    for row, rows in at.blocks(1 if out.step > 1 else at.core.elementwise_rows):
        bank, address = out.address(row)
        for number, (image, shift) in enumerate(zip(at.inputs, shifts, strict=True)):
            first, begin = image.address(row)
            build.add(
                "elewinit", bank_id_in=first, bank_addr_in=begin, jump_read=image.jump,
                jump_read_endl=image.turn, shift_read=shift, id=number,
            )  # fmt: skip
        number = build.add(
            "elew", num=2, length=out.pixels, channel_group=out.groups,
            valid_pixel_parallel=rows, bank_id_out=bank, bank_addr_out=address,
            jump_write=out.jump, jump_write_endl=out.turn, elew_type=int(multiply),
            act_type=int(at.epilogue.activation == "relu"),
            shift_write=write if write >= 0 else 8 - write,
        )  # fmt: skip
        reads = [area for image in at.inputs for area in image.areas(row, rows)]
        build.touch(number, reads, out.areas(row, rows))


COMPUTES: Mapping[str, Callable[[Execution], None]] = {
    "conv": product,
    "matmul": product,
    "depthwise_conv": depthwise,
    "max_pool": maximum,
    "average_pool": average,
    "add": points,
    "mul": points,
}
"""Operation of a kernel's first stage -> what adds its instructions."""
