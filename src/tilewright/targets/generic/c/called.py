"""Functions of one float in C for the host, from their definitions (numerics/operators.py)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tilewright.codegen.c.source import Writer
from tilewright.numerics.operators import FUNCTIONS

_CLIP = """\
static double clip_d(double a, double low, double high) {
    return a < low ? low : a > high ? high : a;
}
"""
"""C that a definition may call although it is no function of one number."""


def called(function: str) -> str:
    """The name in C of a function of one float and two parameters."""
    return f"function_{function}"


def called_text(functions: Iterable[str]) -> str:
    """The definitions of functions, computed in double precision and rounded once."""
    asked = frozenset(functions)
    needed = _needed(asked)
    writer = Writer()
    if "clip" in needed:
        writer.text(_CLIP)
    for name, function in FUNCTIONS.items():
        if name not in needed:
            continue
        parameters = "".join(f", double {parameter}" for parameter in function.parameters)
        with writer.block(f"static double {name}_d(double a{parameters})"):
            writer.line(f"return {_expression(name)};")
        writer.line()
        if name in asked:
            _rounded(writer, name)
    return str(writer)


def _rounded(writer: Writer, name: str) -> None:
    given = tuple(FUNCTIONS[name].parameters)
    with writer.block(f"static float {called(name)}(float a, float alpha, float beta)"):
        for parameter in ("alpha", "beta"):
            if parameter not in given:
                writer.line(f"(void){parameter};")
        writer.line(f"return (float){name}_d({', '.join(['a', *given])});")
    writer.line()


def _expression(name: str) -> str:
    text = FUNCTIONS[name].c.replace("##S", "d").replace("(T)", "")
    return re.sub(r"F\((\w+)\)", r"\1", text)


def _needed(functions: Iterable[str]) -> frozenset[str]:
    """Functions, and those that their definitions call."""
    needed: set[str] = set()
    waiting = list(functions)
    while waiting:
        name = waiting.pop()
        if name in needed:
            continue
        needed.add(name)
        if name in FUNCTIONS:
            waiting += re.findall(r"(\w+)_##S", FUNCTIONS[name].c)
    return frozenset(needed)
