"""HIVM text, executed in NumPy: what the operations' published descriptions say of arrays.

Memory that nothing has written holds NaN, so that a result which depends on it shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import erf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
DTYPES = {"f16": np.float16, "f32": np.float32}
CUBE = 16

INDICES: Mapping[str, Callable[[int, int], int]] = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.minsi": min,
    "arith.maxsi": max,
    "arith.floordivsi": lambda a, b: a // b,
    "arith.remsi": lambda a, b: a % b,
}

BINARY: Mapping[str, Callable[[Array, Array], Array]] = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vmul": np.multiply,
    "vdiv": np.divide,
    "vmax": np.maximum,
    "vmin": np.minimum,
}
UNARY: Mapping[str, Callable[[Array], Array]] = {
    "vexp": np.exp,
    "vln": np.log,
    "vsqrt": np.sqrt,
    "vtanh": np.tanh,
    "vabs": np.abs,
    "vrelu": lambda x: np.maximum(x, 0),
    "vrec": np.reciprocal,
    "verf": np.vectorize(erf),
    "vcast": lambda x: x,
    "copy": lambda x: x,
}


def execute(text: str, arguments: list[Array]) -> None:
    """Run a module's one function; its arguments are written in place."""
    head = re.search(r"func\.func @\w+\((.*)\)\n", text)
    assert head is not None
    names = re.findall(r"(%\w+):", head[1])
    body = text[text.index("{\n", head.end()) + 1 :].splitlines()
    lines = [line.strip() for line in body]
    _run(lines[: lines.index("return")], dict(zip(names, arguments, strict=True)))


def _run(lines: list[str], values: dict[str, Any]) -> None:
    at = 0
    while at < len(lines):
        line = lines[at]
        loop = re.fullmatch(r"scf\.for (%\w+) = (%\w+) to (%\w+) step (%\w+) \{", line)
        condition = re.fullmatch(r"scf\.if (%\w+) \{", line)
        if condition:
            end = _skipped(lines, at)
            if values[condition[1]]:
                _run(lines[at + 1 : end], dict(values))
            at = end
        elif loop:
            end = _skipped(lines, at)
            first, last, step = (values[loop[n]] for n in (2, 3, 4))
            for index in range(first, last, step):
                _run(lines[at + 1 : end], {**values, loop[1]: index})
            at = end
        elif line:
            _line(line, values)
        at += 1


def _skipped(lines: list[str], at: int) -> int:
    """The end of the block that a line begins."""
    depth = 1
    while depth:
        at += 1
        depth += lines[at].endswith("{") - (lines[at] == "}")
    return at


def _line(line: str, values: dict[str, Any]) -> None:
    if line.startswith("annotation.mark"):
        return
    if line.startswith("hivm.hir."):
        _instruction(line.removeprefix("hivm.hir."), values)
        return
    name, text = line.split(" = ", 1)
    operation, rest = text.split(" ", 1) if " " in text else (text, "")
    used = [values[word] for word in re.findall(r"%\w+", rest)]
    match operation:
        case "arith.constant":
            number, _, kind = rest.partition(" : ")
            if number.startswith("0x"):
                values[name] = np.uint16(int(number, 16)).view(np.float16)
            elif kind == "index":
                values[name] = int(number)
            else:
                values[name] = number == "true" or float(number)
        case _ if operation in INDICES:
            values[name] = INDICES[operation](*used)
        case "arith.cmpi":
            values[name] = used[0] == used[1] if rest.startswith("eq") else used[0] > used[1]
        case "arith.andi":
            values[name] = used[0] and used[1]
        case "memref.alloc()":
            shape, dtype = _type(rest)
            values[name] = np.full([int(n) for n in shape], np.nan, dtype)
        case "memref.subview":
            values[name] = _part(rest, values)
        case "memref.reinterpret_cast":
            values[name] = _laid(rest, values)
        case "memref.transpose":
            order = re.search(r"-> \(([a0-9, ]+)\)", rest)
            assert order is not None
            values[name] = used[0].transpose([int(a[1:]) for a in order[1].split(", ")])
        case _:
            raise AssertionError(f"no meaning for {operation}")


def _type(text: str) -> tuple[list[str], Any]:
    found = re.search(r"memref<((?:[0-9?]+x)*)(f16|f32)", text)
    assert found is not None
    return found[1].split("x")[:-1], DTYPES[found[2]]


