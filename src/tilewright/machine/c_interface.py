"""The C functions of a machine: all of them named, and all of them names that C takes.

``[c]`` of a machine file names the functions that wait, ``c.function`` of every move and primitive
the one that starts it. Which parameters they take follows from the derived instructions
(targets/generic/c/records.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tilewright.system.c_words import RESERVED

if TYPE_CHECKING:
    from tilewright.machine.model import Machine

_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")

Finding = tuple[str, str, str]
"""Key, reason, and what would help."""


def c_problems(machine: Machine) -> Iterator[Finding]:
    """Yield the problems of the C functions that a machine names."""
    parts = [(f"move.{part.name}", part.c) for part in machine.moves]
    also = [
        (f"move.{move.name}.transforms", f"{move.c.function}_{transform}")
        for move in machine.moves
        for transform in move.transforms
        if move.c is not None
    ]
    parts += [(f"primitive.{part.name}", part.c) for part in machine.primitives]
    if machine.c is None:
        for where, function in parts:
            if function is not None:
                yield f"{where}.c", "the machine has no table [c]", "name prefix, wait and finish"
        return
    names = [("c.prefix", machine.c.prefix)]
    names += [("c.wait", machine.c.wait), ("c.finish", machine.c.finish)]
    style = machine.synchronisation.style
    if style not in ("counters", "flags"):
        help = 'synchronisation = "counters" or flags, or no table [c]'
        yield "c", f"functions wait for counters or for flags, not for {style}", help
    for key, function in (("signal", machine.c.signal), ("barrier", machine.c.barrier)):
        if function is not None:
            names.append((f"c.{key}", function))
        if (style == "flags") != (function is not None):
            has = "names no C function" if function is None else "is of machines with flags"
            yield f"c.{key}", has, "flags need functions signal and barrier; counters have none"
    for where, function in parts:
        if function is None:
            help = "every move and primitive needs a function, or none and no table [c]"
            yield f"{where}.c", "names no C function", help
        else:
            names.append((f"{where}.c.function", function.function))
    seen: dict[str, str] = {}
    for where, name in (*names, *also):
        shown = "".join(c if c.isprintable() else "?" for c in name[:80])
        if not _IDENTIFIER.fullmatch(name):
            help = "letters, digits and _, beginning with a letter; 63 at most"
            yield where, f"{shown!r} is no C identifier", help
        elif name in RESERVED or re.fullmatch(r"u?int(_(fast|least))?\d+_t|s?size_t", name):
            yield where, f"{shown!r} is a word of C or of its headers", "another name"
        elif name in seen:
            yield where, f"{shown!r} is already the name of {seen[name]}", "another name"
        seen.setdefault(name, where)
