"""One step of a product in registers: sixteen multiply-adds, and the operands of the next step.

A block of the result lies in accumulators ``c00`` to ``c33``: ``cIJ`` is row I times column J, each
a vector of four. A step multiplies ``a0`` to ``a3`` with ``b0`` to ``b3``, and while it does, loads
the next step's operands into the same registers as soon as each was used for the last time. The
order of the multiply-adds makes that early for half of them::

    c00 c01 c10 c11 | c02 c03 c12 c13 | c20 c21 c30 c31 | c22 c23 c32 c33
                      a0 free   a1 free   b0 free b1 free   a2, b2, a3, b3 free

so that the next step can begin without a pause, in 24 of the 32 registers (swATOP's 4 x 4
blocking). Instructions of P1 and integers stand between the multiply-adds, one after each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.targets.sunway.pipeline import LATENCIES, Instruction, Latencies, steady

COLUMNS = 4


def order(rows: int) -> list[tuple[int, int]]:
    """The multiply-adds of a step by row and column, for one, two or four rows."""
    pairs: list[tuple[int, int]] = []
    for first in range(0, rows, 2):
        span = range(first, min(first + 2, rows))
        for half in (0, 2):
            pairs += [(row, column) for row in span for column in (half, half + 1)]
    return pairs


def multiply_add(row: int, column: int) -> Instruction:
    """Add the product of a row's vector and a column's to their accumulator."""
    a, b, c = f"a{row}", f"b{column}", f"c{row}{column}"
    return Instruction("vmas", c, (a, b, c), f"{c} = simd_vmas({a}, {b}, {c});")


@dataclass(frozen=True)
class Operand:
    """The instructions that load an operand of a step into its register."""

    register: str
    instruction: Instruction
    parts: tuple[Instruction, ...] = ()
    """Loads of the two vectors that it lies in, where it may lie anywhere: the instruction merges
    them."""


def uses(rows: int) -> dict[str, tuple[int, int]]:
    """The first and the last multiply-add of a step that reads each operand's register."""
    spans: dict[str, tuple[int, int]] = {}
    for number, (row, column) in enumerate(order(rows)):
        for name in (f"a{row}", f"b{column}"):
            spans[name] = spans.get(name, (number, number))[0], number
    return spans


def deferred(rows: int, latencies: Latencies = LATENCIES) -> set[str]:
    """Registers that the step's last multiply-add frees, and that it needs late: their operands
    are loaded as their own step begins, not in the step before."""
    last = len(order(rows)) - 1
    return {
        name for name, (first, end) in uses(rows).items() if end == last and first > latencies.load
    }


def step(
    rows: int,
    operands: Sequence[Operand],
    between: Sequence[Instruction],
    last: Sequence[Instruction] = (),
) -> list[Instruction]:
    """A step's multiply-adds with what goes beside them, in the order of the program.

    First come the step's own late operands, then ``between`` (which steps the pointers), then
    the next step's operands as their registers are free, then ``last``. Integers go in pairs, one
    to each pipeline, where that is faster: there are more instructions than multiply-adds then.
    Of operands in two vectors the vectors are loaded as soon as the pointers are stepped.
    """
    orders = [_step(rows, operands, between, last, paired=paired) for paired in (False, True)]
    return min(orders, key=steady)


def _step(
    rows: int,
    operands: Sequence[Operand],
    between: Sequence[Instruction],
    last: Sequence[Instruction],
    *,
    paired: bool,
) -> list[Instruction]:
    """A step, its integers in pairs or not."""
    spans, delayed = uses(rows), deferred(rows)
    deferred_loads = [load for load in operands if load.register in delayed]
    first = [part for load in deferred_loads for part in load.parts]
    # Those that are merged last: their vectors take a while to come.
    first += [
        load.instruction for load in sorted(deferred_loads, key=lambda load: bool(load.parts))
    ]
    loads = sorted(
        (load for load in operands if load.register not in delayed),
        key=lambda o: spans[o.register][1],
    )
    program: list[Instruction] = []
    beside = [*first, *between, *(part for load in loads for part in load.parts)]
    rest = [*last]
    integers: list[Instruction] = []
    if paired:
        integers = [step for step in between if step.unit == "any"]
        beside = [step for step in beside if step.unit != "any"]
    for number, (row, column) in enumerate(order(rows)):
        program.append(multiply_add(row, column))
        if integers and number >= len(first):
            program += [integers.pop(0) for _ in range(min(2, len(integers)))]
        if beside:
            program.append(beside.pop(0))
        elif loads and spans[loads[0].register][1] <= number:
            program.append(loads.pop(0).instruction)
        elif rest and (not loads or len(rest) > 1):
            program.append(rest.pop(0))
    return [*program, *beside, *(load.instruction for load in loads), *rest]


def first_operands(rows: int, operands: Sequence[Operand]) -> list[Instruction]:
    """The operands of the first step that no step before it loads."""
    early = [operand for operand in operands if operand.register not in deferred(rows)]
    parts = [part for operand in early for part in operand.parts]
    return [*parts, *(operand.instruction for operand in early)]


