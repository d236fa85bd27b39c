"""Calls of instructions as commands: their arguments, checked, and what they touch.

Vector operations depend on the mask, loads of windows on the feature map and transposes on address
registers, which scalar instructions set before: ``Settings`` keeps what they hold. A loop whose
body reads a setting and then changes it has another one in its second iteration, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from tilewright.codegen.nest.value import Expr, Value
from tilewright.errors import TilewrightError, refuse
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.kernels.vectors import CASTS
from tilewright.targets.ascend.machine import BLOCK, DaVinci
from tilewright.targets.ascend.program import Buffer, Command, Place, Region

Argument = Place | int | Expr | str | tuple[Place, ...]
"""A place, a value, a word or a number that is no integer, or a list of places in UB."""


@dataclass
class Settings:
    """The settings that scalar instructions have made, and those that a block reads as it found
    them."""

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    own: set[str] = field(default_factory=set[str])
    """The settings that the block has made."""
    read: set[str] = field(default_factory=set[str])
    """The settings that the block has read before it made them."""

    def set(self, name: str, value: Any) -> None:
        """Change a setting by its name."""
        self.values[name] = value
        self.own.add(name)

    def get(self, name: str, hint: str) -> Any:
        """A setting; refuses (``cce-setting``) one that nothing has set."""
        if name not in self.values:
            raise refuse("cce-setting", f"{name} is not set", help=hint)
        if name not in self.own:
            self.read.add(name)
        return self.values[name]

    def inside(self) -> Settings:
        """The settings with which a loop's body begins."""
        return Settings(dict(self.values))

    def after(self, body: Settings) -> None:
        """Take on what a loop's body leaves."""
        for name in sorted(body.read):
            if self.values.get(name) != body.values.get(name):
                raise refuse(
                    "cce-setting",
                    f"the loop reads {name} as it was before, and leaves another one",
                    help="set it in the loop before it is read",
                )
        self.values = body.values
        self.read |= body.read - self.own
        self.own |= body.own


@dataclass
class Call:
    """A call: its name, its arguments, and the settings that it finds."""

    name: str
    arguments: Sequence[Argument]
    settings: Settings
    core: DaVinci

    def refusal(self, reason: str, help: str = "") -> TilewrightError:
        """A refusal (``cce-argument``), to be raised."""
        return refuse("cce-argument", f"{self.name}: {reason}", help=help)

    def count(self, wanted: int) -> None:
        """Refuse another number of arguments."""
        if len(self.arguments) != wanted:
            raise self.refusal(f"has {len(self.arguments)} arguments, and takes {wanted}")

    def place(self, at: int, memory: str = "") -> Place:
        """An argument that is a pointer, to some memory."""
        place = self.arguments[at]
        if not isinstance(place, Place):
            raise self.refusal(f"argument {at + 1} is no pointer")
        if memory and place.memory != memory:
            raise self.refusal(f"argument {at + 1} lies in {place.memory}, not in {memory}")
        return place

    def value(self, at: int) -> Value:
        """An argument that is an integer, or an expression."""
        value = self.arguments[at]
        if not isinstance(value, int | Expr):
            raise self.refusal(f"argument {at + 1} is no integer")
        return value

    def number(self, at: int) -> int:
        """An argument that is the same integer in all iterations."""
        value = self.value(at)
        if not isinstance(value, int):
            raise self.refusal(f"argument {at + 1} is {value}, and has to be a number")
        return value

    def fixed(self, at: int, wanted: Argument) -> None:
        """Refuse another argument than one."""
        if self.arguments[at] != wanted:
            raise self.refusal(f"argument {at + 1} is {self.arguments[at]}, not {wanted}")


@cache
def whole(memory: str) -> Buffer:
    """All of a memory on the chip, from address 0 on."""
    return Buffer(memory, memory, 0, 0)


def command(call: Call) -> Command:
    """The command of a call; its arguments stay as they are written.

    Refuses (``cce-instruction``) what the core has no instruction for, and arguments that it does
    not take: of another kind (``cce-argument``), or too large for a field (``lower-field``).
    """
    make = INSTRUCTIONS.get(call.name)
    if make is None or (call.name == "vdiv" and not call.core.divides):
        raise refuse(
            "cce-instruction",
            f"{call.core.name} has no instruction {call.name}",
            help=f"there are {', '.join(sorted(INSTRUCTIONS))}",
        )
    instruction = make(call)
    if instruction.name != call.name:
        raise call.refusal(f"moves between these memories are {instruction.name}'s")
    return replace(instruction, arguments=tuple(call.arguments))