def _part(text: str, values: Mapping[str, Any]) -> Array:
    source = values[text.split("[", 1)[0]]
    boxes = re.findall(r"\[([^\]<>]*)\]", text.split(" : ", 1)[0])
    starts, sizes, steps = (
        [values[n] if n.startswith("%") else int(n) for n in box.split(", ")] for box in boxes
    )
    places = list(zip(starts, sizes, steps, strict=True))
    for (start, size, step), held in zip(places, source.shape, strict=True):
        assert size >= 0 and start >= 0, "a box beyond its memory"
        assert start + (size - 1) * step < held, "a box beyond its memory"
    box = source[tuple(slice(a, a + n * step, step) for a, n, step in places)]
    wanted = [None if n == "?" else int(n) for n in _type(text.split(" to ", 1)[1])[0]]
    # Of axes of one index as many are left out as the result has fewer.
    dropped: list[int] = []
    place = 0
    for axis, size in enumerate(box.shape):
        left = len(box.shape) - axis
        if place < len(wanted) and wanted[place] in (None, size) and left >= len(wanted) - place:
            fits = size != 1 or left == len(wanted) - place
            if fits:
                place += 1
                continue
        assert size == 1
        dropped.append(axis)
    assert place == len(wanted)
    return box.squeeze(tuple(dropped))


def _laid(text: str, values: Mapping[str, Any]) -> Array:
    """Elements of dense memory as a dense box."""
    source: Array = values[text.split(" ", 1)[0]]
    boxes = re.findall(r"(?:offset|sizes|strides): \[([^\]<>]*)\]", text.split(" : ", 1)[0])
    (offset,), sizes, strides = (
        [values[n] if n.startswith("%") else int(n) for n in box.split(", ")] for box in boxes
    )
    assert source.flags.c_contiguous
    assert strides == [prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    assert offset >= 0 and offset + prod(sizes) <= source.size, "a box beyond its memory"
    return source.reshape(-1)[offset : offset + prod(sizes)].reshape(sizes)


def _matrix(blocks: Array) -> Array:
    """A matrix in zN, [columns / 16, rows / 16, 16, 16]."""
    return blocks.transpose(1, 2, 0, 3).reshape(blocks.shape[1] * CUBE, blocks.shape[0] * CUBE)


def _instruction(text: str, values: Mapping[str, Any]) -> None:
    name = re.match(r"\w+", text)[0]  # type: ignore[index]
    ins, outs = re.search(r"ins\(([^:]*):", text), re.search(r"outs\((%\w+)", text)
    assert ins is not None and outs is not None
    inputs = [values[word] for word in ins[1].strip().split(", ")]
    output: Array = values[outs[1]]
    with np.errstate(all="ignore"):
        if name in ("load", "store"):
            assert inputs[0].shape == output.shape
            output[...] = inputs[0]
        elif name == "nd2nz":
            # Rows behind the last stay as they are; what fills the last block of columns is open.
            rows, columns = inputs[0].shape
            matrix = _matrix(output).copy()
            matrix[:rows] = np.nan
            matrix[:rows, :columns] = inputs[0]
            r, c = matrix.shape[0] // CUBE, matrix.shape[1] // CUBE
            output[...] = matrix.reshape(r, CUBE, c, CUBE).transpose(2, 0, 1, 3)
        elif name == "vbrc":
            output[...] = inputs[0]
        elif name == "mmadL1":
            _product(text, inputs, output)
        elif name == "fixpipe":
            rows, columns = output.shape
            sums = _matrix(inputs[0])[:rows, :columns]
            assert ("F322F16" in text) == (output.dtype == np.float16)
            output[...] = np.maximum(sums, 0) if "NORMAL_RELU" in text else sums
        elif name == "vreduce":
            axes = tuple(int(n) for n in re.search(r"reduce_dims = \[(.*)\]", text)[1].split(", "))  # type: ignore[index]
            fold = {"max": np.max, "sum": np.sum}[re.search(r"<(\w+)>", text)[1]]  # type: ignore[index]
            output[...] = fold(inputs[0], axis=axes, keepdims=True)
        elif name == "vtranspose":
            order = re.search(r"permutation = \[(.*)\]", text)[1].split(", ")  # type: ignore[index]
            output[...] = inputs[0].transpose([int(n) for n in order])
        elif name in BINARY:
            left, right = inputs
            repeated = re.search(r"broadcast = \[(.*)\]", text)
            axes = {int(n) for n in repeated[1].split(", ")} if repeated else set()
            for each in inputs:
                if isinstance(each, np.ndarray):
                    differ = [a for a, n in enumerate(each.shape) if n != output.shape[a]]
                    assert set(differ) <= axes
            output[...] = BINARY[name](
                left, output.dtype.type(right) if np.isscalar(right) else right
            )
        else:
            output[...] = UNARY[name](inputs[0])


def _product(text: str, inputs: list[Any], output: Array) -> None:
    a, b, first, m, k, n, *bias = inputs
    left, right = _matrix(a), _matrix(b)
    left = (left.T if "a_transpose" in text else left)[:m, :k].astype(np.float32)
    right = (right.T if "b_transpose" in text else right)[:k, :n].astype(np.float32)
    sums = left @ right
    whole: Array = _matrix(output)
    if first:
        whole = np.full(whole.shape, np.nan, np.float32)
        whole[:m, :n] = sums + (bias[0][:n] if bias else 0)
    else:
        whole[:m, :n] += sums
    r, c = whole.shape[0] // CUBE, whole.shape[1] // CUBE
    output[...] = whole.reshape(r, CUBE, c, CUBE).transpose(2, 0, 1, 3)
