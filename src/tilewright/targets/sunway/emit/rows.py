"""Stages on tiles in LDM as loops over rows: what every operation without a primitive of its own
tile code is computed by.

A *row* runs along the dim that lies innermost in the result. Reductions add to the row in place::

    for (long co = ...) for (long oh = ...) {
        row = bias
        for (long ci = ...) for (long kh = ...) for (long kw = ...)
            row_fma(y + ..., x + ..., step, w[...], n);
        row = relu(row)
    }

Padding is not stored: loops leave out what lies outside of the tensor. Where the operands of a
product lie along the reduction (weights of a fully connected layer), elements are dot products.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tilewright.codegen.c.meaning import element_expression
from tilewright.codegen.c.source import Writer, literal, plus
from tilewright.codegen.nest.span import Span
from tilewright.codegen.nest.value import Value, variable
from tilewright.errors import refuse
from tilewright.ir import SSAValue
from tilewright.ir.types import element_name, tensor_type
from tilewright.numerics.operators import operators
from tilewright.planning.chains.links import renamed_axes
from tilewright.planning.domain import Affine
from tilewright.targets.sunway.emit.operands import Operand
from tilewright.targets.sunway.emit.transfers import Place
from tilewright.tile.dialect import BufferType, StageOp, buffer_of, windows_of

PRODUCTS = operators("product")
POOLS = ("max_pool", "average_pool")
MEANS = ("average_pool", "lrn")
"""Operations that divide or scale their sums once these are complete."""


@dataclass
class Rows:
    """Writes the body of a compute's function."""

    stages: Sequence[StageOp]
    places: Mapping[SSAValue, Place]
    output: Place
    extents: Mapping[str, Span]
    """Every dim of the compute as it is there, by the primitive's names."""
    whole: Mapping[str, int]
    """The extents of the dims."""
    reduction: Sequence[str]
    variables: Mapping[str, Value]
    """The variable of a loop over each dim."""
    names: Mapping[str, str]
    """The primitive's names of the program's dims, where they differ."""
    split: bool
    """True if the reduction has several computes: ``first`` and ``last`` say which this is."""
    writer: Writer = field(default_factory=lambda: Writer(1))

    def __post_init__(self) -> None:
        self.anchor = self.stages[0]
        self.operation = self.anchor.operation.data
        for stage in self.stages:
            for value in (*stage.inputs, stage.result):
                kind = value.type.of if isinstance(value.type, BufferType) else tensor_type(value)
                if element_name(kind.element_type) != "float32":
                    raise refuse("lower-element", f"{stage.operation.data} of other than float32")
        self.result = Operand(self.output, self.window(self.stages[-1], -1, self.output))
        self.row = self._row_dim()
        self.line = self.writer.line

    def _row_dim(self) -> str:
        """The dim along which rows run; "" where they have one element: the result has one, or
        two dims move along its innermost axis (channels of groups)."""
        for axis in reversed(range(len(self.output.shape))):
            dims = self.result.window[axis].dims
            if self.output.shape[axis] > 1:
                return dims[0] if len(dims) == 1 else ""
        return ""

    def operand(self, stage: StageOp, number: int) -> Operand:
        """An operand of a stage that lies in LDM."""
        value = stage.inputs[number]
        if value not in self.places:
            raise refuse("lower-operand", f"{stage.operation.data} reads a value outside tiles")
        place = self.places[value]
        return Operand(place, self.window(stage, number, place))

    def window(self, stage: StageOp, number: int, place: Place) -> tuple[Affine, ...]:
        """A window of a stage by the primitive's names, its axes as they lie in memory."""
        return renamed_axes(place.ordered(windows_of(stage)[number].data), self.names)

    def operands(self) -> list[Operand]:
        """All that lie in LDM, each buffer once, the result last."""
        operands: dict[str, Operand] = {}
        for stage in self.stages:
            for number, value in enumerate(stage.inputs):
                if buffer_of(value) is not None:
                    operand = self.operand(stage, number)
                    operands.setdefault(operand.pointer, operand)
        operands[self.result.pointer] = self.result
        return list(operands.values())

    def write(self) -> list[str]:
        """The lines of the body."""
        if self.operation == "softmax":
            self._softmax()
        elif self.operation in PRODUCTS or self.operation in POOLS or self.operation == "lrn":
            self._reduction()
        elif not self.reduction:
            self._map()
        else:
            raise refuse("lower-operation", f"no loops are written for {self.operation}")
        return self.writer.lines

    def steps(self, body: Sequence[str]) -> list[str]:
        """Declarations of those steps of the operands' axes that a body reads; they depend on the
        tile."""
        read = set(re.findall(r"\w+", "\n".join(body)))
        writer = Writer(1)
        for operand in self.operands():
            names, steps = operand.place.step_names, operand.place.steps(operand.box)
            for name, step in zip(names, steps, strict=True):
                if name in read:
                    writer.line(f"const long {name} = {step};")
        return writer.lines

    # -------------------------------------------------------------- loops

    def open(self, dim: str, *, always: bool = False) -> None:
        """Open a loop over a dim of the tile."""
        extent = self.extents[dim]
        if extent.size == 1 and not always:
            return
        name = self.variables[dim]
        self.line(f"for (long {name} = {extent.start}; {name} < {extent.end}; {name}++) {{")
        self.writer.depth += 1

    def close(self, depth: int) -> None:
        """Close loops down to a depth."""
        while self.writer.depth > depth:
            self.writer.depth -= 1
            self.line("}")

    def indices(self, opened: Sequence[str]) -> dict[str, Value]:
        """Every dim's index within loops over some."""
        return {
            dim: self.variables[dim] if dim in opened and extent.size != 1 else extent.start
            for dim, extent in self.extents.items()
        }

    @property
    def length(self) -> Value:
        """The elements of a row."""
        return self.extents[self.row].size if self.row else 1

    def parallel(self) -> list[str]:
        """The dims of the result, but the row's."""
        return [dim for dim in self.parallel_dims() if dim != self.row]

    def parallel_dims(self) -> list[str]:
        """The dims of the result."""
        return [dim for dim in self.extents if dim not in self.reduction]

    # -------------------------------------------------------------- reductions

    def _reduction(self) -> None:
        with self._rows() as at:
            self._start(at)
            self._accumulate(at)
            self.close(self._inside)
            self._complete(at)

    def begin(self) -> None:
        """Rows of sums before anything is added, for code that adds to all of a tile at once."""
        with self._rows() as at:
            self._start(at)

    def complete(self) -> None:
        """Rows of results from their sums, if anything is left to be done with them."""
        if self.operation in MEANS or len(self.stages) > 1:
            with self._rows() as at:
                self._complete(at)

    @contextmanager
    def loops(self, dims: Sequence[str]) -> Generator[dict[str, Value]]:
        """Loops over dims of the tile, or a block where each has one index; gives all indices."""
        before = self.writer.depth
        for dim in dims:
            self.open(dim)
        if self.writer.depth == before:
            self.line("{")
            self.writer.depth += 1
        self._inside = self.writer.depth
        yield self.indices(dims)
        self.close(before)

    @contextmanager
    def _rows(self) -> Generator[dict[str, Value]]:
        """Loops over the rows of the result; ``y`` points to a row."""
        with self.loops(self.parallel()) as at:
            self.line(f"float *y = {pointer_at(self.result, at)};")
            yield at

    def _start(self, at: Mapping[str, Value]) -> None:
        """Write the loop that initialises the row: with the bias, 0, or minus infinity."""
        value = {"max_pool": "-INFINITY"}.get(self.operation, "0.0f")
        if self.operation in PRODUCTS and len(self.anchor.inputs) > 2:
            bias = self.operand(self.anchor, 2)
            value = f"{bias.pointer}[{self._moved(bias, at)}]"
        with self._when("first"):
            self.line(f"for (long i = 0; i < {self.length}; i++)")
            self.line(f"    y[i] = {value};")

    @contextmanager
    def _when(self, condition: str) -> Generator[None]:
        """Write the next statement under a condition, if tiles cut the sum."""
        if self.split:
            self.line(f"if ({condition})")
        self.writer.depth += self.split
        yield
        self.writer.depth -= self.split

    def _moved(self, operand: Operand, at: Mapping[str, Value]) -> Value:
        """The offset of a row's element ``i``."""
        return operand.offset(at) + variable("i") * self.step(operand)

    def step(self, operand: Operand) -> Value:
        """The elements of an operand from one element of a row to the next."""
        return operand.step(self.row) if self.row else 0

    def _accumulate(self, at: Mapping[str, Value]) -> None:
        operands = [self.operand(self.anchor, 0)]
        if self.operation in PRODUCTS:
            operands.append(self.operand(self.anchor, 1))
        x = operands[0]
        dot = self._dot_dim(operands)
        if dot:
            self._dots(operands, dot, at)
            return
        pending = [(operand, axis) for operand in operands for axis in self.clipped(operand)]
        needed = {dim for operand, axis in pending for dim in operand.window[axis].dims}
        opened = [dim for dim in at if dim not in self.reduction]
        indices = dict(at)
        for dim in self.reduction:
            if self.extents[dim].size != 1 or dim in needed:
                self.open(dim, always=True)
                indices[dim] = self.variables[dim]
            opened.append(dim)
            for operand, axis in list(pending):
                dims = operand.window[axis].dims
                if self.row in dims or not set(dims) <= set(opened):
                    continue
                pending.remove((operand, axis))
                index, size = operand.index(axis, indices), operand.place.shape[axis]
                self.line(f"if ({index} < 0 || {index} >= {size})")
                self.line("    continue;")
        low, count = self._clip_row(pending, indices)
        y = plus("y", str(low))
        rows = {
            operand.pointer: (
                plus(operand.pointer, str(operand.offset(indices) + low * self.step(operand))),
                self.step(operand),
            )
            for operand in operands
        }
        place, step = rows[x.pointer]
        self.line(f"const float *x = {place};")
        if self.operation in PRODUCTS:
            other, its = rows[operands[1].pointer]
            self.line(f"const float *w = {other};")
            if its == 0:
                self.line(f"row_fma({y}, x, {step}, *w, {count});")
            elif step == 0:
                self.line(f"row_fma({y}, w, {its}, *x, {count});")
            else:
                self.line(f"for (long i = 0; i < {count}; i++)")
                xs, ws = (variable("i") * each for each in (step, its))
                self.line(f"    ({y})[i] += x[{xs}] * w[{ws}];")
            return
        function = {"max_pool": "row_max", "lrn": "row_squares"}.get(self.operation, "row_add")
        self.line(f"{function}({y}, x, {step}, {count});")

    def clipped(self, operand: Operand) -> list[int]:
        """The axes along which windows reach beyond the tensor."""
        axes: list[int] = []
        for axis, affine in enumerate(operand.window):
            low, count = affine.interval({d: (0, self.whole[d]) for d in affine.dims})
            if low < 0 or low + count > operand.place.shape[axis]:
                axes.append(axis)
        return axes

    def _clip_row(
        self, pending: Sequence[tuple[Operand, int]], indices: Mapping[str, Value]
    ) -> tuple[Value, Value]:
        """The part of a row whose windows lie in the tensor: its start and length; writes them."""
        if not pending:
            return 0, self.length
        lows, ends = ["0"], [str(self.length)]
        for operand, axis in pending:
            coefficient = dict(operand.window[axis].terms)[self.row]
            base, size = operand.index(axis, indices), operand.place.shape[axis]
            if coefficient < 1:
                raise refuse("lower-operation", f"{self.operation} runs backwards")
            lows.append(f"first_inside({base}, {coefficient})")
            ends.append(f"end_inside({base}, {coefficient}, {size})")
        self.line(f"const long low = {_extreme('MAX', lows)};")
        self.line(f"const long end = {_extreme('MIN', ends)};")
        self.line("if (low >= end)")
        self.line("    continue;")
        low = variable("low")
        return low, variable("end") - low

    def _dot_dim(self, operands: Sequence[Operand]) -> str:
        """The reduction dim along which both factors lie, if the row's elements do not in one."""
        if self.operation not in PRODUCTS:
            return ""
        if self.row and any(operand.innermost(self.row) for operand in operands):
            return ""
        for dim in self.reduction:
            if all(operand.innermost(dim) for operand in operands) and not any(
                self.clipped(operand) for operand in operands
            ):
                return dim
        return ""

    def _dots(self, operands: Sequence[Operand], dot: str, at: Mapping[str, Value]) -> None:
        x, w = operands
        for dim in self.reduction:
            if dim != dot:
                self.open(dim)
        names = self.variables
        indices = {**at, **{dim: names[dim] for dim in self.reduction if dim != dot}}
        for dim in self.reduction:
            if dim != dot and self.extents[dim].size == 1:
                indices[dim] = self.extents[dim].start
        with self.writer.block(f"for (long i = 0; i < {self.length}; i++)"):
            for name, operand in (("x", x), ("w", w)):
                place = plus(operand.pointer, str(self._moved(operand, indices)))
                self.line(f"const float *{name} = {place};")
            self.line(f"y[i] += row_dot(x, w, {self.extents[dot].size});")

    # -------------------------------------------------------------- maps

    def _complete(self, at: Mapping[str, Value]) -> None:
        """From sums to results: means, and the stages after the anchor."""
        if self.operation not in MEANS and len(self.stages) == 1:
            return
        with (
            self._when("last"),
            self.writer.block(f"for (long i = 0; i < {self.length}; i++)"),
        ):
            value = "y[i]"
            if self.operation == "average_pool":
                value = f"y[i] / (float)({self._taps(at)})"
            elif self.operation == "lrn":
                x = self.operand(self.anchor, 0)
                center = Operand(x.place, self.window(self.anchor, -1, x.place))
                parameters = self.anchor.parameters
                scale = literal(float(parameters["alpha"]) / int(parameters["size"]))
                bias, beta = (literal(float(parameters[name])) for name in ("bias", "beta"))
                place = f"{x.pointer}[{self._moved(center, at)}]"
                value = f"{place} / pow_s(y[i] * {scale} + {bias}, {beta})"
            self.line(f"const float t0 = {value};")
            self.line(f"y[i] = {self.chain(at)};")

    def _taps(self, at: Mapping[str, Value]) -> str:
        """C of the elements that a mean divides by."""
        x = self.operand(self.anchor, 0)
        counted = tuple(self.anchor.parameters.get("counted", (0, 0, 0, 0)))
        factors: list[str] = []
        for number, (axis, dim) in enumerate(((2, "kh"), (3, "kw"))):
            place = x.place.order.index(axis)
            affine, size = x.window[place], x.place.shape[place]
            low, end = -counted[number], size + counted[2 + number]
            first, count = affine.interval({d: (0, self.whole[d]) for d in affine.dims})
            if first >= low and first + count <= end:
                factors.append(str(self.whole[dim]))
                continue
            rest = Affine(tuple(t for t in affine.terms if t[0] != dim), affine.offset)
            base = sum((at[d] * c for d, c in rest.terms), rest.offset)
            base += variable("i") * dict(rest.terms).get(self.row, 0)
            step = dict(affine.terms)[dim]
            factors.append(f"taps({base}, {step}, {self.whole[dim]}, {low}, {end})")
        return " * ".join(factors)

    def chain(self, at: Mapping[str, Value]) -> str:
        """C of the last stage's value of a row's element, ``t0`` being the anchor's."""
        names: dict[SSAValue, str] = {self.anchor.result: "t0"}
        for number, stage in enumerate(self.stages[1:], 1):
            arguments = [
                names[value] if value in names else f"{self._loaded(stage, place, at)}"
                for place, value in enumerate(stage.inputs)
            ]
            text = _expression(stage, arguments)
            name = f"t{number}"
            self.line(f"const float {name} = {text};")
            names[stage.result] = name
        return names[self.stages[-1].result]

    def _loaded(self, stage: StageOp, number: int, at: Mapping[str, Value]) -> str:
        operand = self.operand(stage, number)
        return f"{operand.pointer}[{self._moved(operand, at)}]"

    def _map(self) -> None:
        with (
            self._rows() as at,
            self.writer.block(f"for (long i = 0; i < {self.length}; i++)"),
        ):
            arguments = [
                self._loaded(self.anchor, number, at) for number in range(len(self.anchor.inputs))
            ]
            self.line(f"const float t0 = {_expression(self.anchor, arguments)};")
            self.line(f"y[i] = {self.chain(at)};")

    def _softmax(self) -> None:
        x, axis = self.operand(self.anchor, 0), "axis"
        source, target = (
            f"{name}[{variable('i') * operand.step(axis)}]"
            for name, operand in (("x", x), ("y", self.result))
        )
        each = f"for (long i = 0; i < {self.extents[axis].size}; i++)"
        with self.loops([dim for dim in self.extents if dim != axis]) as at:
            self.line(f"const float *x = {pointer_at(x, at)};")
            self.line(f"float *y = {pointer_at(self.result, at)};")
            self.line("float most = -INFINITY, sum = 0.0f;")
            self.line(each)
            self.line(f"    most = {source} > most ? {source} : most;")
            with self.writer.block(each):
                self.line(f"{target} = exp_s({source} - most);")
                self.line(f"sum += {target};")
            # The later stages see the row along the axis.
            self.row = axis
            with self.writer.block(each):
                self.line(f"const float t0 = {target} / sum;")
                self.line(f"{target} = {self.chain(at)};")


def _expression(stage: StageOp, arguments: list[str]) -> str:
    elements = ["float32"] * len(arguments)
    return element_expression(
        stage.operation.data, arguments, stage.parameters, elements, "float32"
    )


def pointer_at(operand: Operand, at: Mapping[str, Value]) -> str:
    """C of a pointer to the element of an operand at indices."""
    return plus(operand.pointer, str(operand.offset(at)))


def _extreme(name: str, values: Sequence[str]) -> str:
    text = values[0]
    for value in values[1:]:
        text = f"{name}({text}, {value})"
    return text
