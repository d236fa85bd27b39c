"""Concat, reshape, and a change of data format or numbers.

In fixed point the machine itself moves what is joined or reshaped, by its loads and stores, so that
their bytes and cycles count. What has to change its order in memory is moved by the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.errors import refuse
from tilewright.integrations.dlplib.handle import Handle, Operand, Ran
from tilewright.integrations.dlplib.network import OperatorNetwork
from tilewright.ir import SSAValue

MOST_PARTS = 1024


def concat(handle: Handle, axis: int, parts: Sequence[Operand], y: Operand) -> Ran:
    """y = the parts joined along an axis (0 to 3 for N, C, H, W); all of one numeric type."""
    if type(axis) is not int or not 0 <= axis <= 3:
        raise refuse("dlp-parameter", f"axis {axis} is none of N, C, H, W (0 to 3)")
    if not 1 <= len(parts) <= MOST_PARTS:
        raise refuse("dlp-parameter", f"{len(parts)} parts; 1 to {MOST_PARTS} are joined")
    types = {str(part.descriptor.get().type) for part in (*parts, y)}
    if len(types) != 1:
        raise refuse("dlp-type", f"parts and result differ: {', '.join(sorted(types))}")

    def draw(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        values = [net.copied(value) for value in net.values.values()]
        return {"y": values[0] if len(values) == 1 else net.emit("concat", *values, axis=axis)}

    operands = {f"x{index}": part for index, part in enumerate(parts)}
    return handle.run("concat", axis, operands, {"y": y}, draw)


def reshape(handle: Handle, x: Operand, y: Operand) -> Ran:
    """y = the elements of x in logical row-major order, in another shape."""
    dims = y.descriptor.get().dims

    def draw(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        return {"y": net.reshape(net.copied(net.values["x"]), dims)}

    return handle.run("reshape", dims, {"x": x}, {"y": y}, draw)


def transform(handle: Handle, x: Operand, y: Operand) -> Ran:
    """y = x in another data format or with another binary point, rounded half up, saturated."""

    def draw(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        value = net.values["x"]
        if x.descriptor.get().type == y.descriptor.get().type:
            value = net.copied(value)
        return {"y": value}

    return handle.run("transform", None, {"x": x}, {"y": y}, draw)
