"""The operators Gemm, MatMul, Det, and Einsum, which is one product for each further operand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from tilewright.frontends.moves import cut
from tilewright.frontends.onnx.limits import MAX_TEXT
from tilewright.frontends.onnx.lowering import Lowering, Value
from tilewright.frontends.onnx.tensors import Constant
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of

_SCALED = "graph.dequantise_linear"
"""The operation that results in a bias that is kept as integers."""


def gemm(at: Lowering) -> SSAValue:
    """alpha * a @ b + beta * c; constant factors are folded into constant operands."""
    for index in (0, 1):
        if len(at.shape(index)) != 2:
            raise at.misfit(f"its input {index} has shape {list(at.shape(index))}, not rank 2")
    b = scaled(at, 1, at.number("alpha", 1.0))
    flags = {"transpose_a": bool(at.integer("transA")), "transpose_b": bool(at.integer("transB"))}
    a = at.tensor(0)
    rows = at.shape(0)[1 if flags["transpose_a"] else 0]
    columns = at.shape(1)[0 if flags["transpose_b"] else 1]
    beta = at.number("beta", 1.0)
    if not at.has(2) or beta == 0:
        return at.emit("matmul", a, b, **flags)
    shape = at.shape(2)
    if len(shape) > 2 or any(
        have not in (1, want) for have, want in zip(shape[::-1], (columns, rows), strict=False)
    ):
        raise at.misfit(f"c of shape {list(shape)} does not broadcast to {[rows, columns]}")
    c = at.operand(2)
    if isinstance(c, Constant) and math.prod(shape[:-1]) == 1 and c.array.dtype == np.float32:
        # One row for all: a bias.
        row = np.broadcast_to(c.array.reshape(-1), (columns,)) * np.float32(beta)
        return at.emit("matmul", a, b, at.weight(row, c.name), **flags)
    if shape == (columns,) and beta == 1 and getattr(at.tensor(2).owner, "name", "") == _SCALED:
        return at.emit("matmul", a, b, at.tensor(2), **flags)
    return at.emit("add", at.emit("matmul", a, b, **flags), scaled(at, 2, beta))


def scaled(at: Lowering, index: int, factor: float) -> SSAValue:
    """An operand times a number; the product of constants is taken at once."""
    value = at.operand(index)
    if factor == 1:
        return at.tensor(index)
    if isinstance(value, Constant) and value.array.dtype == np.float32:
        with np.errstate(all="ignore"):
            return at.weight(value.array * np.float32(factor), value.name)
    number = at.weight(np.array(factor, np.float32), f"{at.node.name}.factor")
    return at.emit("mul", at.tensor(index), number)


def matmul(at: Lowering) -> SSAValue:
    """NumPy's matmul: leading axes broadcast; a vector counts as one row or one column."""
    left, right = at.shape(0), at.shape(1)
    if not left or not right:
        raise at.misfit("it takes no scalars")
    a = at.tensor(0) if len(left) > 1 else at.shaped(at.operand(0), (1, *left))
    b = at.tensor(1) if len(right) > 1 else at.shaped(at.operand(1), (*right, 1))
    # The row or the column that an operand of rank 1 has added goes again.
    result = at.emit("matmul", a, b)
    shape = list(shape_of(result))
    if len(left) == 1:
        del shape[-2]
    if len(right) == 1:
        del shape[-1]
    return at.reshape(result, shape)


def determinant(at: Lowering) -> Value:
    """Laplace's expansion by rows, every minor once: n 2^(n-1) products."""
    shape = at.shape(0)
    size = shape[-1] if shape else 0
    if not 1 <= size <= 8 or shape[-2:] != (size, size):
        raise at.misfit(f"determinants of {list(shape[-2:])} are not computed; at most 8 x 8")
    flat = at.reshape(at.tensor(0), (math.prod(shape[:-2]), size * size))

    def element(row: int, column: int) -> SSAValue:
        place = row * size + column
        return cut(at, flat, {1: (place, place + 1, 1)})

    minors: dict[tuple[int, ...], SSAValue] = {(c,): element(size - 1, c) for c in range(size)}
    for count in range(2, size + 1):
        row = size - count
        larger: dict[tuple[int, ...], SSAValue] = {}
        for columns in itertools.combinations(range(size), count):
            total: SSAValue | None = None
            for i, column in enumerate(columns):
                rest = columns[:i] + columns[i + 1 :]
                term = at.emit("mul", element(row, column), minors[rest])
                sign = "sub" if i % 2 else "add"
                total = term if total is None else at.emit(sign, total, term)
            assert total is not None
            larger[columns] = total
        minors = larger
    return at.reshape(minors[tuple(range(size))], shape[:-2])


def einsum(at: Lowering) -> Value:
    """The equation's product; letters that the result lacks are summed over."""
    terms, result = _parse(at)
    extents: dict[str, int] = {}
    for index, letters in enumerate(terms):
        if len(letters) != len(at.shape(index)):
            raise at.refuse(f"{''.join(letters)!r} does not fit input {index}")
        for letter, extent in zip(letters, at.shape(index), strict=True):
            if extents.setdefault(letter, extent) not in (extent, 1) and extent != 1:
                raise at.misfit(f"{letter!r} has two extents")
            extents[letter] = max(extents[letter], extent)
    value, letters = _diagonal(at, at.tensor(0), terms[0])
    for index in range(1, len(terms)):
        later = {letter for term in (*terms[index + 1 :], result) for letter in term}
        other, subscripts = _diagonal(at, at.tensor(index), terms[index])
        value, letters = _product(at, (value, letters), (other, subscripts), later)
    gone = tuple(i for i, letter in enumerate(letters) if letter not in result)
    if gone:
        value = at.emit("reduce_sum", value, axes=gone, keep_dims=False)
        letters = [letter for letter in letters if letter in result]
    return at.transpose(value, [letters.index(letter) for letter in result])


