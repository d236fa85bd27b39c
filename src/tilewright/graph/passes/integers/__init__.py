"""Rewrites of operations before ``quantise_linear`` to integer arithmetic: one file a family.

A rule takes the operation whose result is quantised and how (``Ending``); it gives the integers
that take the quantised value's place, or None if the rule does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import Rewriter
from tilewright.graph.passes.integers import maps, means, moves, products
from tilewright.graph.passes.integers.reals import Ending
from tilewright.ir import SSAValue

Rule = Callable[[Operation, Ending, Rewriter], SSAValue | None]

RULES: Mapping[str, Rule] = {
    "conv": products.product,
    "matmul": products.product,
    "add": maps.pair,
    "sub": maps.pair,
    "mul": maps.pair,
    "average_pool": means.average_pool,
    "reduce_mean": means.reduce_mean,
    "max_pool": moves.keeping,
    "reshape": moves.keeping,
    "transpose": moves.keeping,
    "slice": moves.keeping,
    "gather": moves.keeping,
    "pad": moves.pad,
    "concat": moves.join,
    "interleave": moves.join,
}
"""Rules by the operation whose result is quantised; functions of one number come before these."""