def woven(*strands: Sequence[Instruction]) -> list[Instruction]:
    """Programs that do not depend on each other, instruction by instruction in turn."""
    program: list[Instruction] = []
    for number in range(max(map(len, strands))):
        program += [strand[number] for strand in strands if number < len(strand)]
    return program


@dataclass
class Code:
    """A function in the making: C and instructions side by side."""

    lines: list[str] = field(default_factory=list[str])
    depth: int = 1

    def line(self, text: str = "") -> None:
        """A line of C that no instruction stands for."""
        self.lines.append("    " * self.depth + text if text else "")

    def emit(self, instructions: Sequence[Instruction]) -> list[Instruction]:
        """The C of instructions, one line each; gives them back."""
        for instruction in instructions:
            if instruction.c:
                self.line(instruction.c)
        return list(instructions)

    def open(self, text: str) -> None:
        """Begin a block of C and indent."""
        self.line(f"{text} {{")
        self.depth += 1

    def close(self) -> None:
        """End a block of C and unindent."""
        self.depth -= 1
        self.line("}")


def transpose(vectors: Sequence[str]) -> list[Instruction]:
    """Put the columns of a matrix in the place of its rows, four vectors of four."""
    r0, r1, r2, r3 = vectors

    def shuffle(target: str, high: str, low: str, mask: int) -> Instruction:
        text = f"{target} = simd_vshff({high}, {low}, 0x{mask:02x});"
        return Instruction("vshff", target, (high, low), text)

    return [
        shuffle("t0", r1, r0, 0x44),
        shuffle("t1", r1, r0, 0xEE),
        shuffle("t2", r3, r2, 0x44),
        shuffle("t3", r3, r2, 0xEE),
        shuffle(r0, "t2", "t0", 0x88),
        shuffle(r1, "t2", "t0", 0xDD),
        shuffle(r2, "t3", "t1", 0x88),
        shuffle(r3, "t3", "t1", 0xDD),
    ]


def load(target: str, pointer: str, place: str, *, aligned: bool = True) -> list[Instruction]:
    """A vector from LDM; one that may lie anywhere takes two loads and a merge."""
    if aligned:
        text = f"simd_load({target}, (floatv4 *)({place}));"
        return [Instruction("vlds", target, (pointer,), text)]
    return [
        Instruction("vlds", f"{target}_low", (pointer,)),
        Instruction("vlds", f"{target}_high", (pointer,)),
        Instruction(
            "vshff", target, (f"{target}_low", f"{target}_high"), f"simd_loadu({target}, {place});"
        ),
    ]


def store(source: str, pointer: str, place: str, *, aligned: bool = True) -> list[Instruction]:
    """A vector to LDM; one that may lie anywhere takes two stores."""
    if aligned:
        text = f"simd_store({source}, (floatv4 *)({place}));"
        return [Instruction("vsts", "", (source, pointer), text)]
    return [
        Instruction("vsts", "", (source, pointer), f"simd_storeu({source}, {place});"),
        Instruction("vsts", "", (source, pointer)),
    ]


def splat(target: str, pointer: str, place: str) -> Instruction:
    """One element of LDM in all lanes."""
    return Instruction("ldse", target, (pointer,), f"simd_loade({target}, {place});")


def advance(pointer: str, by: str) -> Instruction:
    """Return the instruction that advances a pointer."""
    return Instruction("addl", pointer, (pointer, by), f"{pointer} += {by};")


LOOP = (Instruction("addl", "k", ("k",)), Instruction("branch", "", ("k",)))
"""The counter of a loop, and the jump back; C has them in the loop's head."""


def declare_block(code: Code) -> None:
    """Declare the accumulators of a block of four rows, and the operands of a step."""
    for row in range(4):
        code.line(f"floatv4 {', '.join(f'c{row}{column}' for column in range(COLUMNS))};")
    code.line("floatv4 a0, a1, a2, a3, b0, b1, b2, b3;")


def write_block(
    code: Code,
    pointer: str,
    operands: Sequence[Operand],
    advances: Sequence[Instruction],
    sends: Sequence[Instruction] = (),
) -> tuple[list[Instruction], list[Instruction], list[Instruction]]:
    """Write ``k`` steps on a block that is loaded before and stored after: the instructions before
    the loop, in it, and after it. A column is ``ldPOINTER`` elements from the next; ``sends`` are
    done in each step."""
    places: list[tuple[str, str]] = []
    for r in range(4):
        for p in range(COLUMNS):
            parts = [pointer, f"{p} * ld{pointer}" if p else "", str(4 * r) if r else ""]
            places.append((f"c{r}{p}", " + ".join(filter(None, parts))))
    begin = [i for c, place in places for i in load(c, pointer, place)]
    begin = code.emit([*begin, *first_operands(4, operands)])
    code.open("for (; k > 1; k--)")
    body = code.emit(step(4, operands, [*advances, *sends], LOOP))
    code.close()
    delayed = [operand for operand in operands if operand.register in deferred(4)]
    stores = [i for c, place in places for i in store(c, pointer, place)]
    return begin, body, code.emit([*step(4, delayed, sends), *stores])
