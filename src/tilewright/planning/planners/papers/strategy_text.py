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
may stand several times, each an alternative; ``split`` once for a dim. The
grammar is strategy.lark; the meaning: planning/planners/papers/strategies.py.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import TypeAlias, cast

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedInput, UnexpectedToken

from tilewright.errors import TilewrightError, refuse
from tilewright.planning.domain import Affine
from tilewright.planning.planners.papers.strategies import Cut, Factors, ScheduleSpace, Seed, Tensor

MAX_TEXT = 1 << 20
"""Characters of a text."""

FORMS = {
    "space": "space NODE ...",
    "seed": "seed DIM SIZE, ...; DIM SIZE, ...",
    "compute": "compute output[...] += input[...] * weight[...]",
    "primitive": "primitive NAME",
    "cores": "cores DIM by SIZE ..., ...; or cores mesh DIM ..., DIM ...; or cores one",
    "split": "split DIM by SIZE ..., or split DIM by all",
    "reorder": "reorder DIM ...",
    "double": "double TENSOR ..., or double none",
}
"""Every statement, as it is written."""

ELSEWHERE = {
    "layout": "layouts are assigned before kernels are planned (`tilewright opt --list`)",
    "fuse": "pixels that lie at equal distances are one dim already, where layouts allow it",
    "vectorise": "primitives have their vectors along output channels",
}
"""The statements of swATOP that a space does not have, and what stands in place of each."""

_Tree: TypeAlias = "Tree[Token]"


@cache
def _parser() -> Lark:
    grammar = files("tilewright.planning.planners.papers").joinpath("strategy.lark").read_text()
    return Lark(grammar, parser="lalr", lexer_callbacks={"NAME": _unquoted})


def _unquoted(token: Token) -> Token:
    return token.update(value=json.loads(token)) if token.startswith('"') else token


def parse_spaces(text: str, name: str = "text") -> tuple[ScheduleSpace, ...]:
    """The spaces of a text; refuses (``space-syntax``) at the name, line and column."""
    if len(text) > MAX_TEXT:
        raise refuse("space-syntax", f"{len(text):,} characters are more than {MAX_TEXT:,}", name)
    lines = [*text.splitlines(), ""]
    try:
        tree: _Tree = _parser().parse("\n".join(lines))
    except UnexpectedInput as error:
        raise _syntax(error, lines, name) from None
    spaces = tuple(map(_Reader(name).space, cast("list[_Tree]", tree.children)))
    nodes = ((f"node {node}", space.where) for space in spaces for node in space.nodes)
    _once(nodes, "has two spaces")
    return spaces


def _syntax(error: UnexpectedInput, lines: list[str], name: str) -> TilewrightError:
    """The refusal of a word that the grammar does not allow there, with its statement's form."""
    where = f"{name}:{error.line}:{error.column}"
    if not isinstance(error, UnexpectedToken):
        return refuse("space-syntax", "a quotation mark is not closed, or holds no JSON", where)
    token, wanted = error.token, error.accepts or set[str]()
    shown = "the end" if token.type in ("_END", "$END") else str(token)[:80]
    if "$END" in wanted and shown in FORMS:
        reason, help = f"{shown} is out of place: one seed comes, then one compute", FORMS[shown]
    elif "$END" in wanted:
        reason, help = f"{shown} is no statement", ELSEWHERE.get(shown, ", ".join(FORMS))
    elif "SPACE" in wanted:
        reason, help = f"{shown} stands before any space", FORMS["space"]
    else:
        names = " or ".join(sorted(each.strip("_").replace("_", " ").lower() for each in wanted))
        reason = f"expected {names}, found {shown}"
        line = lines[error.line - 1].lstrip()
        help = next(form for word, form in FORMS.items() if line.startswith(word))
    return refuse("space-syntax", reason, where, help)


def _once(named: Iterable[tuple[str, str]], reason: str) -> None:
    """Refuse a name that occurs twice, of names and where they stand."""
    known: set[str] = set()
    for name, where in named:
        if name in known:
            raise refuse("space-syntax", f"{name} {reason}", where)
        known.add(name)


