"""HIVM text, line by line: constants, allocations and views of memories, with their types."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod

from tilewright.codegen.nest.value import Expr, Value, linear, variable
from tilewright.graph.names import identifier

ARITHMETIC = {"*": "muli", "/": "floordivsi", "%": "remsi", "min": "minsi", "max": "maxsi"}
"""The operations of dialect ``arith`` that compute what values are not sums."""

ELEMENTS = {"float16": "f16", "float32": "f32"}
"""Element type -> its name in MLIR, of those that kernels here compute on."""


@dataclass(frozen=True)
class View:
    """A strided box of a memory: a ``memref``."""

    name: str
    sizes: tuple[Value, ...]
    strides: tuple[int, ...]
    """Elements from one index of an axis to the next."""
    element: str
    space: str
    """``gm``, ``cbuf``, ``cc`` or ``ub``."""
    layout: str = ""
    """The part of its type that states strides and offset: empty for memory that is dense from its
    start."""
    offset: int | str = 0
    """Elements from the memory's start; "?" where that is no number."""

    @property
    def type(self) -> str:
        """The memref type of the view."""
        shape = "x".join(str(n) if isinstance(n, int) else "?" for n in self.sizes)
        return f"memref<{shape}x{self.element}{self.layout}, #hivm.address_space<{self.space}>>"


def dense(sizes: Sequence[int]) -> tuple[int, ...]:
    """Strides of a dense box."""
    return tuple(prod(sizes[axis + 1 :]) for axis in range(len(sizes)))


def strided(strides: Sequence[int], offset: int | str = 0) -> str:
    """Return the part of a type that states strides and an offset."""
    end = f", offset: {offset}" if offset else ""
    return f", strided<[{', '.join(map(str, strides))}]{end}>"


