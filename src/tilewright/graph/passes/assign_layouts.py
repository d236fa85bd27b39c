"""assign-layouts: how every tensor lies in memory, with as few conversions as there can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.graph.dialect import KernelOp, NetworkOp, WeightOp, network_of
from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import compiler, erase, insert, make
from tilewright.graph.passes.enclosing import symbols_of
from tilewright.graph.passes.insertion import insert_kernel, objected
from tilewright.graph.passes.layout_choices import Choice, choices_of, operand_uses
from tilewright.graph.passes.strides import size
from tilewright.ir import (
    Attribute,
    Context,
    ModuleOp,
    ModulePass,
    Rewriter,
    SSAValue,
)
from tilewright.ir import Operation as AnyOperation
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import (
    element_size,
    layout_of,
    shape_of,
    tensor,
    tensor_type,
)
from tilewright.machine import Machine
from tilewright.planning import Planner


@dataclass(frozen=True)
class AssignLayouts(ModulePass):
    """Give every tensor the layout that the primitives take, and convert where they differ.

    Before::

        %1 = graph.kernel "k0" (%x, %w) : (tensor<1x3x8x8xf32>, tensor<32x3x3x3xf32>) -> ...
        %2 = graph.max_pool ...

    After::

        %1 = graph.kernel "k0" (%x, %w) : (tensor<1x3x8x8xf32>, tensor<32x3x3x3xf32,
             "OIHW16o">) -> tensor<1x32x6x6xf32, "NCHW16c">
        %2 = ... : tensor<1x32x3x3xf32, "NCHW16c">
        %3 = graph.kernel "k2" (%2) { graph.convert_layout } : ... -> tensor<1x32x3x3xf32>

    A kernel's layouts are those that the first of the machine's primitives that serves it names
    (``Storage.layout``, ``Machine.layouts``). Maps, concatenations, slices and reshapes take any
    layout in which they are right (layout_choices.py), and choose so that the bytes that
    conversions move, over the whole network, are least: every operation in turn, then runs of
    operations that are free together, until nothing improves. Each conversion is made once for
    all users. Weights cost nothing: their types name the layout and the package holds them packed.
    Network inputs and outputs are row-major. Conversions of an earlier run are taken out first.
    """

    name = "assign-layouts"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        context, network = compiler(ctx), network_of(op)
        machine = context.machine
        _drop_conversions(network)
        for kernel in network.kernels:
            _split_roles(kernel)
        problem = _Problem(network, machine)
        problem.solve()
        _Applier(network, context, problem).run()


def is_conversion(op: AnyOperation) -> bool:
    """Return True if an operation is a kernel that only converts a layout, or copies."""
    if not isinstance(op, KernelOp) or len(op.operations) != 1:
        return False
    return op.anchor.operation == "convert_layout"


def _drop_conversions(network: NetworkOp) -> None:
    for op in network.kernels:
        if is_conversion(op):
            op.result.replace_all_uses_with(op.inputs[0])
            erase(op)


def _split_roles(kernel: KernelOp) -> None:
    """Give a value that a kernel reads in two roles one operand for each."""
    block = kernel.body.block
    for index, (argument, uses) in enumerate(
        zip(list(block.args), operand_uses(kernel), strict=True)
    ):
        for extra_role in list(dict.fromkeys(role for _, role, _ in uses))[1:]:
            second = block.insert_arg(argument.type, len(block.args))
            second.name_hint = argument.name_hint
            for use, role, _ in uses:
                if role == extra_role:
                    use.operation.operands[use.index] = second
            kernel.operands = (*kernel.operands, kernel.inputs[index])


@dataclass
class _Problem:
    """Which choice each operation makes; its cost is what conversions read and write."""

    network: NetworkOp
    machine: Machine
    options: dict[AnyOperation, list[Choice]] = field(
        default_factory=dict[AnyOperation, list[Choice]]
    )
    chosen: dict[AnyOperation, Choice] = field(default_factory=dict[AnyOperation, Choice])

    def __post_init__(self) -> None:
        planner = Planner(self.machine)
        for op in self.network.block.ops:
            self.options[op] = choices_of(op, self.machine, planner)
            self.chosen[op] = self._natural(op)

    def home(self, value: SSAValue) -> str:
        """The layout in which a value is made; network inputs are row-major."""
        owner = value.owner
        return self.chosen[owner].result if isinstance(owner, AnyOperation) else ""

    def _natural(self, op: AnyOperation) -> Choice:
        """The choice that takes the first operand as it comes."""
        options = self.options[op]
        computed = [
            (index, value)
            for index, value in enumerate(op.operands)
            if not isinstance(value.owner, WeightOp)
        ]
        for index, value in computed[:1]:
            home = self.home(value)
            for choice in options:
                if choice.operands[index] == home:
                    return choice
        return options[0]

    def cost_at(self, value: SSAValue) -> int:
        """Bytes that the conversions of one value move."""
        if isinstance(value.owner, WeightOp):
            return 0
        home, shape = self.home(value), shape_of(value)
        asked = {
            wanted
            for use in value.uses
            if (wanted := self.chosen[use.operation].operands[use.index]) is not None
        }
        kind, whole = tensor_type(value).element_type, size(home, shape)
        return sum(element_size(kind, whole + size(text, shape)) for text in asked if text != home)

    def cost_around(self, ops: Sequence[AnyOperation]) -> int:
        """Bytes that conversions move at the operands and results of some operations."""
        values = dict.fromkeys(v for op in ops for v in (*op.operands, *op.results))
        return sum(self.cost_at(value) for value in values)

    def solve(self) -> None:
        """Improve one operation or one free run at a time until nothing improves."""
        free = [op for op, options in self.options.items() if len(options) > 1]
        groups = [[op] for op in free] + self._runs(free)
        for _ in range(len(free) + 1):
            if not any([self._improve(group) for group in groups]):  # noqa: C419
                return

    def _improve(self, group: list[AnyOperation]) -> bool:
        before = [self.chosen[op] for op in group]
        best, least = before, self.cost_around(group)
        results = list(dict.fromkeys(c.result for op in group for c in self.options[op]))
        moves = (
            [[choice] for choice in self.options[group[0]]]
            if len(group) == 1
            else [
                [
                    next((c for c in self.options[op] if c.result == text), self.chosen[op])
                    for op in group
                ]
                for text in results
            ]
        )
        for move in moves:
            self._take(group, move)
            cost = self.cost_around(group)
            if cost < least:
                best, least = move, cost
        self._take(group, best)
        return best is not before

    def _take(self, group: Sequence[AnyOperation], choices: Sequence[Choice]) -> None:
        for op, choice in zip(group, choices, strict=True):
            self.chosen[op] = choice

    def _runs(self, free: Sequence[AnyOperation]) -> list[list[AnyOperation]]:
        """Operations with several choices that are connected by values, in program order."""
        members, seen = set(free), set[AnyOperation]()
        runs: list[list[AnyOperation]] = []
        for op in free:
            if op in seen:
                continue
            run, todo = set[AnyOperation](), [op]
            while todo:
                here = todo.pop()
                if here in run:
                    continue
                run.add(here)
                owners = [v.owner for v in here.operands]
                users = [use.operation for v in here.results for use in v.uses]
                todo.extend(o for o in (*owners, *users) if o in members and o not in run)  # type: ignore[misc]
            seen |= run
            if len(run) > 1:
                runs.append([o for o in free if o in run])
        return runs


@dataclass
class _Applier:
    """Writes the chosen layouts into types, and inserts the conversions."""

    network: NetworkOp
    context: CompilerContext
    problem: _Problem
    converted: dict[tuple[SSAValue, str], SSAValue] = field(
        default_factory=dict[tuple[SSAValue, str], SSAValue]
    )

    def run(self) -> None:
        """Rewrite in program order, so that operands have their final types."""
        symbols = symbols_of(self.network)
        for op in list(self.network.block.ops):
            if isinstance(op, WeightOp):
                continue
            choice = self.problem.chosen[op]
            for index, wanted in enumerate(choice.operands):
                value = op.operands[index]
                if wanted is not None and layout_of(value) != wanted:
                    op.operands[index] = self.convert(value, wanted, op, symbols)
            if isinstance(op, KernelOp):
                retype_kernel(op, choice.result)
            elif isinstance(op, Operation):
                _retype(op.result, choice.result)
        for op in list(self.network.block.ops):
            if isinstance(op, WeightOp) and op.result.first_use is None:
                erase(op)

    def convert(
        self, value: SSAValue, wanted: str, before: AnyOperation, symbols: set[str]
    ) -> SSAValue:
        """The value in another layout, converted once for all users."""
        converted = self.converted.get((value, wanted))
        if converted is None:
            converted = self.converted[value, wanted] = self._converted(
                value, wanted, before, symbols
            )
        return converted

    def _converted(
        self, value: SSAValue, wanted: str, before: AnyOperation, symbols: set[str]
    ) -> SSAValue:
        if isinstance(value.owner, WeightOp):
            kind = tensor_type(value)
            weight = WeightOp.of(
                value.owner.symbol.data, tensor(kind.get_shape(), kind.element_type, wanted)
            )
            weight.result.name_hint = value.name_hint
            insert(weight, before)
            return weight.result
        return copy_kernel(value, wanted, before, self.context, symbols).result


def copy_kernel(
    value: SSAValue, layout: str, before: AnyOperation, context: CompilerContext, symbols: set[str]
) -> KernelOp:
    """A kernel before ``before`` that copies a value into a tensor of that layout."""
    kind = tensor_type(value)
    result = tensor(kind.get_shape(), kind.element_type, layout)
    op = make("convert_layout", [value], before=before, result_type=result)
    owner = value.owner
    hint = owner.symbol.data if isinstance(owner, KernelOp) else (value.name_hint or "")
    reason = objected(op, context.machine)
    return insert_kernel(op, reason, context, symbols, f"copy_{hint}")


def _retype(value: SSAValue, layout: str) -> None:
    kind = tensor_type(value)
    if layout_of(value) != layout:
        _set_type(value, tensor(kind.get_shape(), kind.element_type, layout))


def _set_type(value: SSAValue, kind: Attribute) -> None:
    Rewriter.replace_value_with_new_type(value, kind)


def retype_kernel(kernel: KernelOp, layout: str) -> None:
    """The operands' types for the arguments, the result's layout for what is computed inside."""
    for index, value in enumerate(kernel.inputs):
        if kernel.body.block.args[index].type != value.type:
            _set_type(kernel.body.block.args[index], value.type)
    for op in kernel.operations:
        _retype(op.result, layout)
    _retype(kernel.result, layout)
