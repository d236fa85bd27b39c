"""Conv."""

from __future__ import annotations

from tilewright.frontends.onnx.lowering import Lowering, Value
from tilewright.frontends.onnx.tensors import Constant
from tilewright.frontends.onnx.windows import as_image, as_sequence, spatial_rank, window_of


def conv(at: Lowering) -> Value:
    """Convolution over one or two spatial axes; over one, as an image of height 1."""
    rank = spatial_rank(at)
    shape = at.shape(1)
    if len(shape) != rank + 2:
        raise at.refuse(
            f"weights of shape {list(shape)} do not fit the input {list(at.shape(0))}",
            code="onnx-shape",
        )
    kernel = at.integers("kernel_shape") or shape[2:]
    if kernel != shape[2:]:
        raise at.refuse(f"kernel_shape {list(kernel)} is not that of the weights {list(shape)}")
    window = window_of(at, kernel, pool=False)
    weights = at.operand(1)
    if isinstance(weights, Constant) and rank == 1:
        array = weights.array.reshape(*shape[:2], 1, shape[2])
        second = at.weight(array, weights.name)
    else:
        second = as_image(at, at.tensor(1))
    inputs = [as_image(at, at.tensor(0)), second]
    if at.has(2):
        inputs.append(at.tensor(2))
    result = at.emit(
        "conv",
        *inputs,
        group=at.integer("group", 1),
        **window.attributes(kernel=False, dilations=True),
    )
    return as_sequence(at, result, rank)
