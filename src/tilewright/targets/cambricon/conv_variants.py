"""The convolutions of ACC-C that differ from its plain one in what a tile may be."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.machine import Primitive, Storage
from tilewright.targets.cambricon.capabilities import CambriconOperand

SLIM = 4
"""Blocks of channels that a tile of ``slim_conv`` has at most."""


def variants(primitives: Sequence[Primitive], lanes: int, sum_bytes: int) -> tuple[Primitive, ...]:
    """``narrow_conv``, ``slim_conv``, ``rows_conv`` and ``row_conv``; ``sum_bytes`` is what a block
    of channels needs of VSM."""
    conv = next(primitive for primitive in primitives if primitive.name == "conv")
    narrow = _narrow("narrow_conv", conv, lanes, sum_bytes)
    slim = _narrow("slim_conv", conv, SLIM * lanes, SLIM * sum_bytes)
    # Pixels of smaller kernels take so few cycles that the sums of many wait together.
    slim = slim.model_copy(update={"extents": {"kh": (2, 1 << 24)}})
    return narrow, slim, _by_rows(conv), _by_row(conv)


def _narrow(name: str, conv: Primitive, channels: int, sum_bytes: int) -> Primitive:
    """Convolutions by one block of channels at a time, or few: nearly all of VSM is for pixels
    then."""
    return conv.model_copy(
        update={
            "name": name,
            "limits": {**conv.limits, "co": channels},
            "reserved": {"vsm": sum_bytes},
        }
    )


def _by_rows(conv: Primitive) -> Primitive:
    """Convolutions of a few of the kernel's rows at a time, where all of them meet the image: such
    as blocks of channels (targets/cambricon/planning/channel_blocks.py)."""
    return conv.model_copy(
        update={
            "name": "rows_conv",
            "whole": ("kw",),
            "extents": {"kh": (2, 1 << 24), "kw": (1, 1)},
        }
    )


def _by_row(conv: Primitive) -> Primitive:
    """Convolutions of one row of the kernel at a time, all pixels by it before the next one does:
    weights are those of a row then, and of the image come the rows alone that it meets."""
    output = Storage(memory="vsm", own=CambriconOperand(waits=("oh",)))
    return conv.model_copy(
        update={
            "name": "row_conv",
            "whole": ("ci", "kw"),
            "limits": {**conv.limits, "kh": 1},
            "extents": {"kh": (2, 1 << 24), "kw": (2, 1 << 24)},
            "operands": {**conv.operands, "output": output},
        }
    )