@dataclass
class Text:
    """The body of a function on its way; constants are collected for its first lines."""

    lines: list[str] = field(default_factory=list[str])
    constants: dict[str, str] = field(default_factory=dict[str, str])
    """Definition of a constant -> its name."""
    variables: dict[str, str] = field(default_factory=dict[str, str])
    """Variable -> the value that it stands for, where that has another name."""
    taken: set[str] = field(default_factory=set[str])
    blocks: list[dict[str, str]] = field(default_factory=lambda: [{}])
    """For each enclosing block, the values that are defined in it, by definition."""

    def line(self, text: str) -> None:
        """A line at the current depth."""
        self.lines.append("  " * (len(self.blocks) + 1) + text)

    def instruction(
        self, name: str, inputs: Sequence[View | str], target: View, end: str = ""
    ) -> None:
        """An instruction with inputs and a target; a string is a constant of its precision."""
        names = ", ".join(each if isinstance(each, str) else each.name for each in inputs)
        types = ", ".join(target.element if isinstance(each, str) else each.type for each in inputs)
        self.line(
            f"hivm.hir.{name} ins({names} : {types}) outs({target.name} : {target.type}){end}"
        )

    def product(
        self,
        operands: Sequence[View],
        first: str,
        sizes: Sequence[str],
        target: View,
        attributes: str = "",
    ) -> None:
        """A product of the first two operands, plus a bias if there is a third, of ``sizes``: rows,
        summed elements and columns; sums begin where ``first`` holds."""
        left, right, *bias = operands
        names = [left.name, right.name, first, *sizes, *(each.name for each in bias)]
        types = [left.type, right.type, "i1", *["index"] * 3, *(each.type for each in bias)]
        self.line(
            f"hivm.hir.mmadL1{attributes} ins({', '.join(names)} : {', '.join(types)}) "
            f"outs({target.name} : {target.type})"
        )

    def enter(self, head: str) -> None:
        """Begin a block with a head line."""
        self.line(f"{head} {{")
        self.blocks.append({})

    def leave(self) -> None:
        """End the block that was started last."""
        self.blocks.pop()
        self.line("}")

    @contextmanager
    def loop(self, hint: str, first: Value, end: Value) -> Generator[Value]:
        """A block for each index from ``first`` to ``end``; none around where there is one."""
        if isinstance(first, int) and isinstance(end, int) and end - first == 1:
            yield first
            return
        bounds = [self.index(number) for number in (first, end, 1)]
        name = self.name(hint)
        self.enter(f"scf.for {name} = {bounds[0]} to {bounds[1]} step {bounds[2]}")
        yield variable(name)
        self.leave()

    @contextmanager
    def if_positive(self, number: Value) -> Generator[None]:
        """A block for where a number is above 0; none around where that is known."""
        if isinstance(number, int):
            assert number > 0
            yield
            return
        holds = self.once("some", f"arith.cmpi sgt, {self.index(number)}, {self.index(0)} : index")
        self.enter(f"scf.if {holds}")
        yield
        self.leave()

    def name(self, hint: str) -> str:
        """A name of a value that no other has."""
        base = identifier(hint, "v")
        name, number = base, 0
        while name in self.taken:
            number += 1
            name = f"{base}_{number}"
        self.taken.add(name)
        return f"%{name}"

    def value(self, hint: str, definition: str) -> str:
        """A value, defined here."""
        name = self.name(hint)
        self.line(f"{name} = {definition}")
        return name

    def once(self, hint: str, definition: str) -> str:
        """A value that only depends on what its definition names: defined here, if no block around
        has it."""
        for block in self.blocks:
            if definition in block:
                return block[definition]
        name = self.blocks[-1][definition] = self.value(hint, definition)
        return name

    def named(self, name: str, value: Value) -> None:
        """Compute a value here, once, for the variable of this name."""
        self.variables[name] = self.index(value)

    def constant(self, hint: str, definition: str) -> str:
        """A constant, defined once for the function."""
        definition = f"arith.constant {definition}"
        if definition not in self.constants:
            self.constants[definition] = self.name(hint)
        return self.constants[definition]

    def first(self, places: Sequence[Value]) -> str:
        """Return the value that is true where all of some indices are 0."""
        holds = ""
        for place in places:
            if place == 0:
                continue
            ends = f"{self.index(place)}, {self.index(0)}"
            is_zero = self.once("first", f"arith.cmpi eq, {ends} : index")
            holds = self.once("first", f"arith.andi {holds}, {is_zero} : i1") if holds else is_zero
        return holds or self.constant("all", "true")

    def index(self, value: Value) -> str:
        """The name of a value of type index: a constant, a variable, or computed by ``arith``."""
        terms, constant = linear(value)
        total = "" if terms and (terms[0][1] > 0 or not constant) else self._constant(constant)
        for term, factor in terms:
            sign = "subi" if factor == -1 and total else "addi"
            part = self._term(term)
            if factor != 1 and sign == "addi":
                part = self._binary("muli", part, self._constant(factor))
            total = self._binary(sign, total, part) if total else part
        if constant and terms and terms[0][1] > 0:
            total = self._binary("addi", total, self._constant(constant))
        return total

    def _term(self, term: Expr) -> str:
        if term.operation is None:
            return self.variables.get(term.text, term.text)
        name, left, right = term.operation
        return self._binary(ARITHMETIC[name], self.index(left), self.index(right))

    def _constant(self, number: int) -> str:
        return self.constant(f"c{number}", f"{number} : index")

    def _binary(self, name: str, left: str, right: str) -> str:
        return self.once("n", f"arith.{name} {left}, {right} : index")

    def number(self, value: float, element: str) -> str:
        """Return a floating-point constant of an element type."""
        return self.constant("cst", f"{value:.9e} : {element}")

    def allocated(
        self, hint: str, sizes: Sequence[int], element: str, space: str, slots: int = 1
    ) -> View:
        """Memory on the chip; with several slots, iterations of the loop take turns at them."""
        view = View("", tuple(sizes), dense(sizes), element, space)
        name = self.value(hint, f"memref.alloc() : {view.type}")
        if slots > 1:
            self.line(f"annotation.mark {name} {{hivm.multi_buffer = {slots} : i32}} : {view.type}")
        return replace(view, name=name)

    def part(
        self,
        of: View,
        starts: Sequence[Value],
        sizes: Sequence[Value],
        kept: Sequence[int] | None = None,
        steps: Sequence[int] = (),
    ) -> View:
        """A box of a view, or every n-th index of it (``steps``); axes that are not ``kept``, which
        have one index, are left out."""
        steps = steps or [1] * len(sizes)
        whole = kept is None or len(kept) == len(sizes)
        if whole and tuple(sizes) == of.sizes and not any(starts) and set(steps) == {1}:
            return of
        axes = range(len(sizes)) if kept is None else kept
        strides = tuple(of.strides[axis] * steps[axis] for axis in axes)
        offset = of.offset
        for start, stride in zip(starts, of.strides, strict=True):
            if isinstance(offset, int) and isinstance(start, int):
                offset += start * stride
            else:
                offset = "?"
        boxed = tuple(sizes[axis] for axis in axes)
        layout = strided(strides, offset)
        view = View("", boxed, strides, of.element, of.space, layout, offset)
        boxes = (starts, sizes, steps)
        listed = " ".join(f"[{', '.join(map(self._size, box))}]" for box in boxes)
        definition = f"memref.subview {of.name}{listed} : {of.type} to {view.type}"
        return replace(view, name=self.once(f"{of.name[1:]}_tile", definition))

    def _size(self, value: Value) -> str:
        """A number as it stands, or the name of a value."""
        return str(value) if isinstance(value, int) else self.index(value)

    def laid(self, of: View, offset: Value, sizes: Sequence[int]) -> View:
        """Elements of a dense view from an offset on, as a dense box."""
        strides = dense(sizes)
        place = offset if isinstance(offset, int) else "?"
        layout = strided(strides, place)
        view = View("", tuple(sizes), strides, of.element, of.space, layout, place)
        definition = (
            f"memref.reinterpret_cast {of.name} to offset: [{self._size(offset)}], "
            f"sizes: {list(sizes)}, strides: {list(strides)} : {of.type} to {view.type}"
        )
        return replace(view, name=self.once(f"{of.name[1:]}_at", definition))

    def turned(self, of: View, order: Sequence[int]) -> View:
        """A view with its axes in another order."""
        if list(order) == sorted(order):
            return of
        strides = tuple(of.strides[axis] for axis in order)
        sizes, layout = tuple(of.sizes[axis] for axis in order), strided(strides, of.offset)
        view = View("", sizes, strides, of.element, of.space, layout, of.offset)
        names = [f"a{axis}" for axis in range(len(order))]
        turned = ", ".join(names[axis] for axis in order)
        definition = f"memref.transpose {of.name} ({', '.join(names)}) -> ({turned})"
        definition += f" : {of.type} to {view.type}"
        return replace(view, name=self.once(f"{of.name[1:]}_turned", definition))
