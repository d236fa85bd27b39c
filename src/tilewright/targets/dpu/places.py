"""The bank rows of an operation's data.

A bank row has a number of its own over all banks: bank * DEPTH + row. Addresses within a bank are
modulo its depth, so that a buffer of rows may be a ring.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilewright.targets.dpu.core import DEPTH, BankGroup, Core
from tilewright.targets.dpu.operations import Operation

Rows = NDArray[np.int64]
"""The type of arrays of bank row numbers."""

BASES = ("bank_addr_in", "bank_addr_in_1", "bank_addr_in_2", "bank_addr_in_3")


def image(bank: Rows, address: Rows, width: int, jump: int, groups: int) -> Rows:
    """[rows, width, groups]: a tile of a feature map, whose rows begin in these banks at these
    addresses; ``jump`` bank rows from pixel to pixel, of which each has ``groups``."""
    pixel = np.arange(width)[:, None] * jump + np.arange(groups)
    return bank[:, None, None] * DEPTH + (address[:, None, None] + pixel) % DEPTH


def map_group(core: Core, operation: Operation, bank: int) -> BankGroup:
    """The group of a bank that holds feature maps; refuses a bank of another kind."""
    if bank < core.banks and core.group_of_bank[bank].kind == "map":
        return core.group_of_bank[bank]
    raise operation.refuse(
        f"bank {bank} does not hold feature maps", f"0 to {core.groups * core.rows - 1}"
    )


def window(core: Core, operation: Operation) -> tuple[Rows, tuple[slice, slice]]:
    """[rows, width, groups]: the window that an operation reads, padding included; and the slices
    of its rows and columns that lie in the image. Fields have for the padding of the far side
    kernel - 1 - count."""
    fields = operation.fields
    height = (fields["valid_pixel_parallel"] - 1) * fields["stride_h"] + fields["kernel_h"]
    width = (fields["length"] - 1) * fields["stride_w"] + fields["kernel_w"]
    if fields["stride_offset_in"] >= fields["stride_h"]:
        raise operation.refuse("stride_offset_in must be less than stride_h")
    group = map_group(core, operation, fields["bank_id_in"])
    row = fields["stride_offset_in"] + np.arange(height)
    bank = fields["bank_id_in"] - group.first + row // fields["stride_h"]
    turn = bank // core.rows
    if turn[-1] >= len(BASES):
        raise operation.refuse(
            f"its window takes {turn[-1]} rounds over the banks, with {len(BASES)} addresses",
            "fewer rows, a smaller kernel or stride",
        )
    base = np.array([fields[name] for name in BASES])[turn]
    address = base + row % fields["stride_h"] * fields["jump_read_endl"]
    rows = image(
        group.first + bank % core.rows, address, width, fields["jump_read"],
        fields["channel_group"],
    )  # fmt: skip
    top, left = min(fields["pad_top"], height), min(fields["pad_left"], width)
    bottom = height - max(0, fields["kernel_h"] - 1 - fields["pad_bottom"])
    right = width - max(0, fields["kernel_w"] - 1 - fields["pad_right"])
    return rows, (slice(top, max(top, bottom)), slice(left, max(left, right)))


def results(core: Core, operation: Operation, groups: int) -> Rows:
    """[rows, length, groups]: the bank rows that an operation writes."""
    fields = operation.fields
    group = map_group(core, operation, fields["bank_id_out"])
    row = fields["stride_offset_out"] + np.arange(fields["valid_pixel_parallel"])
    bank = fields["bank_id_out"] - group.first + row // fields["stride_out"]
    step = bank // core.rows * fields["stride_out"] + row % fields["stride_out"]
    address = fields["bank_addr_out"] + step * fields["jump_write_endl"]
    return image(
        group.first + bank % core.rows, address, fields["length"], fields["jump_write"], groups
    )


def row_a_bank(
    core: Core, operation: Operation, bank_id: int, address: int, jump: int, turn: int
) -> Rows:
    """[rows, length, groups]: an operand or the result of an ELEW; ``turn`` where the group
    wraps."""
    group, fields = map_group(core, operation, bank_id), operation.fields
    bank = bank_id - group.first + np.arange(fields["valid_pixel_parallel"])
    begin = address + bank // core.rows * turn
    banks = group.first + bank % core.rows
    return image(banks, begin, fields["length"], jump, fields["channel_group"])


def block(core: Core, name: str, address: int, count: int) -> Rows:
    """[banks, count]: successive rows of all banks of a group."""
    group = core.group(name)
    bank = np.arange(group.first, group.first + group.count)
    return bank[:, None] * DEPTH + (address + np.arange(count)) % DEPTH


def scattered(address: int, count: int, jump: int, groups: int, bank: int) -> Rows:
    """[count, groups]: rows of one bank, ``groups`` each time."""
    row = address + np.arange(count)[:, None] * jump + np.arange(groups)
    return bank * DEPTH + row % DEPTH
