"""Identifiers of emitted C: each file has one name space, which hands out every name once.

What the code of tiles calls its own variables (``LOCALS``), what the headers define and what C
keeps for itself is never handed out. Whoever needs a name says what it would like to be called, and
gets that with a number after it where it is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from tilewright.codegen.host.compiler import host_compiler
from tilewright.targets.sunway.gemm.panel import headers as gemm_headers
from tilewright.targets.sunway.gemm.turns import headers as turns_headers
from tilewright.tile.dialect import BufferOp, ProgramOp

_KEYWORDS = """
asm auto break case char const continue default do double else enum extern float for goto if inline
int long register restrict return short signed sizeof static struct switch typedef typeof union
unsigned void volatile while
"""

_LOCALS = """
argument at begin block box column columns compute count counts d end first from group i inside last
ldm left low most next o other own p para part places q replies reply row rows spare sum tap taps to
turn whole w x y
"""

KEYWORDS = frozenset(_KEYWORDS.split())

LOCALS = frozenset(_LOCALS.split()) | {f"t{number}" for number in range(64)}
"""Names that files of layers declare beside those that are handed out."""

DERIVED = (
    *("{}", "{}_b", "{}_box", "get_{}", "put_{}", "exchange_{}"),
    *("{}_slot", "{}_at", "{}_bytes", "{}_fits", "{}_word"),
)
"""Names that belong to a buffer: its data, its box, the functions of its DMA and the first reply
word of it, where it lies in LDM."""


class Names:
    """A set of C names in use, which hands out new ones."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {*KEYWORDS, *taken}

    def new(self, wish: str, forms: Sequence[str] = ("{}",)) -> str:
        """A name of which no form was handed out before: the wish, with a number if need be."""
        name, number = wish, 1
        while not self._taken.isdisjoint(form.format(name) for form in forms):
            number += 1
            name = f"{wish}{number}"
        self._taken.update(form.format(name) for form in forms)
        return name


@cache
def header_names() -> frozenset[str]:
    """Return the functions, macros and types of the headers that layers' files may include."""
    folder = files("tilewright.targets.sunway")
    texts = [*gemm_headers().values(), *turns_headers().values()]
    for part in (folder / "emit" / "slave", folder / "shim"):
        texts += [file.read_text() for file in part.iterdir() if file.name.endswith(".h")]
    texts.append(host_compiler().headers["scalars.h"].replace("##S", "s"))  # Of floats.
    kinds = r"\b(\w+)\(|#define (\w+)|\bstruct (\w+)|\btypedef (?:\w+|\w+ \{[^}]*\}) (\w+)"
    found = re.compile(kinds).findall("\n".join(texts))
    return frozenset(name for match in found for name in match if name)


@dataclass(frozen=True)
class LayerNames:
    """The names of one layer's files: what the MPE and the CPEs call the same is the same."""

    buffers: dict[BufferOp, str]
    """A role, with a number from the second on."""
    variables: dict[str, str]
    """By dim of the program, the variable of a loop over its indices."""
    steps: dict[tuple[BufferOp, int], str]
    """By buffer and axis of its box, the elements from one index to the next."""


def layer_names(program: ProgramOp) -> LayerNames:
    """Hand out the names of a program's layer."""
    names = Names({*LOCALS, *header_names()})
    variables = {dim: names.new(dim) for dim in program.extents}
    buffers = {
        op: names.new("tile" if op.role is None else op.role.data, DERIVED)
        for op in program.walk()
        if isinstance(op, BufferOp)
    }
    steps = {
        (op, axis): names.new(f"{name}_step{axis}")
        for op, name in buffers.items()
        for axis in range(len(op.window.data))
    }
    return LayerNames(buffers, variables, steps)
