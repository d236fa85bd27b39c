"""The parts of a kernel's source while it is being written."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.codegen.c.meaning import SHORT_FLOATS
from tilewright.codegen.c.source import Writer
from tilewright.errors import refuse
from tilewright.targets.cpu.instance import Instance

NAME = "@NAME@"
"""Stands for a function's name in its own text, until the name is known."""


class KernelCode:
    """The static functions of one kernel's source; equal ones are shared."""

    def __init__(self) -> None:
        self._functions: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def function(self, stem: str, text: str) -> str:
        """Name of the function with this text (which calls itself ``NAME``)."""
        if text not in self._functions:
            number = self._counts.get(stem, 0)
            self._counts[stem] = number + 1
            self._functions[text] = f"{stem}_{number}" if number else stem
        return self._functions[text]

    def texts(self) -> list[str]:
        """The functions in the order in which they were asked for."""
        return [text.replace(NAME, name) for text, name in self._functions.items()]


Emitter = Callable[[Instance, KernelCode, Writer], None]
"""Writes what computes an instance at the place where its loops stand."""


def call(name: str, arguments: Sequence[str]) -> str:
    """Return the C statement that calls a function."""
    return f"{name}({', '.join(arguments)});"


def parameters(instance: Instance, extra: Sequence[str] = ()) -> str:
    """The parameter list of a function that takes all of an instance's pointers."""
    output = instance.output.pointer
    declared = [
        f"{'' if a.pointer == output else 'const '}{a.c_type} *{a.pointer}"
        for a in instance.addresses
    ]
    return ", ".join([*declared, *extra])


def accumulator(element: str) -> str:
    """C type in which elements are added up."""
    if element == "float32":
        return "float"
    if element == "float64":
        return "double"
    if element in SHORT_FLOATS:
        raise refuse("cpu-operation", f"the cpu target does not compute on {element}")
    return "uint64_t" if element == "uint64" else "int64_t"
