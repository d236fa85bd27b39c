"""What an instruction of the core is, and how its definitions are written down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilewright.codegen.words import Field, Format, Instruction

Category = Literal["load", "save", "conv", "misc"]
"""Classes of instructions, each with an engine that runs them in program order."""

CATEGORIES: tuple[Category, ...] = ("load", "save", "conv", "misc")

ACTIVATIONS = ("none", "relu", "prelu", "leaky", "relu6")
POOLS = ("max", "average", "max_reduce")
ELEMENTWISE = ("add", "multiply")
ALU_MODES = (
    "depthwise",
    "prelu",
    "average",
    "max",
    "leaky",
    "max_reduce",
    "depthwise_no_bias",
    "hard_sigmoid",
    "depthwise_16_bit",
)

OPCODE = Field("opcode", 0, 28, 4, "which instruction")


@dataclass(frozen=True)
class CoreInstruction(Instruction):
    """An instruction and the engine that runs it.

    ``cycles`` is the formula of its time there. The fields of an ``init`` hold for the instructions
    of the kind ``sets`` that follow it.
    """

    category: Category = "load"
    cycles: str = "1"
    sets: str = ""


def instruction(
    mnemonic: str,
    opcode: int,
    category: Category,
    words: str,
    meaning: str,
    cycles: str = "1",
    sets: str = "",
    choices: dict[str, tuple[str, ...]] | None = None,
) -> CoreInstruction:
    """An instruction from the text of its words: a line a word, ``name:bits`` from bit 0 upwards.

    ``name:bits+1`` is stored minus one; ``-:bits`` is unused and zero. The tokens and the opcode
    lie at the top of the first word and are not written. Addresses print as hexadecimal.
    """
    own = 1 << CATEGORIES.index(category)
    fields = [
        Field(
            "take", 0, 24, 4, "classes of which each must have put a token", flags=CATEGORIES,
            default=own,
        ),
        Field("put", 0, 20, 4, "classes that get a token at the end", flags=CATEGORIES,
              default=own),
    ]  # fmt: skip
    lines = words.strip().splitlines()
    for unit, line in enumerate(lines):
        low = 0
        for part in line.split():
            name, _, size = part.partition(":")
            bits, _, bias = size.partition("+")
            if name != "-":
                fields.append(
                    Field(
                        name,
                        unit,
                        low,
                        int(bits),
                        bias=int(bias or 0),
                        choices=(choices or {}).get(name, ()),
                        hexadecimal="_addr" in name,
                    )
                )
            low += int(bits)
        if low != (20 if unit == 0 else 32):
            raise ValueError(f"{mnemonic}: word {unit} has {low} bits")
    form = Format(tuple(fields), len(lines))
    return CoreInstruction(mnemonic, opcode, form, meaning, category, cycles, sets)
