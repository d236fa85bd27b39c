"""The convolutions of ACC-C that differ from its plain one in what a tile may be."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.machine import Primitive, Storage


def variants(primitives: Sequence[Primitive], lanes: int, sum_bytes: int) -> tuple[Primitive, ...]:
    """``narrow_conv``, ``rows_conv`` and ``row_conv``; ``sum_bytes`` is what a block of channels
    needs of VSM."""
    conv = next(one for one in primitives if one.name == "conv")
    return _narrow(conv, lanes, sum_bytes), _by_rows(conv), _by_row(conv)


def _narrow(conv: Primitive, lanes: int, sum_bytes: int) -> Primitive:
    """Convolutions by one block of channels at a time: nearly all of VSM is for pixels then."""
    return conv.model_copy(
        update={
            "name": "narrow_conv",
            "limits": {**conv.limits, "co": lanes},
            "reserved": {"vsm": sum_bytes},
        }
    )


def _by_rows(conv: Primitive) -> Primitive:
    """Convolutions of a few of the kernel's rows at a time, where all of them meet the image: such
    as blocks of channels (planning/channel_blocks.py)."""
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
    return conv.model_copy(
        update={
            "name": "row_conv",
            "whole": ("ci", "kw"),
            "limits": {**conv.limits, "kh": 1},
            "extents": {"kh": (2, 1 << 24), "kw": (2, 1 << 24)},
            "operands": {**conv.operands, "output": Storage(memory="vsm", waits=("oh",))},
        }
    )
