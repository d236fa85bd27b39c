"""Rules that move padding into the next operation, and turn means of whole images into pools."""

from __future__ import annotations

import numpy as np

from tilewright.graph.operations import Operation
from tilewright.graph.operations.reductions import ReduceMeanOp
from tilewright.graph.passes.constraints import fills
from tilewright.graph.passes.editing import Rewriter, producer
from tilewright.ir import PythonValue, VerifyException
from tilewright.ir.types import shape_of

_LOWEST = float(np.finfo(np.float32).min)


def merge_pad(op: Operation, at: Rewriter) -> bool:
    """pad(0) before a convolution or average, pad(lowest) before a maximum.

    Before a convolution on a machine whose images' padding may hold it, any integer of 8 bits
    becomes the convolution's ``fill``. In an average the padding counts. Zeros before a
    maximum are dropped too if what is padded is never negative. Windows that would lie wholly in
    padding keep the pad.
    """
    pad = producer(op.inputs[0], "pad")
    if pad is None or pad.get("mode", "constant") != "constant" or len(pad.inputs) > 1:
        return False
    fill = _fill(op, pad, at)
    if fill is None and not _is_neutral(op, pad):
        return False
    amounts = pad.integers("pads")
    if len(amounts) != 8 or any(amounts[axis] for axis in (0, 1, 4, 5)):
        return False
    around = tuple(amounts[axis] for axis in (2, 3, 6, 7))
    values: dict[str, PythonValue] = dict(op.values)
    if fill is not None:
        values["fill"] = fill
    for name in ("pads", "counted") if op.operation == "average_pool" else ("pads",):
        values[name] = tuple(a + b for a, b in zip(op.integers(name), around, strict=True))
    try:
        merged = at.make(op.operation, pad.inputs[0], *op.inputs[1:], **values)
    except VerifyException:
        return False
    return at.replace(merged, pad)


def _fill(op: Operation, pad: Operation, at: Rewriter) -> int | None:
    """Return the fill of a convolution's padding once a pad is merged into it; None for zeros, and
    where the convolution's own padding holds something else."""
    value, fill = float(pad.get("value", 0.0)), op.get("fill", 0)
    if op.operation != "conv" or not fills(op, at.machine):
        return None
    if not value.is_integer() or (any(op.integers("pads")) and value != fill):
        return None
    return int(value) or None


def _is_neutral(op: Operation, pad: Operation) -> bool:
    value = float(pad.get("value", 0.0))
    if op.get("fill", 0):
        return False
    if op.operation != "max_pool":
        return value == 0
    source = getattr(pad.inputs[0].owner, "name", "")
    return value <= _LOWEST or (value == 0 and source in ("graph.relu", "graph.sigmoid"))


def mean_to_pool(op: Operation, at: Rewriter) -> bool:
    """The mean over height and width of images is an average over one window, be they transposed
    before it or not (tf2onnx writes images with the channels last)."""
    if not isinstance(op, ReduceMeanOp) or len(shape_of(op.inputs[0])) != 4:
        return False
    images, axes = op.inputs[0], op.reduced(4)
    before = producer(images, "transpose")
    if before is not None:
        order = before.integers("permutation")
        kept = [axis for number, axis in enumerate(order) if number not in axes]
        if kept == sorted(kept):
            images, axes = before.inputs[0], tuple(sorted(order[axis] for axis in axes))
    if axes != (2, 3):
        return False
    result = at.make("average_pool", images, kernel=shape_of(images)[2:])
    if shape_of(op.result) != shape_of(result):
        result = at.make("reshape", result, shape=shape_of(op.result))
    return at.replace(result)
