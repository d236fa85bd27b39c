"""The functions inside reductions and sorts, recognised by their text.

A body is written as a term over its arguments ``a0``, ``a1``, ...; it is known if the term is.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.frontends.stablehlo.program import Block, Dense

MAX_BODY = 24
"""The most operations of a body that is analysed."""

MAX_TERM = 2000
"""The most characters of a term; one that uses its parts again and again grows fast."""

FOLDS = {
    "add": "add",
    "multiply": "mul",
    "maximum": "max",
    "minimum": "min",
    "and": "and",
    "or": "or",
}
"""Operations that fold two elements, and what the fold is called."""

_FOLD_OF = {
    f"{name}({operands})": fold for name, fold in FOLDS.items() for operands in ("a0,a1", "a1,a0")
}

Constants = Callable[[int], float | None]
"""The number that a value from outside of the body is; None if it is not known."""


def terms_of(block: Block, constants: Constants = lambda _: None) -> list[str]:
    """A term for each value that a body returns; empty if it is too long to be a known one."""
    terms = {number: f"a{index}" for index, number in enumerate(block.arguments)}

    def term(number: int) -> str:
        if number not in terms:
            value = constants(number)
            terms[number] = "?" if value is None else repr(float(value))
        return terms[number]

    if not 1 <= len(block.operations) <= MAX_BODY:
        return []
    for op in block.operations:
        name = op.name.removeprefix("stablehlo.")
        if name == "return":
            return [term(number) for number in op.operands]
        value = op.attributes.get("value")
        if name == "constant" and isinstance(value, Dense) and value.array.size == 1:
            terms[op.results[0]] = repr(float(value.array.reshape(())))
            continue
        if name == "compare":
            name = str(op.attributes.get("comparison_direction", "?"))
        text = f"{name}({','.join(term(number) for number in op.operands)})"
        if len(op.results) != 1 or len(text) > MAX_TERM:
            return []
        terms[op.results[0]] = text
    return []


def fold_of(block: Block) -> str | None:
    """``add``, ``mul``, ``max``, ``min``, ``and`` or ``or`` if the body is that of two elements."""
    terms = terms_of(block)
    return _FOLD_OF.get(terms[0]) if len(terms) == 1 and len(block.arguments) == 2 else None


def place_of(block: Block) -> str | None:
    """``max`` or ``min`` if the body keeps the first extreme of a pair (element, place)."""
    terms = terms_of(block)
    for fold, relation in (("max", "GT"), ("min", "LT")):
        better = f"or({relation}(a0,a2),NE(a0,a0))"
        first = f"or({better},and(EQ(a0,a2),LT(a1,a3)))"
        if terms == [f"select({better},a0,a2)", f"select({first},a1,a3)"]:
            return fold
    return None


def order_of(block: Block, constants: Constants) -> tuple[int, bool] | None:
    """The operand by which a body sorts, and whether downwards; None if it is no plain order."""
    terms = terms_of(block, constants)
    for index in range(len(block.arguments) // 2):
        left, right = (_canonical(f"a{2 * index + side}") for side in (0, 1))
        for relation, descending in (("LT", False), ("GT", True)):
            plain = f"{relation}(a{2 * index},a{2 * index + 1})"
            if terms in ([plain], [f"{relation}({left},{right})"]):
                return index, descending
    return None


def _canonical(x: str) -> str:
    """Return JAX's expression that makes all zeros one zero, and all NaN one NaN."""
    return f"select(NE({x},{x}),nan,select(EQ({x},0.0),0.0,{x}))"
