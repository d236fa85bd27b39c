"""Calls, loops, branches, tuples, and operations known by another's name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, cast

from tilewright.errors import TilewrightError, refuse
from tilewright.frontends.limits import MAX_ROUNDS, shown
from tilewright.frontends.stablehlo.bodies import order_of
from tilewright.frontends.stablehlo.body import Call, Control
from tilewright.frontends.stablehlo.operators import RULES
from tilewright.frontends.stablehlo.operators.indexing import sort as sorted_by
from tilewright.frontends.stablehlo.values import Entry, View

_CUSTOM = "erf erfc sinh cosh asin acos atan asinh acosh atanh tan"

CUSTOM: Mapping[str, str] = {
    **{f"mhlo.{name}": f"chlo.{name}" for name in _CUSTOM.split()},
    "mhlo.topk": "chlo.top_k",
}
"""Custom calls with a known meaning."""

NEUTRAL_CALLS = frozenset(("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"))
"""Custom calls that say where values lie among devices, and compute nothing."""


def _refused(call: Call, reason: str, help: str = "") -> TilewrightError:
    return refuse("stablehlo-unsupported", reason, call.where, help)


def _called(call: Call, attribute: str) -> Sequence[Entry | None]:
    """Return the results of the function that an attribute names, for the call's operands."""
    value = call.op.attributes.get(attribute)
    symbol = cast("dict[str, Any]", value).get("symbol", "") if isinstance(value, dict) else ""
    return call.body.call(str(symbol), call.operands, call.op, call.label)


def function(call: Call) -> Sequence[Entry | None]:
    """The function's operations in place of the call."""
    return _called(call, "callee")


def composite(call: Call) -> Sequence[Entry | None]:
    """The operation that it is called, if that is known; else what it is made of."""
    rule = RULES.get(str(call.op.attributes.get("name", "")))
    if rule is not None:
        return call.apply(rule)
    return _called(call, "decomposition")


def custom_call(call: Call) -> Sequence[Entry | None]:
    """The few calls that are known by name."""
    op, operands = call.op, call.operands
    name = str(op.attributes.get("call_target_name", ""))
    if name in NEUTRAL_CALLS and len(operands) == len(op.results):
        return list(operands)
    if name not in CUSTOM:
        raise _refused(
            call,
            f"it calls {shown(name)}, whose meaning is not known",
            help="export with plain operations in its place",
        )
    inner = op.attributes.get("mhlo.attributes")
    named = cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}
    known = dataclasses.replace(op, attributes={**op.attributes, **named})
    return call.body.apply(RULES[CUSTOM[name]], known, call.label, operands)


def while_(call: Call) -> Sequence[Entry | None]:
    """The rounds of a loop written out; how many there are must follow from constants."""
    body, scope, (condition, action) = call.body, call.scope, call.op.regions
    values: Sequence[Entry | None] = list(call.operands)
    for count in range(MAX_ROUNDS + 1):
        scope.update(zip(condition.arguments, values, strict=True))
        decisions = body.run(condition, scope, call.label)
        decision = decisions[0] if decisions else None
        if not isinstance(decision, View) or decision.number is None:
            raise _refused(call, "how often it goes round is known only at run time")
        if not decision.number:
            return values
        if count == MAX_ROUNDS:
            break
        scope.update(zip(action.arguments, values, strict=True))
        values = body.run(action, scope, f"{call.label}/{count}")
    raise _refused(call, f"it goes round more than {MAX_ROUNDS} times")


def branch(call: Call) -> Sequence[Entry | None]:
    """The branch that a constant names; ``case`` takes the last one if there is none."""
    (decision,), regions = call.operands, call.op.regions
    if not isinstance(decision, View) or decision.number is None:
        raise _refused(
            call,
            "which branch is taken is known only at run time",
            help="choose between both branches' results (jnp.where)",
        )
    number = int(decision.number)
    index = 1 - number if call.op.name == "stablehlo.if" else number
    if not 0 <= index < len(regions):
        index = len(regions) - 1
    return call.body.run(regions[index], call.scope, call.label)


def tuple_(call: Call) -> Sequence[Entry | None]:
    """Combine several entries into one tuple."""
    return [tuple(call.operands)]


def get_tuple_element(call: Call) -> Sequence[Entry | None]:
    """One of a tuple's entries."""
    (entries,), index = call.operands, call.op.attributes.get("index")
    if isinstance(entries, View) or not isinstance(index, int) or not 0 <= index < len(entries):
        raise refuse("stablehlo-attribute", "there is no such element", call.where)
    return [entries[index]]


def sort(call: Call) -> Sequence[Entry | None]:
    """Operands in the order of one of them."""

    def constant(number: int) -> float | None:
        entry = call.scope.get(number)
        order = entry.number if isinstance(entry, View) else None
        return None if order is None else float(order)

    order = order_of(call.op.regions[0], constant) if call.op.regions else None
    if order is None:
        raise _refused(call, "it sorts by something else than one operand's elements")
    by, descending = order
    return call.apply(lambda at: sorted_by(at, by, descending=descending))


CONTROL: Mapping[str, Control] = {
    "call": function,
    "func.call": function,
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