def _copy(call: Call) -> Command:
    into_l1 = call.name == "copy_gm_to_cbuf"
    call.count(8 if into_l1 else 7)
    call.fixed(2, 0)
    if into_l1:
        call.fixed(7, "PAD_NONE")
    dst, src = call.place(0), call.place(1)
    if (src.memory, dst.memory) not in isa.COPIES:
        raise call.refusal(f"there is no move from {src.memory} to {dst.memory}")
    bursts, length, src_gap, dst_gap = (call.value(at) for at in range(3, 7))
    return isa.copy(dst, src, bursts, length, src_gap, dst_gap)


def _load(call: Call) -> Command:
    call.count(8)
    for at, wanted in ((2, 0), (5, 0), (7, "inc")):
        call.fixed(at, wanted)
    dst = call.place(0, call.name.rpartition("_")[2])
    transpose = call.number(6)
    if transpose not in (0, 1):
        raise call.refusal(f"argument 7 is {transpose}, not 0 or 1")
    repeat, stride = call.value(3), call.value(4)
    return isa.load(dst, call.place(1, "cbuf"), repeat, stride, transpose=bool(transpose))


def _mad(call: Call) -> Command:
    call.count(7)
    c, a, b = (call.place(at, memory) for at, memory in enumerate(("cc", "ca", "cb")))
    kinds = tuple(isa.element_of(place) for place in (c, a, b))
    if kinds not in (("float", "half", "half"), ("int32_t", "int8_t", "int8_t")):
        raise call.refusal(f"there is no product of {kinds[1]} and {kinds[2]} into {kinds[0]}")
    m, k, n, first = (call.value(at) for at in range(3, 7))
    return isa.mad(c, a, b, m, k, n, first, int(call.core.barrier_blocks.value))


def _results(call: Call) -> Command:
    call.count(8)
    call.fixed(2, 0)
    call.fixed(5, 0)
    mode = call.arguments[7]
    if not isinstance(mode, str) or not mode.startswith("CRMODE_"):
        raise call.refusal(f"argument 8 is {mode}, and no mode")
    dst, src = call.place(0, "ub"), call.place(1, "cc")
    gap = call.number(6)
    return isa.cc_to_ub(dst, src, call.value(3), call.value(4), mode, gap)


def _feature_map(call: Call) -> Command:
    call.count(1)
    call.settings.set("the feature map", call.value(0))
    return Command(call.name, "S", (call.value(0),))


def _padding(call: Call) -> Command:
    call.count(1)
    call.settings.set("padding", call.number(0))
    return Command(call.name, "S", (call.number(0),))


def _field(value: Value, shift: int) -> Value:
    if isinstance(value, int):
        return value >> shift & 0xFFFF
    part = f">> {shift} & 65535"
    return Expr(f"({value.text} {part})", f"({value.python} {part})", 0)


def _windows(call: Call) -> Command:
    call.count(17)
    dst, image = call.place(0, "ca"), call.place(1, "cbuf")
    sizes = [call.number(at) for at in range(7, 13)]
    call.fixed(14, 1)
    call.fixed(16, 0)
    settings = call.settings.get("the feature map", "set_fmatrix before it")
    width, height = (_field(settings, shift) for shift in (0, 16))
    down, kernel, dilations = ((sizes[at + 1], sizes[at]) for at in (0, 2, 4))
    shown = isa.FeatureMap(image, 0, 1, (0, 0, 0, 0), kernel, down, dilations)
    tap, corner = (call.value(3), call.value(2)), (call.value(5), call.value(4))
    repeat, jump, channel = call.value(15), call.value(13), call.value(6)
    load = isa.img2col(dst, shown, tap, corner, channel, repeat, jump)
    plane = height * width * BLOCK
    return replace(load, reads=(Region(image.at(channel * plane), plane),))


def _mask(call: Call) -> Command:
    call.count(2)
    bits: list[int] = []
    for at in (0, 1):
        text = str(call.arguments[at])
        if text.endswith(f"% {isa.MASK_WORD}"):
            bits.append(isa.MASK_WORD - 1)
            continue
        if not text.startswith("0x") or not text.endswith("ULL"):
            raise call.refusal(f"argument {at + 1} is {text}, and no word of bits: 0x1ULL")
        bits.append(int(text[2:-3], 16))
    call.settings.set("the vector mask", tuple(bits))
    return Command(call.name, "S", tuple(call.arguments))


