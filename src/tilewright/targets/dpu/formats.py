"""The format of the core's instructions, and the notation of their definitions."""

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

MEANINGS = {
    "act_type": "activation of the result",
    "argmax": "not executed",
    "bank_addr": "first row in the bank",
    "bank_addr_bias": "row of the biases in the bias bank",
    "bank_addr_in": "row of the window's first pixel, in the first turn round the banks",
    "bank_addr_in_1": "the same in the second turn",
    "bank_addr_in_2": "the same in the third turn",
    "bank_addr_in_3": "the same in the fourth turn",
    "bank_addr_out": "row of the first result",
    "bank_addr_weights": "row of the first weights",
    "bank_id": "the bank, by number over all banks",
    "bank_id_in": "bank of the window's first row",
    "bank_id_out": "bank of the first row of results",
    "broadcast": "7: fill with const_value",
    "channel": "bytes of a run",
    "channel_group": "groups of channels of a pixel",
    "channel_offset": "channels at the end that count as 0",
    "const_en": "1: write const_value",
    "const_value": "a byte",
    "ddr_addr": "byte from the base register on",
    "downsample_kernel_h": "not executed",
    "downsample_kernel_w": "not executed",
    "elew_type": "what is done to the operands",
    "exec_mode": "what the ALU does",
    "hp_id": "port of main memory; no meaning for results",
    "id": "number of the operand; ELEWINITs count by their order",
    "jump_bank": "not used",
    "jump_read": "from run to run of a LOAD, in bytes; else from pixel to pixel, in rows",
    "jump_read_endl": "from row to row in one bank; for ELEW where the group of banks wraps",
    "jump_read_weights": "from element to element of the kernel",
    "jump_write": "from run to run of a SAVE, in bytes; else from pixel to pixel, in rows",
    "jump_write_endl": "from row to row of results in one bank",
    "kernel_d": "depth of the kernel; only 1 is executed",
    "kernel_h": "rows of the kernel",
    "kernel_w": "pixels of a row of the kernel",
    "length": "runs, or pixels of a row of results",
    "mode_avg": "subtracts a mean; not executed",
    "multi_factor": "factor of averages, slope of leaky ReLU, two's complement",
    "num": "operands",
    "pad_bottom": "kernel_h - 1 - rows of padding below",
    "pad_end": "bytes of padding at the end of run length - pad_idx",
    "pad_idx": "runs that end in padding",
    "pad_left": "pixels of padding on the left",
    "pad_right": "kernel_w - 1 - pixels of padding on the right",
    "pad_start": "bytes of padding at the start of the first run",
    "pad_top": "rows of padding above",
    "pool_type": "what is taken of a window",
    "reg_id": "base register of main memory",
    "share_pp": "not executed",
    "shift_bias": "left shift of the bias, against twice the sum",
    "shift_cut": "right shift of the sum; of pools left below 8, then right by what is above 8",
    "shift_prelu_n": "right shift of negative numbers",
    "shift_prelu_p": "right shift of others",
    "shift_read": "right shift of the operand, at two guard bits",
    "shift_write": "left shift of the result below 8, then right by what is above 8",
    "stride_h": "rows from window to window, and rows of the input in one bank",
    "stride_offset_in": "rows of the first bank before the window",
    "stride_offset_out": "rows of the first bank before the results",
    "stride_out": "rows of results in one bank",
    "stride_w": "pixels from window to window",
    "valid_pixel_parallel": "rows of results",
}
"""The meaning of fields, the same in all instructions that have them."""

OPCODE = Field("opcode", 4, "which instruction")

OPCODE_LOW = 28
"""The field's lowest bit in the first word."""


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
    bit = 1 << CATEGORIES.index(category)
    fields = [
        Field(
            "take", 4, "classes of which each must have put a token", flags=CATEGORIES, default=bit
        ),
        Field("put", 4, "classes that get a token at the end", flags=CATEGORIES, default=bit),
    ]
    places = {"take": (0, 24), "put": (0, 20)}
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
                        int(bits),
                        MEANINGS[name],
                        bias=int(bias or 0),
                        choices=(choices or {}).get(name, ()),
                        hexadecimal="_addr" in name,
                    )
                )
                places[name] = unit, low
            low += int(bits)
        if low != (20 if unit == 0 else 32):
            raise ValueError(f"{mnemonic}: word {unit} has {low} bits")
    form = Format(tuple(fields), places, len(lines))
    return CoreInstruction(mnemonic, opcode, form, meaning, category, cycles, sets)
