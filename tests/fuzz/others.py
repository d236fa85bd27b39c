"""Random nodes of operators that few networks have, and what several nodes make together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.fuzz.builder import BOOL, FLOAT, INT32, INT64, UINT8, Graph, Value


def trigonometric(g: Graph) -> None:
    """Functions that need their operand in a range."""
    x = g.tensor()
    squashed = g.add("Mul", [*g.add("Tanh", [x]), g.constant(np.float32(0.8))])
    operator = g.one_of(("Tan", "Sinh", "Cosh", "Asin", "Acos", "Atanh", "Asinh", "Acosh"))
    if operator == "Acosh":
        squashed = g.add("Add", [*squashed, g.constant(np.float32(2))])
    g.add(operator, squashed)


def silu(g: Graph) -> None:
    x = g.tensor()
    g.add("Mul", [x, *g.add("Sigmoid", [x])])


def prelu(g: Graph) -> None:
    x = g.tensor(2, 6)
    channels = x.shape[1]
    slopes = g.one_of(((1,), (channels, *(1,) * (x.rank - 2)), x.shape[1:]))
    g.add("PRelu", [x, g.weights(*slopes)])


def hardmax(g: Graph) -> None:
    x = g.tensor()
    g.add("Hardmax", [x], axis=g.number(-x.rank, x.rank - 1))


def norm(g: Graph) -> None:
    x = g.image()
    way = g.one_of(("LpNormalization", "MeanVarianceNormalization", "GlobalLpPool"))
    if way == "LpNormalization":
        g.add(way, [x], axis=g.number(0, x.rank - 1), p=g.number(1, 2))
    elif way == "GlobalLpPool":
        g.add(way, [x], p=g.number(1, 3))
    else:
        g.add(way, [x])


def log_sum(g: Graph) -> None:
    x = g.tensor()
    positive = g.add("Add", [*g.add("Abs", [x]), g.constant(np.float32(0.5))])
    axes = g.integers(g.number(0, x.rank - 1))
    g.add("ReduceLogSum", [*positive, axes], keepdims=g.number(0, 1))


def shapes(g: Graph) -> None:
    """Sizes, which are known, in what is computed."""
    x = g.tensor()
    size = g.add("Cast", g.add(g.one_of(("Shape", "Size")), [x]), to=FLOAT)
    g.add("Add", [*size, g.fresh((1,))])


def tests(g: Graph) -> None:
    x = g.tensor()
    found = g.add(g.one_of(("IsNaN", "IsInf")), [x])
    if found and g.flag():
        g.add("Where", [*found, g.constant(np.float32(0)), x])


def shifts(g: Graph) -> None:
    x = g.tensor(kind=UINT8)
    amount = g.constant(np.uint8(g.number(0, 7)))
    g.add("BitShift", [x, amount], direction=g.one_of(("LEFT", "RIGHT")))


def cast_like(g: Graph) -> None:
    x = g.tensor(kind=g.one_of((FLOAT, INT32, INT64)))
    if x.kind == FLOAT:
        g.add("CastLike", [*g.add("Mul", [*g.add("Tanh", [x]), g.constant(np.float32(9))]),
                           g.constant(np.int32(0))])  # fmt: skip
    else:
        g.add("CastLike", [x, g.constant(np.float32(0))])


def eye(g: Graph) -> None:
    x = g.tensor(2, 2)
    g.add("Add", [x, *g.add("EyeLike", [x], k=g.number(-1, 1))])


def dropout(g: Graph) -> None:
    g.add("Dropout", [g.tensor()])


def scatter_elements(g: Graph) -> None:
    x = g.tensor(1, 4)
    axis = g.number(0, x.rank - 1)
    shape = list(x.shape)
    shape[axis] = g.number(1, x.shape[axis])
    # Each place once: the order of several writes is nobody's promise.
    places = np.arange(shape[axis])[::-1].reshape([-1 if a == axis else 1 for a in range(x.rank)])
    indices = np.broadcast_to(places, shape).astype(np.int64)
    updates = g.fresh(shape, x.kind)
    g.add("ScatterElements", [x, g.constant(np.ascontiguousarray(indices)), updates], axis=axis)


def gather_nd(g: Graph) -> None:
    x = g.tensor(1, 5)
    depth, count = g.number(1, x.rank), g.number(1, 4)
    rows = [[g.number(0, x.shape[a] - 1) for a in range(depth)] for _ in range(count)]
    g.add("GatherND", [x, g.constant(np.array(rows, np.int64))])


def reverse_sequence(g: Graph) -> None:
    x = g.tensor(2, 5)
    lengths = g.integers(*(g.number(1, x.shape[0]) for _ in range(x.shape[1])))
    g.add("ReverseSequence", [x, lengths], time_axis=0, batch_axis=1)


def recurrent(g: Graph) -> None:
    x = g.value(lambda v: v.rank == 3, lambda: (g.number(1, 4), g.number(1, 2), g.number(1, 8)))
    operator, gates = g.one_of((("RNN", 1), ("GRU", 3), ("LSTM", 4)))
    hidden, direction = g.number(1, 6), g.one_of(("forward", "reverse", "bidirectional"))
    ways, inner = 1 + (direction == "bidirectional"), x.shape[2]
    operands: list[Value | str] = [
        x,
        g.weights(ways, gates * hidden, inner, fan_in=inner),
        g.weights(ways, gates * hidden, hidden, fan_in=hidden),
    ]
    if g.flag():
        operands.append(g.weights(ways, 2 * gates * hidden))
    g.add(operator, operands, hidden_size=hidden, direction=direction)


def grid_sample(g: Graph) -> None:
    x = g.image()
    grid = g.add("Tanh", [g.fresh((x.shape[0], g.number(1, 5), g.number(1, 5), 2))])
    g.add(
        "GridSample",
        [x, *grid],
        mode=g.one_of(("linear", "nearest")),
        padding_mode=g.one_of(("zeros", "border")),
        align_corners=g.number(0, 1),
    )


def regions(g: Graph) -> None:
    x = g.image()
    height, width = x.shape[2:]
    boxes = [[0.2, 0.3, width * 0.9, height * 0.8], [0.0, 0.0, 1.0 + width / 2, 1.0 + height / 2]]
    rois = g.constant(np.array(boxes, np.float32))
    sizes = {"output_height": g.number(1, 4), "output_width": g.number(1, 4)}
    images = g.integers(0, x.shape[0] - 1)
    g.add("RoiAlign", [x, rois, images], **sizes, sampling_ratio=g.number(1, 2))


def columns(g: Graph) -> None:
    x = g.value(lambda v: v.rank == 3 and v.shape[1] % 4 == 0 and v.shape[2] == 12,
                lambda: (g.number(1, 2), 4 * g.number(1, 3), 12))  # fmt: skip
    g.add("Col2Im", [x, g.integers(4, 5), g.integers(2, 2)])


def determinant(g: Graph) -> None:
    size = g.number(1, 4)
    g.add("Det", [g.fresh((g.number(1, 3), size, size))])


def spectrum(g: Graph) -> None:
    x = g.fresh((g.number(1, 2), g.one_of((3, 8, 12)), g.number(1, 2)))
    g.add("DFT", [x, "", g.constant(np.int64(1))], onesided=0)


def channel_shuffle(g: Graph) -> None:
    """A transpose of rank 5 between two views."""
    groups, each = g.one_of((2, 3, 4)), g.one_of((1, 2, 5, 8))
    channels = groups * each
    x = g.value(lambda v: v.rank == 4 and v.shape[1] == channels, lambda: (1, channels, 4, 5))
    n, c, h, w = x.shape
    apart = g.add("Reshape", [x, g.integers(n, groups, c // groups, h, w)])
    turned = g.add("Transpose", apart, perm=(0, 2, 1, 3, 4))
    g.add("Reshape", [*turned, g.integers(n, c, h, w)])


def heads_of_one_product(g: Graph) -> None:
    """Queries, keys and values of one product: the transpose of rank 5 that every ViT has."""
    heads, width, tokens = g.number(1, 3), g.one_of((4, 8)), g.one_of((5, 8, 10))
    inner = heads * width
    x = g.value(
        lambda v: v.rank == 3 and v.shape[2] == inner, lambda: (g.number(1, 2), tokens, inner)
    )
    batch, tokens, _ = x.shape
    made = g.add("MatMul", [x, g.weights(inner, 3 * inner, fan_in=inner)])
    made = g.add("Reshape", [*made, g.integers(batch, tokens, 3, heads, width)])
    made = g.add("Transpose", made, perm=(2, 0, 3, 1, 4))
    parts = [g.add("Gather", [*made, g.constant(np.int64(n))], axis=0) for n in range(3)]
    if not all(parts):
        return
    query, key, value = (part[0] for part in parts)
    keys = g.add("Transpose", [key], perm=(0, 1, 3, 2))
    scores = g.add("Mul", [*g.add("MatMul", [query, *keys]), g.constant(np.float32(width**-0.5))])
    g.add("MatMul", [*g.add("Softmax", scores, axis=-1), value])


def nchw_to_rows(g: Graph) -> None:
    """What comes between convolutions and attention, and back."""
    x = g.image()
    n, c, h, w = x.shape
    rows = g.add("Transpose", g.add("Reshape", [x, g.integers(n, c, h * w)]), perm=(0, 2, 1))
    if rows and g.flag():
        rows = g.add("MatMul", [*rows, g.weights(c, c, fan_in=c)])
        g.add("Reshape", [*g.add("Transpose", rows, perm=(0, 2, 1)), g.integers(n, c, h, w)])


def windows_of_images(g: Graph) -> None:
    """An image cut in windows: a transpose of rank 6."""
    side, c = g.one_of((2, 3)), g.one_of((1, 4, 8))
    x = g.value(
        lambda v: v.rank == 4 and v.shape[2] % side == v.shape[3] % side == 0,
        lambda: (1, c, 2 * side, 3 * side),
    )
    n, c, h, w = x.shape
    made = g.add("Reshape", [x, g.integers(n, c, h // side, side, w // side, side)])
    made = g.add("Transpose", made, perm=g.one_of(((0, 2, 4, 3, 5, 1), (0, 1, 3, 5, 2, 4))))
    g.add("Reshape", [*made, g.integers(-1, side * side)])


def every_other(g: Graph) -> None:
    """Slices with steps side by side: what downsampling by hand is."""
    x = g.value(lambda v: v.rank == 4 and v.shape[3] % 2 == 0, lambda: (1, 3, 4, 6))
    axes, steps, ends = g.integers(3), g.integers(2), g.integers(2**31)
    parts = [g.add("Slice", [x, g.integers(n), ends, axes, steps]) for n in range(2)]
    if all(parts):
        g.add("Concat", [parts[0][0], parts[1][0]], axis=1)


def quantised_pairs(g: Graph) -> None:
    """A convolution or a product whose operands come from integers, and whose result goes there."""
    x, signed = g.image(), g.flag()
    zero = g.constant(np.int8(3) if signed else np.uint8(128))
    scale, fine = g.constant(np.float32(0.03)), g.constant(np.float32(0.01))

    def through(value: Value | str) -> list[Value]:
        quantised = g.add("QuantizeLinear", [value, scale, zero])
        return g.add("DequantizeLinear", [*quantised, scale, zero]) if quantised else []

    outputs, channels = g.one_of((1, 3, 8)), x.shape[1]
    random = np.random.default_rng(channels)
    array = random.integers(-127, 128, (outputs, channels, 1, 1)).astype(np.int8)
    weights = g.add("DequantizeLinear", [g.constant(array), fine])
    given = through(x)
    if weights and given:
        made = g.add("Conv", [given[0], weights[0]])
        if made:
            through(made[0])


def integer_product(g: Graph) -> None:
    """Products of integers in their own operators."""
    x = g.fresh((g.number(1, 4), g.number(1, 9)), UINT8)
    inner, outputs = x.shape[1], g.one_of((1, 4, 16))
    random = np.random.default_rng(inner)
    w = g.constant(random.integers(-127, 128, (inner, outputs)).astype(np.int8))
    scale, fine, wide = (g.constant(np.float32(s)) for s in (0.05, 0.01, 0.1))
    zero, none = g.constant(np.uint8(7)), g.constant(np.int8(0))
    g.add("QLinearMatMul", [x, scale, zero, w, fine, none, wide, zero])


def bool_chain(g: Graph) -> None:
    """Comparisons that choose."""
    x = g.tensor()
    mask = g.add(g.one_of(("Greater", "Less")), [x, g.constant(np.float32(0.1))])
    if mask and g.flag():
        mask = g.add("Not", mask)
    chosen = g.value(lambda v: v.kind == BOOL and v.shape == x.shape, lambda: x.shape, BOOL)
    both = g.add("And", [*mask, chosen]) if mask else []
    g.add("Where", [*both, x, g.constant(np.float32(-1))]) if both else []


OTHERS: tuple[Callable[[Graph], None], ...] = (
    *(trigonometric, silu, prelu, hardmax, norm, log_sum, shapes, tests, shifts, cast_like, eye),
    *(dropout, scatter_elements, gather_nd, reverse_sequence, recurrent, grid_sample),
    *(regions, columns, determinant, spectrum, channel_shuffle, channel_shuffle),
    *(heads_of_one_product, nchw_to_rows, windows_of_images, every_other, quantised_pairs),
    *(integer_product, bool_chain),
)

__all__ = ["OTHERS"]
