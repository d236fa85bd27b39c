"""Schedule spaces, read from their text.

    space conv2                                # nodes of the model
      seed n 1, co 16, oh 10, ow 10; ci 6, kh 5, kw 5
      compute output[n, co, oh, ow] += input[n, ci, oh + kh, ow + kw] * weight[co, ci, kh, kw]
      cores co by 1 2, oh by 5                 # parts of the result
      cores mesh co, oh                        # or these over the mesh's rows and columns
      split oh by 1 5                          # sizes of tiles
      split ci by all
      reorder oh ci                            # loops over tiles, outermost first
      reorder ci oh
      double input weight                      # what has two slots
      double none

One statement a line; ``#`` begins a comment. ``cores``, ``reorder``, ``double`` and ``primitive``
may stand several times, each an alternative; ``split`` once for a dim. Meaning:
planning/planners/papers/strategies.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from tilewright.errors import refuse
from tilewright.planning.domain import Affine
from tilewright.planning.planners.papers.strategies import Cut, Factors, ScheduleSpace, Seed, Tensor

MAX_TEXT = 1 << 20
"""Characters of a text."""

MAX_NUMBER = 1 << 40

ELSEWHERE = {
    "layout": "layouts are assigned before kernels are planned (`tilewright opt --list`)",
    "fuse": "pixels that lie at equal distances are one dim already, where layouts allow it",
    "vectorise": "primitives have their vectors along output channels",
}
"""The statements of swATOP that a space does not have, and what stands in place of each."""

_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[^\s,;#"]+|[,;])')
_TENSOR = re.compile(r"(\w+)\s*\[([^\[\]]*)\]")
_ROLES = ("output", "input", "weight")


def parse_spaces(text: str, name: str = "text") -> tuple[ScheduleSpace, ...]:
    """The spaces of a text; refuses (``space-syntax``) at the name, line and column."""
    if len(text) > MAX_TEXT:
        raise refuse("space-syntax", f"{len(text):,} characters are more than {MAX_TEXT:,}", name)
    blocks: list[_Block] = []
    for number, line in enumerate(text.splitlines(), start=1):
        tokens = _Line(line, name, number)
        word = tokens.word()
        if word == "":
            continue
        if word == "space":
            blocks.append(_Block(tokens))
        elif not blocks:
            tokens.refuse(f"{word} stands before any space", "space NODE")
        else:
            blocks[-1].statement(word, tokens)
    spaces = tuple(block.finished() for block in blocks)
    known: set[str] = set()
    for space in spaces:
        for node in space.nodes:
            if node in known:
                raise refuse("space-syntax", f"node {node} has two spaces", space.where)
            known.add(node)
    if not spaces:
        raise refuse("space-syntax", "has no space", name, "space NODE")
    return spaces


def seed_text(seed: Seed) -> list[str]:
    """The statements of a seed."""
    parts = [", ".join(f"{dim} {size}" for dim, size in own) for own in (seed.loops, seed.sums)]
    lines = ["  seed " + "; ".join(part for part in parts if part)]
    if seed.tensors:
        c, a, b = (f"{t.role}[{', '.join(map(str, t.access))}]" for t in seed.tensors)
        lines.append(f"  compute {c} += {a} * {b}")
    return lines


class _Line:
    """The words of a line, read from left to right."""

    def __init__(self, text: str, name: str, number: int) -> None:
        self.text, self.name, self.number = text, name, number
        self.position = 0
        self.last = 0
        """The column of the word that was read last."""
        self.quoted = False
        """True if that word was quoted."""

    @property
    def where(self) -> str:
        """Name, line and column of the last word."""
        return f"{self.name}:{self.number}:{self.last + 1}"

    def refuse(self, reason: str, help: str = "") -> NoReturn:
        """Refuse the last word."""
        raise refuse("space-syntax", reason, self.where, help)

    def word(self) -> str:
        """The next word or sign; empty at the end of the line."""
        match = _TOKEN.match(self.text, self.position)
        if match is None:
            rest = self.text[self.position :]
            self.last = self.position + len(rest) - len(rest.lstrip())
            if rest.lstrip().startswith('"'):
                self.refuse("a quotation mark is not closed")
            return ""
        self.last, self.position = match.start(1), match.end()
        self.quoted = match[1].startswith('"')
        if not self.quoted:
            return match[1]
        try:
            return str(json.loads(match[1]))
        except ValueError:
            self.refuse("is no text in quotes")

    def peek(self) -> str:
        """The next word, which stays."""
        state = self.position, self.last, self.quoted
        word = self.word()
        self.position, self.last, self.quoted = state
        return word

    def dim(self) -> str:
        """The next word, a name of a dim."""
        word = self.word()
        if not word.isidentifier():
            self.refuse(f"{word or 'the end'} is no dim", "a name, such as co")
        return word

    def size(self) -> int:
        """The next word, a number above 0."""
        word = self.word()
        if not (word.isascii() and word.isdigit() and 0 < int(word[:15]) <= MAX_NUMBER):
            self.refuse(f"{word or 'the end'} is no number above 0")
        return int(word)

    def words(self) -> list[str]:
        """All further words, at least one."""
        words: list[str] = []
        while word := self.word():
            if word in (",", ";") and not self.quoted:
                self.refuse(f"{word} stands between words", "blanks alone")
            words.append(word)
        if not words:
            self.refuse("a name is missing")
        return words

    def factors(self) -> Factors:
        """``DIM by SIZE ...`` or ``DIM by all``."""
        dim = self.dim()
        where = self.where
        if self.word() != "by":
            self.refuse(f"by is missing after {dim}", f"{dim} by 4 8, or {dim} by all")
        if self.peek() == "all":
            self.word()
            return Factors(dim, (), where)
        sizes = [self.size()]
        while self.peek() not in ("", ",", ";"):
            sizes.append(self.size())
        return Factors(dim, tuple(sizes), where)

    def end(self) -> None:
        """Refuse what stands behind a statement."""
        if word := self.word():
            self.refuse(f"{word} follows the statement")


@dataclass
class _Block:
    """A space while its statements are read."""

    head: _Line
    nodes: tuple[str, ...] = ()
    where: str = ""
    loops: tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]] | None = None
    tensors: tuple[Tensor, ...] = ()
    primitives: list[str] = field(default_factory=list[str])
    cuts: list[Cut] = field(default_factory=list[Cut])
    splits: list[Factors] = field(default_factory=list[Factors])
    orders: list[tuple[tuple[str, ...], str]] = field(
        default_factory=list[tuple[tuple[str, ...], str]]
    )
    doubles: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])

    def __post_init__(self) -> None:
        self.where = self.head.where
        self.nodes = tuple(self.head.words())

    def statement(self, word: str, line: _Line) -> None:
        """Read the rest of a line."""
        known: Mapping[str, Callable[[_Line], None]] = {
            "seed": self._seed,
            "compute": self._compute,
            "primitive": lambda line: self.primitives.append(line.dim()),
            "cores": self._cores,
            "split": self._split,
            "reorder": self._reorder,
            "double": self._double,
        }
        if word in ELSEWHERE:
            line.refuse(f"a space has no statement {word}", ELSEWHERE[word])
        if word not in known:
            line.refuse(f"{word} is no statement", ", ".join(("space", *known)))
        known[word](line)
        line.end()

    def _seed(self, line: _Line) -> None:
        if self.loops is not None:
            line.refuse("the space has a seed already")
        parts: list[list[tuple[str, int]]] = [[]]
        sign = ","
        while sign:
            if sign == ";":
                parts.append([])
            dim = line.dim()
            if dim in [name for part in parts for name, _ in part]:
                line.refuse(f"{dim} occurs twice")
            parts[-1].append((dim, line.size()))
            sign = line.word()
            if sign not in ("", ",", ";") or (sign == ";" and len(parts) > 1):
                line.refuse(f"{sign} in the place of a comma", "n 1, co 16; ci 6")
        self.loops = tuple(parts[0]), tuple(parts[1]) if len(parts) > 1 else ()

    def _compute(self, line: _Line) -> None:
        rest = line.text[line.position :].split("#")[0]
        start, line.position = line.position, len(line.text)
        line.last = start + len(rest) - len(rest.lstrip())
        shape = re.sub(r"\s+", "", _TENSOR.sub(r"\1", rest))
        if shape != "output+=input*weight":
            line.refuse("is no product", "output[...] += input[...] * weight[...]")
        if self.loops is None:
            line.refuse("the seed must come before compute", "seed DIM EXTENT, ...")
        dims = {dim for own in self.loops for dim, _ in own}
        tensors: list[Tensor] = []
        for match in _TENSOR.finditer(rest):
            access: list[Affine] = []
            place = start + match.start(2)
            for part in match[2].split(","):
                line.last = place + len(part) - len(part.lstrip())
                place += len(part) + 1
                try:
                    access.append(Affine.parse(part))
                except ValueError:
                    line.refuse(f"{part.strip() or 'nothing'} is no sum of dims", "oh*2 + kh")
                unknown = [dim for dim in access[-1].dims if dim not in dims]
                if unknown:
                    line.refuse(f"the seed has no dim {unknown[0]}", ", ".join(sorted(dims)))
            tensors.append(Tensor(match[1], tuple(access)))
        self.tensors = tuple(tensors)

    def _cores(self, line: _Line) -> None:
        if line.peek() == "one":
            line.word()
            self.cuts.append(Cut(where=line.where))
            return
        if line.peek() == "mesh":
            line.word()
            where, own = line.where, list[tuple[str, ...]]()
            for sign in (",", ""):
                dims = [line.dim()]
                while line.peek() not in ("", ",", ";"):
                    dims.append(line.dim())
                own.append(tuple(dims))
                if line.word() != sign:
                    line.refuse("a mesh has rows and columns", "cores mesh co, oh")
            if set(own[0]) & set(own[1]) or max(len(set(dims)) for dims in own) > 2:
                reason = "rows and columns have one or two dims each, and none together"
                raise refuse("space-syntax", reason, where)
            self.cuts.append(Cut((), *own, where=where))
            return
        parts = [line.factors()]
        while line.peek() == ",":
            line.word()
            parts.append(line.factors())
        if len({part.dim for part in parts}) < len(parts):
            line.refuse("a dim is cut twice")
        self.cuts.append(Cut(tuple(parts), where=parts[0].where))

    def _split(self, line: _Line) -> None:
        split = line.factors()
        if split.dim in [known.dim for known in self.splits]:
            raise refuse("space-syntax", f"{split.dim} is split twice", split.where)
        self.splits.append(split)

    def _reorder(self, line: _Line) -> None:
        order = [line.dim()]
        where = line.where
        while line.peek():
            order.append(line.dim())
        self.orders.append((tuple(order), where))

    def _double(self, line: _Line) -> None:
        if line.peek() == "none" and '"' not in line.text:
            line.word()
            self.doubles.append(())
            return
        self.doubles.append(tuple(line.words()))

    def finished(self) -> ScheduleSpace:
        """The space, once its orders are known to be of its loops."""
        split = sorted(factors.dim for factors in self.splits)
        for order, where in self.orders:
            if sorted(order) != split:
                reason = f"the order {' '.join(order)} is not of the dims that are split"
                raise refuse("space-syntax", reason, where, ", ".join(split) or "split DIM by ...")
        return ScheduleSpace(
            self.nodes,
            None if self.loops is None else Seed(*self.loops, self.tensors),
            tuple(self.primitives),
            tuple(self.cuts),
            tuple(self.splits),
            tuple(order for order, _ in self.orders),
            tuple(self.doubles),
            self.where,
        )
