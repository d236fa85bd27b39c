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
    """The settings that scalar instructions have made, and those that a block reads before it makes
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

    def matched(self, pattern: str) -> list[Any]:
        """The arguments that a pattern of ``INSTRUCTIONS`` leaves open; refuses all others."""
        words, open_ones = pattern.split(), list[Any]()
        if len(self.arguments) != len(words):
            reason = f"has {len(self.arguments)} arguments, and takes {len(words)}"
            raise self.refusal(reason)
        for at, (word, given) in enumerate(zip(words, self.arguments, strict=True), 1):
            reason = ""
            if word in MEMORIES:
                if not isinstance(given, Place):
                    reason = "is no pointer"
                elif word not in ("any", given.memory):
                    reason = f"lies in {given.memory}, not in {word}"
            elif word in ("value", "number"):
                if not isinstance(given, int | Expr):
                    reason = "is no integer"
                elif word == "number" and isinstance(given, Expr):
                    reason = f"is {given}, and has to be a number"
            elif word != "word":
                if str(given) != word:
                    raise self.refusal(f"argument {at} is {given}, not {word}")
                continue
            if reason:
                raise self.refusal(f"argument {at} {reason}")
            open_ones.append(given)
        return open_ones


RELATIONS = ("eq", "ne", "lt", "le", "gt", "ge")
"""Relations of halves: ``vcmpv_eq`` and so on."""

MEMORIES = ("any", "gm", "cbuf", "ca", "cb", "cc", "ub")


@cache
def whole(memory: str) -> Buffer:
    """All of a memory on the chip, from address 0 on."""
    return Buffer(memory, memory, 0, 0)


def command(call: Call) -> Command:
    """The command of a call; its arguments stay as they are written.

    Refuses (``cce-instruction``) what the core has no instruction for, and arguments that it does
    not take: of another kind (``cce-argument``), or too large for a field (``lower-field``).
    """
    known = INSTRUCTIONS.get(call.name)
    if known is None or (call.name == "vdiv" and not call.core.divides):
        raise refuse(
            "cce-instruction",
            f"{call.core.name} has no instruction {call.name}",
            help=f"there are {', '.join(sorted(INSTRUCTIONS))}",
        )
    pattern, make = known
    instruction = make(call, *call.matched(pattern))
    if instruction.name != call.name:
        raise call.refusal(f"moves between these memories are {instruction.name}'s")
    return replace(instruction, arguments=tuple(call.arguments))


def _copy(call: Call, dst: Place, src: Place, *numbers: Value) -> Command:
    if (src.memory, dst.memory) not in isa.COPIES:
        raise call.refusal(f"there is no move from {src.memory} to {dst.memory}")
    return isa.copy(dst, src, *numbers)


def _load(
    call: Call, dst: Place, src: Place, repeat: Value, stride: Value, transpose: int
) -> Command:
    if transpose not in (0, 1):
        raise call.refusal(f"argument 7 is {transpose}, not 0 or 1")
    return isa.load(dst, src, repeat, stride, transpose=bool(transpose))


def _mad(call: Call, c: Place, a: Place, b: Place, *numbers: Value) -> Command:
    kinds = tuple(isa.element_of(place) for place in (c, a, b))
    if kinds not in (("float", "half", "half"), ("int32_t", "int8_t", "int8_t")):
        raise call.refusal(f"there is no product of {kinds[1]} and {kinds[2]} into {kinds[0]}")
    m, k, n, first = numbers
    return isa.mad(c, a, b, m, k, n, first, int(call.core.barrier_blocks))


def _results(
    call: Call, dst: Place, src: Place, bursts: Value, length: Value, gap: Value, mode: Argument
) -> Command:
    if not isinstance(mode, str) or not mode.startswith("CRMODE_"):
        raise call.refusal(f"argument 8 is {mode}, and no mode")
    return isa.cc_to_ub(dst, src, bursts, length, mode, gap)


def _feature_map(call: Call, value: Value) -> Command:
    call.settings.set("the feature map", value)
    return Command(call.name, "S", (value,))


def _padding(call: Call, value: int) -> Command:
    call.settings.set("padding", value)
    return Command(call.name, "S", (value,))


def _field(value: Value, shift: int) -> Value:
    if isinstance(value, int):
        return value >> shift & 0xFFFF
    part = f">> {shift} & 65535"
    return Expr(f"({value.text} {part})", f"({value.python} {part})", 0)


def _windows(call: Call, dst: Place, image: Place, *numbers: Any) -> Command:
    across, down, x, y, channel, *sizes, jump, repeat = numbers
    settings = call.settings.get("the feature map", "set_fmatrix before it")
    width, height = (_field(settings, shift) for shift in (0, 16))
    strides, kernel, dilations = ((sizes[at + 1], sizes[at]) for at in (0, 2, 4))
    shown = isa.FeatureMap(image, 0, 1, (0, 0, 0, 0), kernel, strides, dilations)
    load = isa.img2col(dst, shown, (down, across), (y, x), channel, repeat, jump)
    plane = height * width * BLOCK
    return replace(load, reads=(Region(image.at(channel * plane), plane),))


def _mask(call: Call, *words: Argument) -> Command:
    bits: list[int] = []
    for at, text in enumerate(map(str, words), 1):
        if text.endswith(f"% {isa.MASK_WORD}"):
            bits.append(isa.MASK_WORD - 1)
            continue
        if not text.startswith("0x") or not text.endswith("ULL"):
            raise call.refusal(f"argument {at} is {text}, and no word of bits: 0x1ULL")
        bits.append(int(text[2:-3], 16))
    call.settings.set("the vector mask", tuple(bits))
    return Command(call.name, "S", words)


def _lanes(call: Call, places: Sequence[Place]) -> int | None:
    """The elements of a repeat that the mask lets through, to the last; None for all."""
    high, low = call.settings.get("the vector mask", "set_vector_mask before it")
    if max(isa.WIDTHS[isa.element_of(place)] for place in places) == 4:
        high, whole = 0, 64
    else:
        whole = 128
    bits = (high << 64 | low).bit_length()
    return None if bits == whole else bits


def _vector(call: Call, *given: Any) -> Command:
    places = [each for each in given if isinstance(each, Place)]
    count = len(places)
    strides = given[len(given) - 2 * count :]
    text = str(given[count]) if len(given) > 3 * count + 1 else ""
    ends = strides[:count], strides[count:], text, _lanes(call, places)
    return isa.vector(call.name, places[0], places[1:], given[-2 * count - 1], *ends)


def _fill(
    call: Call, dst: Place, number: Argument, repeat: Value, block: Value, step: Value
) -> Command:
    lanes = _lanes(call, [dst])
    return isa.vector(call.name, dst, (), repeat, (block,), (step,), str(number), lanes)


def _relation(
    call: Call, bits: Place, left: Place, right: Place, repeat: Value, *strides: Value
) -> Command:
    if {isa.element_of(place) for place in (left, right)} != {"half"}:
        raise call.refusal("compares halves alone")
    relation = call.name.removeprefix("vcmpv_")
    return isa.compare(relation, bits, (left, right), repeat, strides[:2], strides[2:])


def _chosen(_: Call, bits: Place) -> Command:
    return isa.set_cmpmask(bits)


def _addresses(call: Call, number: Argument, rows: Argument) -> Command:
    if number not in ("VA0", "VA1", "VA2", "VA3") or not isinstance(rows, tuple) or len(rows) != 8:
        raise call.refusal("takes VA0 to VA3 and eight addresses")
    call.settings.set(str(number), rows)
    return Command(call.name, "S", (number, rows))


def _scatter(call: Call, repeat: int, *steps: int) -> Command:
    regions: list[tuple[Region, ...]] = []
    for first, step in zip((0, 2), steps, strict=True):
        rows: dict[Value, Place] = {}
        for register in (first, first + 1):
            places = call.settings.get(f"VA{register}", "set_va_reg_sb before it")
            rows |= {place.address: place for place in places}
        regions.append(
            tuple(Region(row, BLOCK, (repeat,), (step * BLOCK,)) for row in rows.values())
        )
    return Command(call.name, "V", tuple(call.arguments), regions[1], regions[0], cycles=2 * repeat)


def _operation(sources: int, scalar: str = "") -> tuple[str, Callable[..., Command]]:
    """A vector operation of ``sources`` operands, with its strides of blocks and of repeats."""
    places = sources + 1
    return f"{'ub ' * places}{scalar} value {'value ' * (2 * places)}", _vector


INSTRUCTIONS: dict[str, tuple[str, Callable[..., Command]]] = {
    **{name: ("any any 0 value value value value", _copy) for name, _ in isa.COPIES.values()},
    "copy_gm_to_cbuf": ("any any 0 value value value value PAD_NONE", _copy),
    **{f"load_cbuf_to_{m}": (f"{m} cbuf 0 value value 0 number inc", _load) for m in ("ca", "cb")},
    "mad": ("cc ca cb value value value value", _mad),
    "copy_matrix_cc_to_ubuf": ("ub cc 0 value value 0 value word", _results),
    "set_fmatrix": ("value", _feature_map),
    "set_padding": ("number", _padding),
    "img2col_cbuf_to_ca": (
        f"ca cbuf {'value ' * 5} {'number ' * 6} value 1 value 0",
        _windows,
    ),
    "set_vector_mask": ("word word", _mask),
    **dict.fromkeys(
        ("vadd", "vsub", "vmul", "vdiv", "vmax", "vmin", "vand", "vor", "vsel"), _operation(2)
    ),
    **dict.fromkeys(
        ("vabs", "vrelu", "vexp", "vln", "vsqrt", "vrec", "vrsqrt", "vnot"), _operation(1)
    ),
    **dict.fromkeys(sorted(CASTS.values()), _operation(1)),
    **dict.fromkeys(("vadds", "vmuls"), _operation(1, "word")),
    **{
        f"vcmpv_{relation}": ("ub ub ub value 1 value value 8 value value", _relation)
        for relation in RELATIONS
    },
    "set_cmpmask": ("ub", _chosen),
    "vector_dup": ("ub word value value 1 value 8", _fill),
    "set_va_reg_sb": ("word word", _addresses),
    "scatter_vnchwconv_b16": ("VA0 VA2 number number number", _scatter),
}
"""Instruction -> its arguments, and what makes its command of those that are open: a pointer into a
memory, a value, a number that is the same in all iterations, or any word; others are fixed."""