def _parse(at: Lowering) -> tuple[list[list[str]], list[str]]:
    """Letters of every operand and of the result; an ellipsis becomes digits, from the right."""
    text = at.text("equation").replace(" ", "")
    if len(text) > MAX_TEXT:
        reason = f"its equation has {len(text)} characters; the limit is {MAX_TEXT}"
        raise at.refuse(reason, code="onnx-too-large")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if len(parts) != len(at.operands):
        raise at.refuse(f"the equation {text!r} is not of {len(at.operands)} inputs")
    terms: list[list[str]] = []
    wide = 0
    for index, part in enumerate(parts):
        rank = len(at.shape(index)) - len(part.replace("...", ""))
        if "..." in part:
            wide = max(wide, rank)
        terms.append(_letters(at, part, rank if "..." in part else 0))
    if arrow:
        return terms, _letters(at, right, wide)
    listed = [letter for term in terms for letter in term]
    once = sorted(x for x in set(listed) if x.isalpha() and listed.count(x) == 1)
    return terms, [*(str(i) for i in range(wide - 1, -1, -1)), *once]


def _letters(at: Lowering, part: str, wide: int) -> list[str]:
    before, dots, after = part.partition("...")
    letters = [*before, *(str(i) for i in range(wide - 1, -1, -1) if dots), *after]
    if not all(len(x) == 1 and x.isascii() and x.isalnum() for x in letters) or wide > 9:
        raise at.refuse(f"{part!r} is not a list of letters")
    return letters


def _diagonal(at: Lowering, x: SSAValue, letters: Sequence[str]) -> tuple[SSAValue, list[str]]:
    """An operand with each letter once: repeated ones take a diagonal."""
    axes = list(letters)
    for letter in sorted({x for x in letters if letters.count(x) > 1}):
        while axes.count(letter) > 1:
            shape = shape_of(x)
            first = axes.index(letter)
            second = axes.index(letter, first + 1)
            rest = [i for i in range(len(axes)) if i not in (first, second)]
            x = at.transpose(x, [first, second, *rest])
            extent, inner = shape[first], [shape[i] for i in rest]
            x = at.reshape(x, (extent * extent, *inner))
            places = np.arange(extent, dtype=np.int64) * (extent + 1)
            x = at.emit("gather", x, at.weight(places, f"{at.node.name}.diagonal"), axis=0)
            axes = [letter, *(axes[i] for i in rest)]
    return x, axes


def _product(
    at: Lowering,
    left: tuple[SSAValue, list[str]],
    right: tuple[SSAValue, list[str]],
    later: set[str],
) -> tuple[SSAValue, list[str]]:
    """Two operands as one: axes of both that no later operand needs are summed."""
    (x, left_letters), (y, right_letters) = left, right
    x, left_letters = _summed(at, x, left_letters, {*right_letters, *later})
    y, right_letters = _summed(at, y, right_letters, {*left_letters, *later})
    both = [letter for letter in left_letters if letter in right_letters]
    batch = [letter for letter in both if letter in later]
    inner = [letter for letter in both if letter not in later]
    rows = [letter for letter in left_letters if letter not in both]
    columns = [letter for letter in right_letters if letter not in both]
    sizes = dict(zip(left_letters, shape_of(x), strict=True))
    wide = dict(zip(right_letters, shape_of(y), strict=True))
    x = at.transpose(x, [left_letters.index(letter) for letter in (*batch, *rows, *inner)])
    y = at.transpose(y, [right_letters.index(letter) for letter in (*batch, *inner, *columns)])
    uneven = any(sizes[letter] != wide[letter] for letter in both)
    if uneven or not inner:
        # Nothing to sum over, or extents of 1 that broadcast: a product of elements.
        lead, rest = [*batch, *rows], [wide[i] for i in (*inner, *columns)]
        x = at.reshape(x, (*(sizes[i] for i in (*lead, *inner)), *(1 for _ in columns)))
        y = at.reshape(y, (*(wide[i] for i in batch), *(1 for _ in rows), *rest))
        value = at.emit("mul", x, y)
        if inner:
            axes = tuple(range(len(lead), len(lead) + len(inner)))
            value = at.emit("reduce_sum", value, axes=axes, keep_dims=False)
        return value, [*lead, *columns]
    b = math.prod(sizes[i] for i in batch)
    k = math.prod(sizes[i] for i in inner)
    m, n = math.prod(sizes[i] for i in rows), math.prod(wide[i] for i in columns)
    value = at.emit("matmul", at.reshape(x, (b, m, k)), at.reshape(y, (b, k, n)))
    shape = [*(sizes[i] for i in (*batch, *rows)), *(wide[i] for i in columns)]
    return at.reshape(value, shape), [*batch, *rows, *columns]


def _summed(
    at: Lowering, x: SSAValue, letters: list[str], needed: set[str]
) -> tuple[SSAValue, list[str]]:
    """An operand without the axes that nothing else needs."""
    gone = tuple(i for i, letter in enumerate(letters) if letter not in needed)
    if not gone:
        return x, letters
    value = at.emit("reduce_sum", x, axes=gone, keep_dims=False)
    return value, [letter for letter in letters if letter in needed]
