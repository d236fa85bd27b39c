"""From a tile program to a C function: loops become ``for``, computes call their primitives."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import Any, cast

from tilewright.codegen.c.address import Address, Extent
from tilewright.codegen.c.parameters import Parameter
from tilewright.codegen.c.source import Writer
from tilewright.codegen.host.calls import KernelCall, KernelSource
from tilewright.codegen.nest.value import Value, variable
from tilewright.codegen.program.interface import CompiledKernel
from tilewright.errors import refuse
from tilewright.ir import Block, ModuleOp, Operation, SSAValue
from tilewright.ir.types import (
    element_dtype,
    element_name,
    fraction_of,
    layout_of,
    shape_of,
    tensor_type,
)
from tilewright.planning.layout import Layout
from tilewright.targets.cpu.instance import Around, Instance, Step
from tilewright.targets.cpu.primitives import EMITTERS, attention, product
from tilewright.targets.cpu.primitives.code import KernelCode
from tilewright.tile.dialect import (
    ComputeOp,
    LoopOp,
    ProgramOp,
    StageOp,
    TensorOp,
    programs_of,
    windows_of,
)

_LETTERS = {
    "input": "x",
    "weight": "w",
    "bias": "b",
    "residual": "r",
    "scratch": "s",
    "output": "y",
}


def kernel_source(
    module: ModuleOp, lanes: int, ends: Mapping[str, str] | None = None
) -> KernelSource:
    """The C of a module's one tile program; ``lanes`` is the width of a vector, ``ends`` C of the
    sizes of a run at which dims end."""
    programs = [op for op in module.walk() if isinstance(op, ProgramOp)]
    if len(programs) != 1:
        raise refuse("cpu-program", f"expected one tile.program, found {len(programs)}")
    return _Walk(programs[0], lanes, ends or {}).source()


def call_of(
    kernel: CompiledKernel, lanes: int, ends: Mapping[str, str] | None = None
) -> KernelCall:
    """Return the call of a kernel that has a tile program; see ``kernel_source``.

    Raises TilewrightError.
    """
    if kernel.program is None:
        raise refuse("cpu-program", "has no tile program", kernel.kernel.symbol)
    source = kernel_source(kernel.program, lanes, ends)
    tensors = programs_of(kernel.program)[0].tensors
    places = {
        name: (op.arena.data, op.offset.value.data)
        for name, op in tensors.items()
        if op.arena is not None and op.offset is not None
    }
    scratch = {name: _bytes(op) for name, op in tensors.items() if op.role.data == "scratch"}
    return KernelCall(kernel, source, places, scratch)


def _smaller(size: int, unit: int) -> list[int]:
    """A size and smaller ones, multiples of ``unit``: up to 8 of them all, above that each two
    thirds of the one before."""
    sizes = [size]
    while sizes[-1] > unit:
        count = -(-sizes[-1] // unit)
        sizes.append((count - 1 if count <= 8 else -(-2 * count // 3)) * unit)
    return sizes


def _bytes(op: TensorOp) -> int:
    element = element_dtype(tensor_type(op.result).element_type)
    return prod(shape_of(op.result)) * element.itemsize


class _Walk:
    def __init__(self, program: ProgramOp, lanes: int, ends: Mapping[str, str]) -> None:
        self.program = program
        self.ends = ends
        self.lanes = lanes
        self.code = KernelCode()
        self.writer = Writer()
        self.operation = ""
        self.shared = None if program.shared is None else program.shared.data
        self.divided = False  # whether the loop that the cores share is open
        self.fills_scratch = self._fills_scratch()
        self.loops: list[Around] = []
        self.pointers: dict[str, str] = {}
        counts: dict[str, int] = {}
        for name, tensor in program.tensors.items():
            letter = _LETTERS[tensor.role.data]
            counts[letter] = counts.get(letter, 0) + 1
            self.pointers[name] = letter + (str(counts[letter]) if counts[letter] > 1 else "")

    def _fills_scratch(self) -> bool:
        """Return True if each core fills its scratch at its first iteration of the shared loop.

        What is made of the input is used again by all iterations that have the same input.
        """
        if all(tensor.role.data != "scratch" for tensor in self.program.tensors.values()):
            return False
        anchors = [op.stages[0] for op in self.program.walk() if isinstance(op, ComputeOp)]
        windows = [axis for stage in anchors for axis in windows_of(stage)[0].data]
        return all(self.shared not in axis.dims for axis in windows)

    def source(self) -> KernelSource:
        extents = self.program.extents
        dims = {name: Extent(0, extent) for name, extent in extents.items()}
        with self.writer.block():
            self.block(self.program.body.block, dims)
        arguments = tuple(
            Parameter(
                name,
                self.pointers[name],
                self.address(op.result, (), name).c_type,
                op.role.data in ("output", "scratch"),
            )
            for name, op in self.program.tensors.items()
        )
        return KernelSource(
            tuple(self.code.texts()),
            str(self.writer),
            arguments,
            self.operation,
            self.shared is not None,
            tuple(size for size in sorted({*self.ends.values()}) if size in str(self.writer)),
        )

    def block(self, block: Block, dims: Mapping[str, Extent]) -> None:
        for op in block.ops:
            self.operation_of(op, dims)

    def fresh(self, name: str) -> str:
        """A name for a loop's variable that no enclosing loop has."""
        taken = {around.variable for around in self.loops}
        variable, number = name, 2
        while variable in taken:
            variable, number = f"{name}{number}", number + 1
        return variable

    def operation_of(self, op: Operation, dims: Mapping[str, Extent]) -> None:
        match op:
            case TensorOp():
                return
            case LoopOp():
                self.loop(op, dims)
            case ComputeOp():
                instance = self.instance(op, dims)
                self.operation = self.operation or instance.anchor.operation
                if self.shared is None or self.divided:
                    self.compute(instance)
                    return
                with self.writer.block("if (part == 0)"):
                    self.compute(instance)
            case _:
                raise refuse(
                    "cpu-program",
                    f"{op.name}: every operand of the cpu target stays in main memory",
                    self.program.symbol.data,
                )

    def compute(self, instance: Instance) -> None:
        """Call a primitive; where a tile may end early in a run, one for as many indices as are
        left of it, or a few more."""
        emit = EMITTERS[instance.primitive]
        ended = [dim for dim in instance.dims if dim in self.ends and instance.size(dim) > 1]
        dim = next((dim for dim in ended if dim not in instance.reduction), "")
        # Queries of attention lie in the lanes of vectors.
        unit = 1 if emit is product.emit else self.lanes if emit is attention.emit else 0
        if not unit or instance.size(dim) <= unit:
            emit(instance, self.code, self.writer)
            return
        extent = instance.dims[dim]
        sizes = _smaller(extent.size, unit)
        for size, next_one in zip(sizes, [*sizes[1:], 0], strict=True):
            left = f"{variable(self.ends[dim]) - extent.start} > {next_one}"
            head = f"{'' if size == sizes[0] else 'else '}if ({left})" if next_one else "else"
            dims = {**instance.dims, dim: replace(extent, size=size)}
            with self.writer.block(head):
                emit(replace(instance, dims=dims), self.code, self.writer)

    def loop(self, op: LoopOp, dims: Mapping[str, Extent]) -> None:
        name, outer = op.dim.data, dims[op.dim.data]
        lower, step = op.lower.value.data, op.step.value.data
        upper = min(op.upper.value.data, outer.size)
        if upper <= lower:
            return
        if (upper - lower) % step:
            raise refuse(
                "cpu-program",
                f"the loop over {name} ends in a smaller tile; run the boundary pass first",
                self.program.symbol.data,
            )
        starts = tuple(sorted({s + i for s in outer.starts for i in range(lower, upper, step)}))
        if name == self.shared and not self.divided:
            self.divided = True
            self.divide(op, name, Extent(0, step, starts), dims)
            self.divided = False
            return
        if upper - lower == step:
            start = outer.start + lower
            with self.before_end(name, start, lower):
                self.block(op.body.block, {**dims, name: Extent(start, step, starts)})
            return
        around = Around(name, self.fresh(name), outer.start + lower, step, (upper - lower) // step)
        extent = Extent(variable(around.variable), step, starts)
        end = outer.start + upper
        if name in self.ends:
            end = self.end_of(name, end)
        self.inside(around, around.first, end, op, {**dims, name: extent})

    def end_of(self, name: str, end: Value) -> Value:
        """The end of a loop over a dim that ends early in a run: ``end`` at the latest."""
        size = self.ends[name]
        return variable(f"({size} < {end} ? {size} : {end})")

    @contextmanager
    def before_end(self, name: str, start: object, lower: int) -> Generator[None]:
        """Write what is computed only where a tile of a dim begins before the dim's end; the first
        tile of a loop does."""
        if name not in self.ends or not lower:
            yield
            return
        with self.writer.block(f"if ({start} < {self.ends[name]})"):
            yield

    def inside(
        self,
        around: Around,
        first: object,
        end: object,
        op: LoopOp,
        dims: Mapping[str, Extent],
    ) -> None:
        """Write a loop of C from the C of ``first`` to that of ``end``, with its body."""
        name = around.variable
        self.loops.append(around)
        with self.writer.block(
            f"for (long {name} = {first}; {name} < {end}; {name} += {around.step})"
        ):
            self.block(op.body.block, dims)
        self.loops.pop()

    def divide(self, op: LoopOp, name: str, each: Extent, dims: Mapping[str, Extent]) -> None:
        """The outermost loop over the shared dim: every core takes a run of its iterations.

        The tile at the edge, a loop of its own after this one, counts as one more iteration. It
        is the last core's, which has one before it where cores fill scratch at their first.
        """
        lower, step, trips = op.lower.value.data, each.size, len(each.starts)
        edge = not self.fills_scratch and any(
            isinstance(other, LoopOp) and other.dim == op.dim and other.lower.value.data > lower
            for other in cast("Block", op.parent).ops
        )
        if trips == 1:
            first = "2 * part / parts == 0 && 2 * (part + 1) / parts > 0"
            condition = first if edge else "part == parts - 1"
            with (
                self.writer.block(f"if ({condition})"),
                self.before_end(name, lower, lower),
            ):
                self.block(op.body.block, {**dims, name: replace(each, start=lower)})
            return
        start = f"{lower} + " if lower else ""
        count, last = str(trips + edge), str(lower + trips * step)
        if name in self.ends:
            # Cores share the iterations that begin before the dim's end.
            end = self.end_of(name, lower + trips * step)
            count = f"({(end + (step - 1 - lower)) // step}{' + 1' if edge else ''})"
            last = str(end)
        first, end = (
            f"{start}{count} * {part} / parts * {step}" for part in ("part", "(part + 1)")
        )
        if edge:
            end = f"(part + 1 < parts ? {end} : {last})"
        # Told from the loop's start, not the core's: cores share what is fetched ahead, too.
        around = Around(name, self.fresh(name), lower, step, trips)
        moved = replace(each, start=variable(around.variable), first=variable(first))
        self.inside(around, first, end, op, {**dims, name: moved})

    def instance(self, op: ComputeOp, dims: Mapping[str, Extent]) -> Instance:
        stages = op.stages
        numbers: dict[SSAValue, int] = {}
        steps: list[Step] = []
        for stage in stages:
            steps.append(self.step(stage, numbers))
            numbers[stage.result] = len(steps) - 1
        output = self.address(op.output, windows_of(stages[-1])[-1].data)
        return Instance(
            op.primitive.data,
            tuple(steps),
            output,
            dims,
            self.program.extents,
            tuple(str(name) for name in self.program.get("reduction", ())),
            self.lanes,
            {str(key): value for key, value in op.get("options", ())},
            tuple(self.loops),
            self.ends,
        )

    def step(self, stage: StageOp, numbers: Mapping[SSAValue, int]) -> Step:
        windows = [window.data for window in windows_of(stage)]
        inputs = tuple(
            numbers[value] if value in numbers else self.address(value, window)
            for value, window in zip(stage.inputs, windows, strict=False)
        )
        pairs = cast("tuple[tuple[str, Any], ...]", stage.get("parameters", ()))
        return Step(
            stage.operation.data,
            inputs,
            {str(key): value for key, value in pairs},
            self.address(stage.result, windows[-1], ""),
            (*(fraction_of(value) for value in stage.inputs), fraction_of(stage.result)),
            stage.node.data if stage.node is not None else "",
        )

    def address(self, value: SSAValue, window: Any, name: str | None = None) -> Address:
        """The address of a tensor; of a value that is never stored, with a dense placement."""
        shape = shape_of(value)
        layout = Layout.parse(layout_of(value), len(shape))
        owner = value.owner
        strides: tuple[int, ...] = ()
        if isinstance(owner, TensorOp):
            strides = tuple(owner.get("strides", ()))
            name = owner.symbol.data
        elif name is None:
            raise refuse(
                "cpu-program",
                "an operand is neither a tensor nor a stage's value",
                self.program.symbol.data,
            )
        return Address(
            self.pointers.get(name, "?"),
            element_name(tensor_type(value).element_type),
            shape,
            tuple(window),
            layout,
            strides or layout.strides(shape),
        )