def _lanes(call: Call, places: Sequence[Place]) -> int | None:
    """The elements of a repeat that the mask lets through, to the last; None for all."""
    high, low = call.settings.get("the vector mask", "set_vector_mask before it")
    if max(isa.WIDTHS[isa.element_of(place)] for place in places) == 4:
        high, whole = 0, 64
    else:
        whole = 128
    bits = (high << 64 | low).bit_length()
    return None if bits == whole else bits


def _vector(operands: int, *, scalar: bool = False) -> Callable[[Call], Command]:
    def make(call: Call) -> Command:
        call.count(3 * operands + 4 + scalar)
        places = [call.place(at, "ub") for at in range(operands + 1)]
        at = operands + 1
        text = str(call.arguments[at]) if scalar else ""
        rest = range(at + scalar, len(call.arguments))
        repeat, *strides = (call.value(place) for place in rest)
        count = operands + 1
        return isa.vector(
            *(call.name, places[0], places[1:], repeat, strides[:count], strides[count:]),
            *(text, _lanes(call, places)),
        )

    return make


def _fill(call: Call) -> Command:
    call.count(7)
    call.fixed(4, 1)
    call.fixed(6, 8)
    dst = call.place(0, "ub")
    repeat, block, step = (call.value(at) for at in (2, 3, 5))
    lanes = _lanes(call, [dst])
    return isa.vector(call.name, dst, (), repeat, (block,), (step,), str(call.arguments[1]), lanes)


def _relation(call: Call) -> Command:
    call.count(10)
    call.fixed(4, 1)
    call.fixed(7, 8)
    bits, left, right = (call.place(at, "ub") for at in range(3))
    if {isa.element_of(place) for place in (left, right)} != {"half"}:
        raise call.refusal("compares halves alone")
    repeat, blocks, steps = (
        call.value(3),
        (call.value(5), call.value(6)),
        (call.value(8), call.value(9)),
    )
    relation = call.name.removeprefix("vcmpv_")
    return isa.compare(relation, bits, (left, right), repeat, blocks, steps)


def _chosen(call: Call) -> Command:
    call.count(1)
    return isa.set_cmpmask(call.place(0, "ub"))


def _addresses(call: Call) -> Command:
    call.count(2)
    number, rows = call.arguments
    if number not in ("VA0", "VA1", "VA2", "VA3") or not isinstance(rows, tuple) or len(rows) != 8:
        raise call.refusal("takes VA0 to VA3 and eight addresses")
    call.settings.set(str(number), rows)
    return Command(call.name, "S", (number, rows))


def _scatter(call: Call) -> Command:
    call.count(5)
    call.fixed(0, "VA0")
    call.fixed(1, "VA2")
    repeat = call.number(2)
    regions: list[tuple[Region, ...]] = []
    for first, at in ((0, 3), (2, 4)):
        step = call.number(at)
        rows: dict[Value, Place] = {}
        for register in (first, first + 1):
            places = call.settings.get(f"VA{register}", "set_va_reg_sb before it")
            rows |= {place.address: place for place in places}
        regions.append(
            tuple(Region(row, BLOCK, (repeat,), (step * BLOCK,)) for row in rows.values())
        )
    return Command(call.name, "V", tuple(call.arguments), regions[1], regions[0], cycles=2 * repeat)


INSTRUCTIONS: dict[str, Callable[[Call], Command]] = {
    **{name: _copy for name, _ in isa.COPIES.values()},
    **dict.fromkeys(("load_cbuf_to_ca", "load_cbuf_to_cb"), _load),
    "mad": _mad,
    "copy_matrix_cc_to_ubuf": _results,
    "set_fmatrix": _feature_map,
    "set_padding": _padding,
    "img2col_cbuf_to_ca": _windows,
    "set_vector_mask": _mask,
    **dict.fromkeys(("vadd", "vsub", "vmul", "vdiv", "vmax", "vmin", "vand", "vor"), _vector(2)),
    **dict.fromkeys(
        ("vabs", "vrelu", "vexp", "vln", "vsqrt", "vrec", "vrsqrt", "vnot"), _vector(1)
    ),
    **dict.fromkeys(sorted(CASTS.values()), _vector(1)),
    **{f"vcmpv_{relation}": _relation for relation in isa.RELATIONS},
    "set_cmpmask": _chosen,
    "vsel": _vector(2),
    **dict.fromkeys(("vadds", "vmuls"), _vector(1, scalar=True)),
    "vector_dup": _fill,
    "set_va_reg_sb": _addresses,
    "scatter_vnchwconv_b16": _scatter,
}
"""Instruction -> what makes its command of a call."""
