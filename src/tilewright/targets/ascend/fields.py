"""Checks that numbers that a kernel computes as it runs fit the fields of its instructions.

What is known when a command is written isa.py refuses. Counts, lengths and gaps that depend on
loops or on a launch's length are looked at here, in the executions that the proof of flags has
anyway.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.errors import refuse
from tilewright.targets.ascend.isa import COPIES
from tilewright.targets.ascend.machine import BLOCK, MAX_BURSTS, MAX_FIELD, MAX_REPEAT
from tilewright.targets.ascend.program import Access, Command, Executed

_COPIES = {name for name, _ in COPIES.values()}
_REPEATS = {"load_cbuf_to_ca", "load_cbuf_to_cb", "img2col_cbuf_to_ca"}


def check_fields(steps: Iterable[Executed], name: str) -> None:
    """Refuse (``lower-field``) a number that no field holds; ``name`` is the kernel's."""
    known: set[tuple[int, int, tuple[int, ...], tuple[int, ...]]] = set()
    for step in steps:
        command = step.statement
        if not isinstance(command, Command):
            continue
        for access in (*step.reads, *step.writes):
            key = id(command), access.bytes, access.counts, access.strides
            if key not in known:
                known.add(key)
                _check(command, access, name)


def _check(command: Command, access: Access, name: str) -> None:
    if command.name in _COPIES:
        fields = [("a burst has {} blocks", access.bytes // BLOCK, MAX_FIELD)]
        for count, stride in zip(access.counts, access.strides, strict=True):
            fields.append(("it has {} bursts", count, MAX_BURSTS))
            gap = (stride - access.bytes) // BLOCK
            fields.append(("{} blocks lie between bursts", gap, MAX_FIELD))
    elif command.name == "copy_matrix_cc_to_ubuf":
        fields = [("it has {} bursts", count, MAX_BURSTS) for count in access.counts]
    elif command.pipe == "V" or command.name in _REPEATS:
        fields = [("it has {} repeats", count, MAX_REPEAT) for count in access.counts[:1]]
    else:
        return
    for text, value, most in fields:
        if not 0 <= value <= most:
            reason = f"{name}: {command.name}: {text.format(value)}; a field holds {most} at most"
            raise refuse("lower-field", reason, help="smaller extents")