class _Reader:
    """Makes spaces of the statements of a text."""

    def __init__(self, name: str) -> None:
        self.name = name

    def place(self, token: Token) -> str:
        """Name, line and column of a token."""
        return f"{self.name}:{token.line}:{token.column}"

    def space(self, block: _Tree) -> ScheduleSpace:
        """A space of its statements, which are lists of tokens."""
        of: dict[str, list[list[Token]]] = defaultdict(list)
        for statement in cast("list[_Tree]", block.children):
            of[statement.data].append(cast("list[Token]", statement.children))
        splits = tuple(map(self.factors, of["split"]))
        _once(((split.dim, split.where) for split in splits), "is split twice")
        dims = sorted(split.dim for split in splits)
        for order in of["reorder"]:
            if sorted(order) != dims:
                reason = f"the order {' '.join(order)} is not of the dims that are split"
                help = ", ".join(dims) or FORMS["split"]
                raise refuse("space-syntax", reason, self.place(order[0]), help)
        ((word, *nodes),) = of["space"]
        return ScheduleSpace(
            tuple(map(str, nodes)),
            self.seed(of["seed"][0], *of["compute"]) if of["seed"] else None,
            tuple(str(name) for (name,) in of["primitive"]),
            tuple(map(self.cut, of["cores"])),
            splits,
            tuple(tuple(map(str, order)) for order in of["reorder"]),
            tuple(tuple(map(str, names)) for names in of["double"]),
            self.place(word),
        )

    def seed(self, seed: list[Token], product: Sequence[Token] = ()) -> Seed:
        """The seed of a space, with its product if it has one."""
        dims = [token for token in seed if token.type == "DIM"]
        _once(((str(dim), self.place(dim)) for dim in dims), "occurs twice")
        known = set(map(str, dims))
        loops, sums, *_ = (
            tuple((str(dim), int(size)) for dim, size in zip(group[1::2], group[2::2], strict=True))
            for group in (*_groups(seed, "SEED", "SEMICOLON"), [])
        )
        tensors = (
            Tensor(str(role), tuple(self.subscript(token, known) for token in access))
            for role, *access in _groups(product, "OUTPUT", "INPUT", "WEIGHT")
        )
        return Seed(loops, sums, tuple(tensors))

    def subscript(self, token: Token, dims: Collection[str]) -> Affine:
        """A sum of dims that the seed has."""
        reason, help = f"{token.strip()[:80]} is no sum of dims", "oh*2 + kh"
        try:
            access = Affine.parse(token)
        except ValueError:
            raise refuse("space-syntax", reason, self.place(token), help) from None
        for dim in access.dims:
            if dim not in dims:
                reason, help = f"the seed has no dim {dim}", ", ".join(sorted(dims))
                raise refuse("space-syntax", reason, self.place(token), help)
        return access

    def cut(self, tokens: list[Token]) -> Cut:
        """An alternative of ``cores``."""
        where = self.place(tokens[0])
        if tokens[0].type == "ONE":
            return Cut(where=where)
        if tokens[0].type == "MESH":
            rows, columns = (tuple(map(str, part[1:])) for part in _groups(tokens, "MESH", "COMMA"))
            _once(((dim, where) for dim in (*rows, *columns)), "is cut twice")
            return Cut((), rows, columns, where)
        parts = tuple(map(self.factors, _groups(tokens, "DIM")))
        _once(((part.dim, part.where) for part in parts), "is cut twice")
        return Cut(parts, where=where)

    def factors(self, tokens: list[Token]) -> Factors:
        """``DIM by SIZE ...`` or ``DIM by all``."""
        dim, *sizes = tokens
        return Factors(str(dim), tuple(map(int, sizes)), self.place(dim))


def _groups(tokens: Sequence[Token], *heads: str) -> list[list[Token]]:
    """Tokens in groups that begin with one of certain terminals each."""
    groups: list[list[Token]] = []
    for token in tokens:
        if token.type in heads:
            groups.append([])
        groups[-1].append(token)
    return groups
