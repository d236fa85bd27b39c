"""The cycles that a tile takes to compute, as C for the shim that counts (shim/count.c).

The packages' C has no such line: the manifest has it, and the runner puts it before the calls
of ``compute`` in a copy of the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.machine import Expression, Machine, parse_expression
from tilewright.machine.exact import FUNCTIONS, OPERATORS
from tilewright.targets.sunway.emit.nest import PartNest
from tilewright.tile.dialect import ComputeOp, ProgramOp
from tilewright.tile.iteration import own_extents

CALL = re.compile(r"( *)compute(?:_(\d+))?\(&at,")
"""Pattern of the call of a tile's code in the emitted C, with the compute's number if any."""


def charge_texts(program: ProgramOp, machine: Machine) -> list[str]:
    """C of the cycles of the tile at ``at`` of each compute, by its primitive's expression."""
    nest = PartNest(program)
    texts: list[str] = []
    for op in program.walk():
        block = op.parent_block()
        if isinstance(op, ComputeOp) and block is not None:
            spans, names = nest.spans(block, "at."), op.dim_names
            sizes = {dim: str(spans[names.get(dim, dim)].size) for dim in own_extents(op, program)}
            primitive = machine.primitive(op.primitive.data)
            texts.append(expression_text(parse_expression(primitive.cycles), sizes))
    return texts


def expression_text(expression: Expression, sizes: dict[str, str]) -> str:
    """C of an expression over doubles; ``sizes`` has C of each dim, one that is missing is 1."""
    signs: dict[Callable[..., Any], str] = {f: sign for sign, f in OPERATORS.items()}
    functions: dict[Callable[..., Any], str] = {f: name for name, f in FUNCTIONS.items()}
    stack: list[str] = []
    for kind, what, pops in expression.steps:
        if kind == "constant":
            stack.append(repr(float(what.numerator / what.denominator)))
            continue
        if kind == "dim":
            stack.append(f"(double)({sizes.get(what, '1')})")
            continue
        arguments = stack[len(stack) - pops :]
        del stack[len(stack) - pops :]
        if what in signs:
            stack.append(_operator(signs[what], *arguments))
        else:
            stack.append(_function(functions[what], arguments))
    return stack[0]


def _operator(sign: str, left: str, right: str) -> str:
    if sign == "//":
        return f"floor({left} / {right})"
    if sign == "%":
        return f"({left} - {right} * floor({left} / {right}))"
    return f"({left} {sign} {right})"


def _function(name: str, arguments: list[str]) -> str:
    if name == "where":
        return "({} ? {} : {})".format(*arguments)
    if name in ("min", "max"):
        text = arguments[0]
        for other in arguments[1:]:
            text = f"f{name}({text}, {other})"
        return text
    return f"{'fabs' if name == 'abs' else name}({arguments[0]})"


def counting(text: str, charges: Sequence[str]) -> str:
    """A slave file that charges each tile before it computes it; with the registers that are sent
    meanwhile, where CPEs compute it together."""
    name = "shim_charge_all" if '#include "../slave/turns.h"' in text else "shim_charge"
    lines: list[str] = []
    for line in text.splitlines():
        if call := CALL.match(line):
            line = f"{call[1]}{name}({charges[int(call[2] or 0)]}); {line.lstrip()}"
        lines.append(line)
    return "\n".join(lines) + "\n"
