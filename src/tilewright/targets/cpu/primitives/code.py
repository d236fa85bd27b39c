"""The parts of a kernel's source while it is being written."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager

from tilewright.codegen.c.address import Address
from tilewright.codegen.c.meaning import SHORT_FLOATS
from tilewright.codegen.c.source import Writer
from tilewright.errors import refuse
from tilewright.numerics.codes import FORMATS
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


@contextmanager
def function(remark: str, parameters: str, kind: str = "static void") -> Generator[Writer]:
    """Write a function, under the name ``NAME``, around what is written in the meantime."""
    writer = Writer()
    writer.line(f"/* {remark} */")
    writer.line(f"{kind} {NAME}({parameters})")
    with writer.block():
        yield writer


def call(name: str, arguments: Sequence[str]) -> str:
    """Return the C statement that calls a function."""
    return f"{name}({', '.join(arguments)});"


def write_call(
    instance: Instance,
    code: KernelCode,
    writer: Writer,
    stem: str,
    text: object,
    more: Sequence[str] = (),
) -> None:
    """Write the call of a function with this text, which takes all of an instance's pointers, and
    ``more`` arguments."""
    arguments = [*(a.first(instance.dims) for a in instance.addresses), *more]
    writer.line(call(code.function(stem, str(text)), arguments))


@contextmanager
def loops(writer: Writer, counts: Iterable[tuple[str, int | str]]) -> Generator[None]:
    """Write loops within one another, outermost first: C variables with their counts."""
    with ExitStack() as nest:
        for name, count in counts:
            head = f"for (long {name} = 0; {name} < {count}; {name}++)"
            nest.enter_context(writer.block(head))
        yield


def write_vectors(
    writer: Writer,
    count: int,
    lanes: int,
    body: Callable[[str, int], None],
    step: int = 1,
    name: str = "i",
) -> None:
    """Write a loop over the whole vectors of ``count`` elements, and a block for the rest.

    ``body`` is given the number of the vector (of its first element if ``step`` is ``lanes``), and
    how many lanes are there.
    """
    full, rest = divmod(count, lanes)
    advance = f"{name}++" if step == 1 else f"{name} += {step}"
    if full:
        with writer.block(f"for (long {name} = 0; {name} < {full * step}; {advance})"):
            body(name, lanes)
    if rest:
        with writer.block():
            body(str(full * step), rest)


def parameters(
    instance: Instance, extra: Sequence[str] = (), addresses: Sequence[Address] | None = None
) -> str:
    """The parameter list of a function that takes an instance's pointers, all by default."""
    listed = instance.addresses if addresses is None else addresses
    declared = [instance.declared(address, address.pointer) for address in listed]
    return ", ".join([*declared, *extra])


def accumulator(element: str) -> str:
    """C type in which elements are added up."""
    if element == "float32":
        return "float"
    if element == "float64":
        return "double"
    if element in SHORT_FLOATS or element in FORMATS:
        raise refuse("cpu-operation", f"the cpu target does not compute on {element}")
    return "uint64_t" if element == "uint64" else "int64_t"
