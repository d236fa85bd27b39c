"""Operators that are taken apart at import, kept beside their steps
(graph/operations/written.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.frontends.emitter import Emitter
from tilewright.graph.dialect import WeightOp, YieldOp
from tilewright.graph.names import value_hint
from tilewright.graph.operations.written import WrittenOp
from tilewright.ir import Block, PythonValue, SSAValue, StringAttr, to_attribute
from tilewright.ir import Operation as AnyOperation
from tilewright.ir.types import tensor_type


def kept(
    at: Emitter,
    kind: type[WrittenOp],
    steps: Callable[[], SSAValue],
    operands: Callable[[], Sequence[SSAValue]],
    **attributes: PythonValue,
) -> SSAValue:
    """The operator ``kind`` on its ``operands``, around what ``steps`` appends for it.

    Constants stay outside. Operands are asked for after the steps, whose constants have the names
    that they would have alone.
    """
    block = at.network.block
    mark = block.last_op
    result = steps()
    moved = [
        op
        for op in (list(block.ops) if mark is None else _after(mark))
        if not isinstance(op, WeightOp)
    ]
    if result.owner not in moved:
        return result
    written = list(operands())
    inputs, inside = list(written), {value for op in moved for value in op.results}
    for op in moved:
        inputs += [v for v in op.operands if v not in inside and v not in inputs]
    body = Block(arg_types=[tensor_type(value) for value in inputs])
    arguments = dict(zip(reversed(inputs), reversed(body.args), strict=True))
    for op in moved:
        op.detach()
        body.add_op(op)
        for index, value in enumerate(op.operands):
            if value in arguments:
                op.operands[index] = arguments[value]
    body.add_op(YieldOp.build(operands=[[result]]))
    properties = {name: to_attribute(value) for name, value in attributes.items()}
    properties |= {"written": to_attribute(len(written)), "node": StringAttr(at.origin)}
    op = kind.around(inputs, body, properties)
    op.result.name_hint = value_hint(at.origin)
    block.add_op(op)
    return op.result


def _after(mark: AnyOperation) -> list[AnyOperation]:
    """The operations of a block that follow one."""
    found: list[AnyOperation] = []
    op = mark.next_op
    while op is not None:
        found.append(op)
        op = op.next_op
    return found
