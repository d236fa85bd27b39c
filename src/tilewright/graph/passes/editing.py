"""Small tools that the graph passes share: reading constants, making and replacing operations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tilewright.errors import refuse
from tilewright.graph.dialect import (
    KernelOp,
    NetworkOp,
    ScratchOp,
    WeightOp,
    network_of,
)
from tilewright.graph.operations import BY_NAME, Operation
from tilewright.ir import (
    ArrayAttr,
    Attribute,
    Context,
    PythonValue,
    SSAValue,
    StringAttr,
    TensorType,
    Use,
)
from tilewright.ir import Operation as AnyOperation
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import (
    Array,
    element_of,
    element_size,
    shape_of,
    tensor,
    tensor_type,
)
from tilewright.machine import Machine
from tilewright.numerics.operators import operators

VIEWS = operators("view", "join")
"""Operations that only move values, and may turn out to be addresses."""


def compiler(ctx: Context) -> CompilerContext:
    """The context of the pass pipeline; refuses (``pass-context``) a context of another type."""
    if not isinstance(ctx, CompilerContext):
        raise refuse("pass-context", "graph passes need a CompilerContext")
    return ctx


def operations_of(module: AnyOperation) -> list[Operation]:
    """The operations that stand directly in the network, in order."""
    return network_of(module).operations


def constant(value: SSAValue, ctx: CompilerContext) -> Array | None:
    """The array of a weight; None if the value is computed."""
    owner = value.owner
    return ctx.weights.get(owner.symbol.data) if isinstance(owner, WeightOp) else None


def add_weight(
    ctx: CompilerContext,
    array: Array,
    before: AnyOperation,
    hint: str,
    element: Attribute | None = None,
) -> SSAValue:
    """A new weight before ``before``; typed by the array unless ``element`` is given."""
    array = np.asarray(array, order="C")
    kind = tensor(array.shape, element or element_of(array.dtype))
    weight = WeightOp.of(ctx.weights.add(array, hint), kind)
    insert(weight, before)
    return weight.result


def insert(op: AnyOperation, before: AnyOperation) -> None:
    """Put an operation before another."""
    block = before.parent
    assert block is not None
    block.insert_op_before(op, before)


def make(
    name: str,
    inputs: Sequence[SSAValue],
    attributes: dict[str, PythonValue] | None = None,
    *,
    before: AnyOperation,
    like: Operation | None = None,
    result_type: TensorType[Any] | None = None,
) -> Operation:
    """A new operation before ``before``, with the node name (and engine) of ``like``."""
    node = like.node_name if like is not None else ""
    operation = BY_NAME[name].build_from(inputs, attributes, node=node, result_type=result_type)
    if like is not None:
        operation.engine, operation.reason = like.engine, like.reason
        operation.merged = like.merged
    insert(operation, before)
    return operation


@dataclass(frozen=True)
class Rewriter:
    """Puts operations and constants before an operation that is to be rewritten."""

    ctx: CompilerContext
    op: Operation
    """The operation that is rewritten."""
    like: Operation | None = None
    """The operation whose node new ones come from, where that is another than ``op``."""
    place: AnyOperation | None = None
    """The operation before which new ones stand, where that is another than ``op``."""

    @property
    def machine(self) -> Machine:
        """The machine compiled for."""
        return self.ctx.machine

    @property
    def node(self) -> str:
        """The name of the node that is rewritten, or else of the operation."""
        like = self.like or self.op
        return like.node_name or like.operation

    def of(self, like: Operation) -> Rewriter:
        """A rewriter at the same place whose operations have the node of another operation."""
        return Rewriter(self.ctx, self.op, like, self.place)

    def before(self, later: AnyOperation) -> Rewriter:
        """A rewriter whose operations stand before a later one."""
        return Rewriter(self.ctx, self.op, self.like, later)

    def constant(self, value: SSAValue) -> Array | None:
        """The array of a weight; None if the value is computed."""
        return constant(value, self.ctx)

    def make(self, name: str, *inputs: SSAValue, **attributes: PythonValue) -> SSAValue:
        """The result of a new operation."""
        like = self.like or self.op
        return make(name, inputs, attributes, before=self.place or self.op, like=like).result

    def weight(self, array: Array, hint: str, element: Attribute | None = None) -> SSAValue:
        """A new weight; a hint that begins with a dot follows the name of the node."""
        name = f"{self.node}{hint}" if hint.startswith(".") else hint
        return add_weight(self.ctx, array, self.place or self.op, name, element)

    def reshaped(self, value: SSAValue, shape: tuple[int, ...]) -> SSAValue:
        """A value in another shape; a reshape to that shape that stands before is shared."""
        last = value.first_use.operation if value.first_use is not None else None
        if isinstance(last, Operation) and last.operation == "reshape":
            same = shape_of(last.result) == shape
            if same and last.is_before_in_block(self.place or self.op):
                return last.result
        return self.make("reshape", value, shape=shape)

    def replace(self, value: SSAValue, *unused: Operation) -> bool:
        """Replace the operation's result by ``value`` and erase the operation, and those of
        ``unused`` that have no readers left. Returns True, as a rule that applied."""
        replace(self.op, value)
        for op in unused:
            if op.result.first_use is None:
                erase(op)
        return True


def use_instead(uses: Iterable[Use], value: SSAValue) -> None:
    """Let what made these uses of a value read another."""
    for use in list(uses):
        use.operation.operands[use.index] = value


def producer(value: SSAValue, *names: str) -> Operation | None:
    """The operation that computes a value, if it has one of these names."""
    owner = value.owner
    return owner if isinstance(owner, Operation) and owner.operation in names else None


def erase(op: AnyOperation) -> None:
    """Take an operation out of its block and erase it; nothing may use its results."""
    op.detach()
    op.erase()


def only_user(value: SSAValue) -> AnyOperation | None:
    """The one operation that uses the value, if it has exactly one use."""
    return value.get_user_of_unique_use()


def replace(op: Operation, value: SSAValue) -> None:
    """Use ``value`` wherever the operation's result is used, and erase the operation.

    What computes ``value`` keeps the names of the nodes whose result it now is (``merged``).
    """
    if isinstance(value.owner, Operation):
        _absorb(value.owner, op)
    if value.name_hint is None:
        value.name_hint = op.result.name_hint
    op.result.replace_all_uses_with(value)
    erase(op)


MOST_MERGED = 32
"""Names of nodes that an operation keeps beside its own: the last, of more."""


def _absorb(into: Operation, op: Operation) -> None:
    """Note in ``into`` the nodes of ``op``, whose result it gives from now on."""
    if into.result_node == op.result_node:
        return
    node, noted = op.node, op.merged
    gained = [*([node] if node is not None else []), *(noted.data if noted else ())]
    # The attributes of names are kept, and compared by their text: chains of thousands of nodes
    # may become one operation.
    names_gained = [
        (name.data, name) for name in gained if isinstance(name, StringAttr) and name.data
    ]
    if not names_gained:
        return
    known, first, last = {text for text, _ in names_gained}, into.node_name, names_gained[-1][0]
    kept = [
        (name.data, name)
        for name in (into.merged.data if into.merged else ())
        if isinstance(name, StringAttr) and name.data not in known
    ]
    names = [name for text, name in (*kept, *names_gained) if text != first or text == last]
    names = names[-MOST_MERGED:]
    if names:
        into.merged = ArrayAttr(names)


def sweep(network: NetworkOp) -> int:
    """Erase operations without users, to the last; returns how many."""
    erased = 0
    for op in reversed(list(network.block.ops)):
        if (
            isinstance(op, Operation | WeightOp | KernelOp | ScratchOp)
            and op.result.first_use is None
        ):
            erase(op)
            erased += 1
    return erased


def merge_weights(network: NetworkOp) -> None:
    """Keep one of several weights that have the same data and type."""
    seen: dict[tuple[str, Attribute], WeightOp] = {}
    for op in list(network.block.ops):
        if not isinstance(op, WeightOp):
            continue
        first = seen.setdefault((op.symbol.data, op.result.type), op)
        if first is not op:
            op.result.replace_all_uses_with(first.result)
            erase(op)


def users(value: SSAValue) -> list[AnyOperation]:
    """The operations that use the value, each once, in the order of their uses."""
    return list(dict.fromkeys(use.operation for use in value.uses))


def bytes_of(value: SSAValue) -> int:
    """Bytes of a value's elements, padding of its layout left out."""
    return element_size(tensor_type(value).element_type, prod(shape_of(value)))


def per_channel(array: Array, shape: Sequence[int], axis: int) -> Array | None:
    """A constant that broadcasts to ``shape`` along all axes but one, as [channels] float64.

    None if it varies along another axis, or would widen the result.
    """
    rank, channels = len(shape), shape[axis]
    if array.ndim > rank:
        return None
    padded = (1,) * (rank - array.ndim) + array.shape
    if any(extent != 1 for index, extent in enumerate(padded) if index != axis):
        return None
    if padded[axis] not in (1, channels):
        return None
    return np.broadcast_to(array.astype(np.float64).reshape(-1), (channels,))


def finite(*arrays: Array) -> bool:
    """Return True if every number is finite."""
    return all(bool(np.isfinite(array).all()) for array in arrays)
