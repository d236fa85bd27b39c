"""Calls, loops, branches, tuples, and operations known by another's name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, cast

from tilewright.errors import TilewrightError, refuse
from tilewright.frontends.stablehlo.bodies import order_of
from tilewright.frontends.stablehlo.body import Body, Control, Scope
from tilewright.frontends.stablehlo.limits import MAX_ROUNDS, shown
from tilewright.frontends.stablehlo.lowering import where
from tilewright.frontends.stablehlo.operators import RULES
from tilewright.frontends.stablehlo.operators.indexing import sort as sorted_by
from tilewright.frontends.stablehlo.program import Operation
from tilewright.frontends.stablehlo.values import Entry, View

CUSTOM: Mapping[str, str] = {
    "mhlo.erf": "chlo.erf",
    "mhlo.erfc": "chlo.erfc",
    "mhlo.topk": "chlo.top_k",
    "mhlo.sinh": "chlo.sinh",
    "mhlo.cosh": "chlo.cosh",
    "mhlo.asin": "chlo.asin",
    "mhlo.acos": "chlo.acos",
    "mhlo.atan": "chlo.atan",
    "mhlo.asinh": "chlo.asinh",
    "mhlo.acosh": "chlo.acosh",
    "mhlo.atanh": "chlo.atanh",
    "mhlo.tan": "chlo.tan",
}
"""Custom calls with a known meaning."""

NEUTRAL_CALLS = frozenset(("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"))
"""Custom calls that say where values lie among devices, and compute nothing."""


def _refused(op: Operation, label: str, reason: str, help: str = "") -> TilewrightError:
    return refuse("stablehlo-unsupported", reason, where(op, label), help)


def _symbol(op: Operation, name: str) -> str:
    value = op.attributes.get(name)
    return str(cast("dict[str, Any]", value).get("symbol", "")) if isinstance(value, dict) else ""


def call(
    body: Body, op: Operation, label: str, operands: Sequence[Entry], scope: Scope
) -> Sequence[Entry | None]:
    """The function's operations in place of the call."""
    return body.call(_symbol(op, "callee"), operands, op, label)


def composite(
    body: Body, op: Operation, label: str, operands: Sequence[Entry], scope: Scope
) -> Sequence[Entry | None]:
    """The operation that it is called, if that is known; else what it is made of."""
    rule = RULES.get(str(op.attributes.get("name", "")))
    if rule is not None:
        return body.apply(rule, op, label, operands)
    return body.call(_symbol(op, "decomposition"), operands, op, label)


def custom_call(
    body: Body, op: Operation, label: str, operands: Sequence[Entry], scope: Scope
) -> Sequence[Entry | None]:
    """The few calls that are known by name."""
    name = str(op.attributes.get("call_target_name", ""))
    if name in NEUTRAL_CALLS and len(operands) == len(op.results):
        return list(operands)
    if name not in CUSTOM:
        raise _refused(
            op,
            label,
            f"it calls {shown(name)}, whose meaning is not known",
            help="export with plain operations in its place",
        )
    inner = op.attributes.get("mhlo.attributes")
    named = cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}
    known = dataclasses.replace(op, attributes={**op.attributes, **named})
    return body.apply(RULES[CUSTOM[name]], known, label, operands)


def while_(
    body: Body, op: Operation, label: str, operands: Sequence[Entry], scope: Scope
) -> Sequence[Entry | None]:
    """The rounds of a loop written out; how many there are must follow from constants."""
    condition, action = op.regions
    values: Sequence[Entry | None] = list(operands)
    for count in range(MAX_ROUNDS + 1):
        scope.update(zip(condition.arguments, values, strict=True))
        decisions = body.run(condition, scope, label)
        decision = decisions[0] if decisions else None
        if not isinstance(decision, View) or decision.number is None:
            raise _refused(op, label, "how often it goes round is known only at run time")
        if not decision.number:
            return values
        if count == MAX_ROUNDS:
            break
        scope.update(zip(action.arguments, values, strict=True))
        values = body.run(action, scope, f"{label}/{count}")
    raise _refused(op, label, f"it goes round more than {MAX_ROUNDS} times")


def branch(
    body: Body, op: Operation, label: str, operands: Sequence[Entry], scope: Scope
) -> Sequence[Entry | None]:
    """The branch that a constant names; ``case`` takes the last one if there is none."""
    (decision,) = operands
    if not isinstance(decision, View) or decision.number is None:
        raise _refused(
            op,
            label,
            "which branch is taken is known only at run time",
            help="choose between both branches' results (jnp.where)",
        )
    number = int(decision.number)
    index = 1 - number if op.name == "stablehlo.if" else number
    if not 0 <= index < len(op.regions):
        index = len(op.regions) - 1
    return body.run(op.regions[index], scope, label)


def tuple_(
    body: Body, op: Operation, label: str, operands: Sequence[Entry], scope: Scope
) -> Sequence[Entry | None]:
    """Combine several entries into one tuple."""
    return [tuple(operands)]


def get_tuple_element(
    body: Body, op: Operation, label: str, operands: Sequence[Entry], scope: Scope
) -> Sequence[Entry | None]:
    """One of a tuple's entries."""
    (entries,), index = operands, op.attributes.get("index")
    if isinstance(entries, View) or not isinstance(index, int) or not 0 <= index < len(entries):
        raise refuse("stablehlo-attribute", "there is no such element", where(op, label))
    return [entries[index]]


def sort(
    body: Body, op: Operation, label: str, operands: Sequence[Entry], scope: Scope
) -> Sequence[Entry | None]:
    """Operands in the order of one of them."""

    def constant(number: int) -> float | None:
        entry = scope.get(number)
        order = entry.number if isinstance(entry, View) else None
        return None if order is None else float(order)

    order = order_of(op.regions[0], constant) if op.regions else None
    if order is None:
        raise _refused(op, label, "it sorts by something else than one operand's elements")
    by, descending = order
    return body.apply(lambda at: sorted_by(at, by, descending=descending), op, label, operands)


CONTROL: Mapping[str, Control] = {
    "call": call,
    "func.call": call,
    "stablehlo.case": branch,
    "stablehlo.composite": composite,
    "stablehlo.custom_call": custom_call,
    "stablehlo.get_tuple_element": get_tuple_element,
    "stablehlo.if": branch,
    "stablehlo.sort": sort,
    "stablehlo.tuple": tuple_,
    "stablehlo.while": while_,
}
"""The importer of each operation with control flow, by its name."""
