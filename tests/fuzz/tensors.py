"""Random nodes on tensors of any rank: maps, broadcasting, products, reductions, movement."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tests.fuzz.builder import (
    BOOL,
    DOUBLE,
    EXTENTS,
    FLOAT,
    HALF,
    INT8,
    INT32,
    INT64,
    UINT8,
    Graph,
    Value,
)

UNARY = (
    *("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Erf", "Softplus", "Softsign", "HardSwish", "Mish"),
    *("Sin", "Cos", "Atan", "Floor", "Ceil", "Round", "Sign", "Identity"),
)

NUMBERS = (FLOAT, FLOAT, FLOAT, FLOAT, FLOAT, INT32, INT64, DOUBLE)


def unary(g: Graph) -> None:
    g.add(g.one_of(UNARY), [g.tensor()])


def with_parameters(g: Graph) -> None:
    x = g.tensor()
    operator, attributes = g.one_of(
        (
            ("LeakyRelu", {"alpha": 0.2}),
            ("Elu", {"alpha": 1.5}),
            ("Celu", {"alpha": 0.7}),
            ("Selu", {}),
            ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
            ("ThresholdedRelu", {"alpha": 0.6}),
            ("Shrink", {"lambd": 0.4, "bias": 0.2}),
            ("Gelu", {"approximate": "none"}),
            ("Gelu", {"approximate": "tanh"}),
        )
    )
    g.add(operator, [x], **attributes)


def bounded(g: Graph) -> None:
    """Functions that need their operand in a range."""
    x = g.tensor()
    way = g.one_of(("exp", "log", "sqrt", "reciprocal", "pow"))
    if way == "exp":
        squashed = g.add("Tanh", [x])
        g.add("Exp", squashed)
        return
    positive = g.add("Add", [*g.add("Abs", [x]), g.constant(np.float32(0.5))])
    if way == "pow":
        exponent = g.one_of((2.0, 0.5, 3.0, -1.0, 1.7))
        g.add("Pow", [*positive, g.constant(np.float32(exponent))])
    else:
        g.add(way.capitalize(), positive)


def clip(g: Graph) -> None:
    x = g.tensor(kind=g.one_of((FLOAT, FLOAT, INT32)))
    dtype = np.float32 if x.kind == FLOAT else np.int32
    low, high = g.constant(dtype(-1)), g.constant(dtype(2))
    g.add("Clip", g.one_of(([x, low, high], [x, low], [x, "", high])))


def partner(g: Graph, x: Value) -> Value | str:
    """A value or a constant whose shape broadcasts with that of x."""
    fits = [v for v in g.values if v.kind == x.kind and _broadcasts(v.shape, x.shape)]
    if fits and g.flag():
        return g.one_of(fits)
    shape = tuple(e if g.number(0, 2) else 1 for e in x.shape[g.number(0, x.rank) :])
    if x.kind == FLOAT and g.flag():
        return g.weights(*shape)
    return g.fresh(shape, x.kind)


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    pairs = zip(a[::-1], b[::-1], strict=False)
    return all(1 in (i, j) or i == j for i, j in pairs)


def binary(g: Graph) -> None:
    x = g.tensor(kind=g.one_of(NUMBERS))
    operator = g.one_of(("Add", "Sub", "Mul", "Add", "Mul", "Max", "Min"))
    pair = [x, partner(g, x)]
    g.add(operator, pair if g.flag() else pair[::-1])


def variadic(g: Graph) -> None:
    x = g.tensor()
    g.add(g.one_of(("Sum", "Mean", "Max", "Min")), [x, partner(g, x), partner(g, x)])


def divide(g: Graph) -> None:
    x = g.tensor(kind=g.one_of((FLOAT, FLOAT, INT32, INT64)))
    if x.kind == FLOAT:
        by = partner(g, x)
        safe = (
            g.add("Add", [*g.add("Abs", [by]), g.constant(np.float32(0.5))])
            if isinstance(by, Value)
            else [g.weights(low=0.5)]
        )
        g.add("Div", [x, *safe])
        return
    dtype = np.int32 if x.kind == INT32 else np.int64
    by = g.constant(dtype(g.one_of((-3, 1, 2, 7))))
    g.add(g.one_of(("Div", "Mod")), [x, by])


def compare(g: Graph) -> None:
    x = g.tensor(kind=g.one_of(NUMBERS))
    names = ("Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal")
    made = g.add(g.one_of(names), [x, partner(g, x)])
    if made and g.flag():
        g.add("Where", [*made, x, partner(g, x)])
    elif made:
        g.add("Cast", made, to=g.one_of((FLOAT, INT32, INT64, UINT8)))


def logic(g: Graph) -> None:
    x = g.tensor(kind=BOOL)
    if g.number(0, 3) == 0:
        g.add("Not", [x])
    else:
        g.add(g.one_of(("And", "Or", "Xor")), [x, partner(g, x)])


def where(g: Graph) -> None:
    condition = g.tensor(kind=BOOL)
    x = g.fresh(condition.shape, g.one_of((FLOAT, INT64)))
    g.add("Where", [condition, x, partner(g, x)])


def cast(g: Graph) -> None:
    x = g.tensor(kind=g.one_of((FLOAT, FLOAT, INT32, INT64, DOUBLE, HALF, BOOL, UINT8)))
    if x.kind in (FLOAT, DOUBLE, HALF):
        to = g.one_of((DOUBLE, HALF, FLOAT))
        if g.number(0, 2) == 0 and x.kind == FLOAT:
            # Out of range a cast to integers may give anything.
            scaled = g.add("Mul", [*g.add("Tanh", [x]), g.constant(np.float32(100))])
            g.add("Cast", scaled, to=g.one_of((INT32, INT64, INT8)))
            return
    else:
        to = g.one_of((FLOAT, INT32, INT64, BOOL))
    g.add("Cast", [x], to=to)


def bits(g: Graph) -> None:
    x = g.tensor(kind=g.one_of((INT32, INT64, UINT8)))
    if g.number(0, 3) == 0:
        g.add("BitwiseNot", [x])
    else:
        g.add(g.one_of(("BitwiseAnd", "BitwiseOr", "BitwiseXor")), [x, partner(g, x)])


def matmul(g: Graph) -> None:
    x = g.tensor(1, 6, g.one_of((FLOAT, FLOAT, FLOAT, DOUBLE)))
    inner = x.shape[-1]
    way = g.one_of(("weights", "weights", "batched", "vector", "self"))
    if way == "self" and x.rank >= 2:
        order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
        turned = g.add("Transpose", [x], perm=order)
        g.add("MatMul", [x, *turned])
    elif way == "batched" and x.rank >= 2:
        lead = tuple(e if g.flag() else 1 for e in x.shape[:-2])
        g.add("MatMul", [x, g.fresh((*lead, inner, g.one_of(EXTENTS)), x.kind)])
    elif way == "vector":
        g.add("MatMul", [x, g.fresh((inner,), x.kind)])
    elif x.kind == FLOAT:
        g.add("MatMul", [x, g.weights(inner, g.one_of(EXTENTS), fan_in=inner)])


def gemm(g: Graph) -> None:
    x = g.tensor(2, 2)
    left, right = g.number(0, 1), g.number(0, 1)
    rows, inner = x.shape[::-1] if left else x.shape
    columns = g.one_of(EXTENTS)
    second = (columns, inner) if right else (inner, columns)
    w: Value | str = g.weights(*second, fan_in=inner) if g.number(0, 2) else g.fresh(second)
    operands = [x, w]
    if g.flag():
        operands.append(g.weights(*g.one_of(((columns,), (1,), (rows, 1), (rows, columns), ()))))
    attributes = {} if g.flag() else {"alpha": 0.5, "beta": 1.5}
    g.add("Gemm", operands, transA=left, transB=right, **attributes)


def einsum(g: Graph) -> None:
    x = g.tensor(3, 3)
    b, i, j = x.shape
    equation, shape = g.one_of(
        (
            ("bij,bjk->bik", (b, j, 3)),
            ("bij,bkj->bik", (b, 4, j)),
            ("bij,jk->bki", (j, 5)),
            ("bij,bij->b", (b, i, j)),
            ("bij,i->bj", (i,)),
        )
    )
    g.add("Einsum", [x, g.fresh(shape)], equation=equation)


def softmax(g: Graph) -> None:
    x = g.tensor(1, 6)
    g.add(g.one_of(("Softmax", "Softmax", "LogSoftmax")), [x], axis=g.number(-x.rank, x.rank - 1))


def layer_normalization(g: Graph) -> None:
    x = g.tensor(2, 6)
    axis = g.number(1, x.rank - 1)
    shape = x.shape[axis:]
    operands = [x, g.weights(*shape, low=0.5)]
    if g.flag():
        operands.append(g.weights(*shape))
    g.add("LayerNormalization", operands, axis=axis - x.rank if g.flag() else axis)


def reduction(g: Graph) -> None:
    x = g.tensor(1, 6, g.one_of((FLOAT, FLOAT, FLOAT, INT32, INT64)))
    names = ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceSum"]
    if x.kind == FLOAT:
        names += ["ReduceMean", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare"]
        names += ["ReduceLogSumExp", "ReduceProd"]
    operands: list[Value | str] = [x]
    if g.number(0, 4):
        axes = sorted({g.number(0, x.rank - 1) for _ in range(g.number(1, 3))})
        operands.append(g.integers(*(a - x.rank if g.flag() else a for a in axes)))
    g.add(g.one_of(names), operands, keepdims=g.number(0, 1))


def arg(g: Graph) -> None:
    x = g.tensor(1, 6)
    axis = g.number(-x.rank, x.rank - 1)
    g.add(g.one_of(("ArgMax", "ArgMin")), [x], axis=axis, keepdims=g.number(0, 1))


def cumulative(g: Graph) -> None:
    x = g.tensor(1, 3, g.one_of((FLOAT, FLOAT, INT32)))
    axis = g.constant(np.int64(g.number(0, x.rank - 1)))
    g.add("CumSum", [x, axis], exclusive=g.number(0, 1), reverse=g.number(0, 1))


def top_k(g: Graph) -> None:
    x = g.tensor(1, 3)
    axis = g.number(0, x.rank - 1)
    count = g.integers(g.number(1, x.shape[axis]))
    g.add("TopK", [x, count], 2, axis=axis, largest=g.number(0, 1))


# Movement


def any_kind(g: Graph) -> int:
    return g.one_of((FLOAT, FLOAT, FLOAT, INT64, BOOL, INT32, UINT8, DOUBLE))


def transpose(g: Graph) -> None:
    x = g.tensor(2, 6, any_kind(g))
    order = list(range(x.rank))
    for i in range(x.rank - 1):
        j = g.number(i, x.rank - 1)
        order[i], order[j] = order[j], order[i]
    g.add("Transpose", [x], perm=order)


def reshape(g: Graph) -> None:
    x = g.tensor(1, 6, any_kind(g))
    size, shape = math.prod(x.shape), list[int]()
    for _ in range(g.number(0, 3)):
        left = size // math.prod(shape)
        shape.append(g.one_of([d for d in range(1, left + 1) if left % d == 0]))
    shape.insert(g.number(0, len(shape)), -1 if g.flag() else size // math.prod(shape))
    g.add("Reshape", [x, g.integers(*shape)])


def flatten(g: Graph) -> None:
    x = g.tensor(1, 6)
    g.add("Flatten", [x], axis=g.number(0, x.rank))


def squeeze(g: Graph) -> None:
    x = g.tensor(1, 6, any_kind(g))
    ones = [axis for axis, extent in enumerate(x.shape) if extent == 1]
    if ones and g.flag():
        g.add("Squeeze", [x, g.integers(g.one_of(ones))])
    else:
        g.add("Unsqueeze", [x, g.integers(g.number(0, x.rank))])


def concat(g: Graph) -> None:
    x = g.tensor(1, 6, any_kind(g))
    axis = g.number(0, x.rank - 1)

    def fits(v: Value) -> bool:
        alike = v.kind == x.kind and v.rank == x.rank
        return alike and all(a == axis or v.shape[a] == x.shape[a] for a in range(x.rank))

    others = [v for v in g.values if fits(v)]
    parts: list[Value | str] = [x, *(g.one_of(others) for _ in range(g.number(0, 2)))]
    if g.flag():
        shape = list(x.shape)
        shape[axis] = g.number(1, 5)
        constant = x.kind == FLOAT and g.flag()
        parts.insert(
            g.number(0, len(parts)), g.weights(*shape) if constant else g.fresh(shape, x.kind)
        )
    g.add("Concat", parts, axis=axis if g.flag() else axis - x.rank)


def split(g: Graph) -> None:
    x = g.tensor(1, 6, any_kind(g))
    axis = g.number(0, x.rank - 1)
    if x.shape[axis] < 2:
        return
    first = g.number(1, x.shape[axis] - 1)
    sizes = g.integers(first, x.shape[axis] - first)
    made = g.add("Split", [x, sizes], 2, axis=axis)
    if made and g.flag():
        g.add("Concat", made[::-1], axis=axis)


def slice_(g: Graph) -> None:
    x = g.tensor(1, 6, any_kind(g))
    axes = sorted({g.number(0, x.rank - 1) for _ in range(g.number(1, 3))})
    starts: list[int] = []
    ends: list[int] = []
    steps: list[int] = []
    for axis in axes:
        extent = x.shape[axis]
        low = g.number(0, extent - 1)
        high = g.number(low + 1, extent)
        step = g.number(1, 3)
        if g.number(0, 4) == 0:
            low, high, step = high - 1, low - 1 - extent * (low == 0), -step
        starts.append(low)
        ends.append(high if g.number(0, 4) or step < 0 else 2**31)
        steps.append(step)
    g.add("Slice", [x, *(g.integers(*values) for values in (starts, ends, axes, steps))])


def pad(g: Graph) -> None:
    x = g.tensor(1, 6, g.one_of((FLOAT, FLOAT, FLOAT, INT32, BOOL)))
    mode = (
        "constant"
        if x.kind != FLOAT
        else g.one_of(("constant", "constant", "edge", "reflect", "wrap"))
    )
    low = -1 if mode == "constant" and x.kind == FLOAT and g.number(0, 4) == 0 else 0
    pads = [
        g.number(max(low, 1 - e), 2 if mode in ("constant", "edge") else min(2, e - 1))
        for e in (*x.shape, *x.shape)
    ]
    rank = x.rank
    if any(x.shape[i] + min(pads[i], 0) + min(pads[rank + i], 0) < 1 for i in range(rank)):
        return
    operands: list[Value | str] = [x, g.integers(*pads)]
    if mode == "constant" and x.kind == FLOAT and g.flag():
        operands.append(g.constant(np.float32(0.5)))
    g.add("Pad", operands, mode=mode)


def expand(g: Graph) -> None:
    x = g.tensor(1, 5, any_kind(g))
    shape = [g.one_of((1, 2, 3, 5)) if e == 1 else e for e in x.shape]
    g.add("Expand", [x, g.integers(*([2] * g.number(0, 1)), *shape)])


def tile(g: Graph) -> None:
    x = g.tensor(1, 5, any_kind(g))
    g.add("Tile", [x, g.integers(*(g.number(1, 3) for _ in x.shape))])


# Indices


def gather(g: Graph) -> None:
    x = g.tensor(1, 6, any_kind(g))
    axis = g.number(0, x.rank - 1)
    shape = g.one_of(((), (1,), (3,), (2, 3)))
    count, extent = math.prod(shape), x.shape[axis]
    indices = np.array([g.number(-extent, extent - 1) for _ in range(count)], np.int64)
    g.add("Gather", [x, g.constant(indices.reshape(shape))], axis=axis)


def gather_computed(g: Graph) -> None:
    """Indices that the graph computes, kept in range."""
    x = g.tensor(1, 3)
    axis = g.number(0, x.rank - 1)
    indices = g.fresh(g.one_of(((2,), (2, 2), (5,))), INT64)
    safe = g.add("Mod", [indices, g.constant(np.int64(x.shape[axis]))])
    if g.flag():
        g.add("Gather", [x, *safe], axis=axis)
        return
    shape = list(x.shape)
    shape[axis] = 2
    indices = g.fresh(shape, INT64)
    safe = g.add("Mod", [indices, g.constant(np.int64(x.shape[axis]))])
    g.add("GatherElements", [x, *safe], axis=axis)


def scatter(g: Graph) -> None:
    x = g.tensor(1, 2)
    rows = x.shape[0]
    chosen = sorted({g.number(0, rows - 1) for _ in range(2)})
    indices = g.constant(np.array(chosen, np.int64)[:, None])
    g.add("ScatterND", [x, indices, g.fresh((len(chosen), *x.shape[1:]))])


def one_hot(g: Graph) -> None:
    x = g.tensor(1, 2, INT64)
    values = g.constant(np.array([0, 1], np.float32))
    g.add("OneHot", [x, g.constant(np.int64(7)), values], axis=-1)


def trilu(g: Graph) -> None:
    x = g.tensor(2, 6)
    g.add("Trilu", [x, g.constant(np.int64(g.number(-2, 2)))], upper=g.number(0, 1))


# Attention and numbers


def attention(g: Graph) -> None:
    """Scaled products of queries and keys, masked or not, on values."""
    heads, tokens, width = g.number(1, 3), g.one_of((1, 4, 7, 16)), g.one_of((4, 8, 16))
    x = g.value(
        lambda v: v.rank == 3 and v.shape[2] == heads * width,
        lambda: (g.number(1, 2), tokens, heads * width),
    )
    batch, tokens, inner = x.shape
    split: list[Value] = []
    for order in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)):
        made = g.add("MatMul", [x, g.weights(inner, inner, fan_in=inner)])
        apart = g.add("Reshape", [*made, g.integers(batch, tokens, heads, width)])
        split += g.add("Transpose", apart, perm=order)
    if len(split) != 3:
        return
    scores = g.add("MatMul", split[:2])
    scores = g.add("Mul", [*scores, g.constant(np.float32(width**-0.5))])
    if g.flag():
        mask = np.triu(np.full((tokens, tokens), -1e9, np.float32), 1)
        scores = g.add("Add", [*scores, g.constant(mask)])
    weights = g.add("Softmax", scores, axis=-1)
    found = g.add("MatMul", [*weights, split[2]])
    found = g.add("Transpose", found, perm=(0, 2, 1, 3))
    found = g.add("Reshape", [*found, g.integers(batch, tokens, inner)])
    g.add("Add", [*found, x])


def quantised(g: Graph) -> None:
    """Float to integers and back, and an integer product between."""
    x = g.tensor(2, 6)
    unsigned = g.flag()
    dtype = np.uint8 if unsigned else np.int8
    scale, zero = g.constant(np.float32(0.05)), g.constant(dtype(128 if unsigned else 3))
    made = g.add("QuantizeLinear", [x, scale, zero])
    if made and x.rank == 2 and g.flag():
        columns = g.one_of(EXTENTS)
        random = np.random.default_rng(columns)
        w = g.constant(random.integers(-128, 128, (x.shape[1], columns)).astype(np.int8))
        made = g.add("MatMulInteger", [*made, w, zero])
        if made:
            g.add("Cast", made, to=FLOAT)
        return
    if made:
        g.add("DequantizeLinear", [*made, scale, zero])


def shortcut(g: Graph) -> None:
    """The sum of two values of one shape: what residual networks are made of."""
    x = g.tensor()
    alike = [v for v in g.values if v.kind == x.kind and v.shape == x.shape]
    g.add("Add", [x, g.one_of(alike)])


TENSORS: tuple[Callable[[Graph], None], ...] = (
    *(unary, unary, with_parameters, bounded, clip, binary, binary, binary, variadic, divide),
    *(compare, logic, where, cast, bits, matmul, matmul, gemm, gemm, einsum, softmax),
    *(layer_normalization, reduction, reduction, arg, cumulative, top_k, transpose, transpose),
    *(reshape, reshape, flatten, squeeze, concat, concat, split, slice_, slice_, pad, expand),
    *(tile, gather, gather_computed, scatter, one_hot, trilu, attention, quantised),
    *(shortcut, shortcut),
)

__all__ = ["TENSORS"]
