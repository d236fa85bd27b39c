"""The places of an operation's data: rows of banks and bytes of main memory.

A bank row has a number of its own over all banks: bank * DEPTH + row. Addresses within a bank are
modulo its depth, so that a buffer of rows may be a ring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tilewright.targets.dpu.core import DEPTH, BankGroup, Core
from tilewright.targets.dpu.operations import Operation

Rows = NDArray[np.int64]
"""Numbers of bank rows."""

BASES = ("bank_addr_in", "bank_addr_in_1", "bank_addr_in_2", "bank_addr_in_3")


@dataclass(frozen=True)
class Image:
    """A tile of a feature map in the banks of one group."""

    bank: NDArray[np.int64]
    """[rows]: the bank of each row of the tile."""
    address: NDArray[np.int64]
    """[rows]: where in the bank the row begins, not yet modulo the depth."""
    width: int
    """Pixels of a row."""
    jump: int
    """Bank rows from pixel to pixel."""
    groups: int
    """Bank rows of a pixel."""

    @cached_property
    def rows(self) -> Rows:
        """[rows, width, groups]: the bank rows."""
        pixel = np.arange(self.width)[:, None] * self.jump + np.arange(self.groups)
        address = (self.address[:, None, None] + pixel) % DEPTH
        return self.bank[:, None, None] * DEPTH + address

    def part(self, rows: slice, columns: slice) -> Rows:
        """[rows, columns, groups]: the bank rows of a part of the tile."""
        return self.rows[rows, columns]


@dataclass(frozen=True)
class Padding:
    """Rows and columns of a window that are not read."""

    top: int
    left: int
    bottom: int
    right: int

    def inside(self, height: int, width: int) -> tuple[slice, slice]:
        """Return the rows and columns of a window that lie inside the image, without padding."""
        top, left = min(self.top, height), min(self.left, width)
        return (
            slice(top, max(top, height - self.bottom)),
            slice(left, max(left, width - self.right)),
        )


def padding_of(operation: Operation) -> Padding:
    """The padding that an operation's fields say: those of the far side are kernel - 1 - count."""
    fields = operation.fields
    return Padding(
        fields["pad_top"],
        fields["pad_left"],
        max(0, fields["kernel_h"] - 1 - fields["pad_bottom"]),
        max(0, fields["kernel_w"] - 1 - fields["pad_right"]),
    )


def map_group(core: Core, operation: Operation, bank: int) -> BankGroup:
    """The group of a bank that holds feature maps; refuses another."""
    if bank < core.banks and core.group_of_bank[bank].kind == "map":
        return core.group_of_bank[bank]
    raise operation.refuse(
        f"bank {bank} is none for feature maps", f"0 to {core.groups * core.rows - 1}"
    )


def input_image(core: Core, operation: Operation) -> Image:
    """The window that an operation reads, padding included."""
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
    return Image(
        group.first + bank % core.rows, address, width, fields["jump_read"],
        fields["channel_group"],
    )  # fmt: skip


def output_image(core: Core, operation: Operation, groups: int) -> Image:
    """Return the image of bank rows that an operation writes."""
    fields = operation.fields
    group = map_group(core, operation, fields["bank_id_out"])
    row = fields["stride_offset_out"] + np.arange(fields["valid_pixel_parallel"])
    bank = fields["bank_id_out"] - group.first + row // fields["stride_out"]
    step = bank // core.rows * fields["stride_out"] + row % fields["stride_out"]
    address = fields["bank_addr_out"] + step * fields["jump_write_endl"]
    return Image(
        group.first + bank % core.rows, address, fields["length"], fields["jump_write"], groups
    )


def operand_image(
    core: Core, operation: Operation, bank_id: int, address: int, jump: int, turn: int
) -> Image:
    """A row a bank, as ELEW has its operands and results; ``turn`` where the group wraps."""
    group = map_group(core, operation, bank_id)
    bank = bank_id - group.first + np.arange(operation.fields["valid_pixel_parallel"])
    return Image(
        group.first + bank % core.rows,
        address + bank // core.rows * turn,
        operation.fields["length"],
        jump,
        operation.fields["channel_group"],
    )


def elementwise_images(core: Core, operation: Operation) -> tuple[list[Image], Image]:
    """Operands and result of an ELEW."""
    operands = [
        operand_image(
            core, operation, read["bank_id_in"], read["bank_addr_in"], read["jump_read"],
            read["jump_read_endl"],
        )
        for read in operation.operands
    ]  # fmt: skip
    fields = operation.fields
    result = operand_image(
        core, operation, fields["bank_id_out"], fields["bank_addr_out"], fields["jump_write"],
        fields["jump_write_endl"],
    )  # fmt: skip
    return operands, result


def block(core: Core, name: str, address: int, count: int) -> Rows:
    """[banks, count]: successive rows of all banks of a group."""
    group = core.group(name)
    bank = np.arange(group.first, group.first + group.count)
    return bank[:, None] * DEPTH + (address + np.arange(count)) % DEPTH


def scattered(address: int, count: int, jump: int, groups: int, bank: int) -> Rows:
    """[count, groups]: rows of one bank, ``groups`` each time."""
    row = address + np.arange(count)[:, None] * jump + np.arange(groups)
    return bank * DEPTH + row % DEPTH


def transfer_rows(core: Core, operation: Operation) -> Rows:
    """[runs, rows]: what a LOAD writes or a SAVE reads."""
    fields = operation.fields
    if fields["bank_id"] >= core.banks:
        raise operation.refuse(f"there is no bank {fields['bank_id']}", f"0 to {core.banks - 1}")
    jump = fields["jump_write" if operation.mnemonic == "load" else "jump_read"]
    per_run = -(-fields["channel"] // core.channels)
    return scattered(fields["bank_addr"], fields["length"], jump, per_run, fields["bank_id"])


def joined(parts: Sequence[Rows]) -> Rows:
    """All rows of several arrays, ascending, each once."""
    flat = [part.ravel() for part in parts]
    return np.unique(np.concatenate(flat)) if flat else np.zeros(0, np.int64)
