"""Rules that join the operations of attention into one, for machines that compute it at once."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from tilewright.graph.operations import Operation
from tilewright.graph.passes.constraints import candidate, serving
from tilewright.graph.passes.editing import Rewriter, erase, only_user, producer
from tilewright.ir import PythonValue, SSAValue, VerifyException, f32
from tilewright.ir.types import shape_of, tensor_type


@dataclass(frozen=True)
class _Scores:
    """The operand of a softmax: a product, its factor, and the mask that is added."""

    product: Operation
    scale: float = 1.0
    mask: SSAValue | None = None


def recognise_attention(op: Operation, at: Rewriter) -> bool:
    """softmax(q @ k * c + mask) @ v, of three or four axes, with c constant and between the two any
    order.

    Operands and result get transposes that put heads after rows, and back: models mostly have
    the opposite ones there, and the two cancel. Of three axes the first is a batch, of one head.
    """
    rank = len(shape_of(op.result))
    if len(op.inputs) != 2 or rank not in (3, 4):
        return False
    if op.get("transpose_a", False) or op.get("transpose_b", False):
        return False
    if tensor_type(op.result).element_type != f32:
        return False
    softmax = producer(op.inputs[0], "softmax")
    if softmax is None or only_user(softmax.result) is not op:
        return False
    if softmax.integer("axis", -rank, rank - 1) % rank != rank - 1:
        return False
    scores = _scores(softmax.inputs[0], softmax, at)
    if scores is None:
        return False
    product = scores.product
    q, k = product.inputs[:2]
    v = op.inputs[1]
    if not shape_of(q)[: rank - 2] == shape_of(k)[: rank - 2] == shape_of(v)[: rank - 2]:
        return False
    steps: list[Operation] = []

    def made(rewriter: Rewriter, name: str, value: SSAValue, **attributes: PythonValue) -> SSAValue:
        result = rewriter.make(name, value, **attributes)
        if isinstance(result.owner, Operation) and result is not value:
            steps.append(result.owner)
        return result

    def rows_first(value: SSAValue, *, turned: bool = False) -> SSAValue:
        """The operand as rows of heads; ``turned`` of one whose last two axes change places."""
        before = at.of(product)
        if rank == 4:
            order = (0, 3, 1, 2) if turned else (0, 2, 1, 3)
            return made(before, "transpose", value, permutation=order)
        if turned:
            value = made(before, "transpose", value, permutation=(0, 2, 1))
        batch, rows, columns = shape_of(value)
        return made(before, "reshape", value, shape=(batch, rows, 1, columns))

    turned = not product.get("transpose_b", False)
    operands = [rows_first(q), rows_first(k, turned=turned), rows_first(v)]
    mask = scores.mask
    if mask is not None:
        shape = shape_of(mask)
        full = (1,) * (rank - len(shape)) + shape
        full = full if rank == 4 else (full[0], 1, *full[1:])
        operands.append(mask if full == shape else made(at, "reshape", mask, shape=full))
    attention = None
    with suppress(VerifyException):
        attention = at.make("attention", *operands, scale=scores.scale).owner
    if isinstance(attention, Operation) and serving(candidate(attention), at.machine):
        if rank == 3:
            return at.replace(at.make("reshape", attention.result, shape=shape_of(op.result)))
        return at.replace(at.make("transpose", attention.result, permutation=(0, 2, 1, 3)))
    for step in (attention, *reversed(steps)):
        if isinstance(step, Operation):
            erase(step)
    return False


def _scores(value: SSAValue, user: Operation, at: Rewriter) -> _Scores | None:
    """The scores that a softmax normalises."""
    owner = value.owner
    if not isinstance(owner, Operation) or only_user(value) is not user:
        return None
    if owner.operation == "matmul":
        plain = len(owner.inputs) == 2 and not owner.get("transpose_a", False)
        return _Scores(owner) if plain else None
    if owner.operation not in ("mul", "div", "add"):
        return None
    for index in (0, 1) if owner.operation != "div" else (0,):
        inner, other = owner.inputs[index], owner.inputs[1 - index]
        if shape_of(inner) != shape_of(value):
            continue
        scores = _scores(inner, owner, at)
        if scores is None:
            continue
        if owner.operation == "add":
            return replace(scores, mask=other) if scores.mask is None else None
        array = at.constant(other)
        if array is None or array.size != 1 or scores.mask is not None:
            continue
        factor = float(array.reshape(-1)[0])
        if owner.operation == "div":
            factor = 1.0 / factor if factor else 0.0
        return replace(scores, scale=scores.scale * factor) if factor else None
    return None
