"""separate-padding: the wide padding of a convolution becomes an operation of its own."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.graph.dialect import network_of
from tilewright.graph.passes.editing import make, operations_of, replace, sweep
from tilewright.ir import Context, ModuleOp, ModulePass, PythonValue

WIDEST_BORDER = 32
"""Columns; with more, a kernel's C takes the compiler tens of seconds."""


@dataclass(frozen=True)
class SeparatePadding(ModulePass):
    """Store an image with its padding where a machine has no loop for so wide a border.

    Before::

        %1 = graph.conv %x, %w {pads = [0, 255, 0, 255]} : (tensor<1x4x1x700xf32>,
             tensor<3x4x1x511xf32>) -> tensor<1x3x1x700xf32>

    After::

        %1 = graph.pad %x {pads = [0, 0, 0, 255, 0, 0, 0, 255]} : ... -> tensor<1x4x1x1210xf32>
        %2 = graph.conv %1, %w {pads = [0, 0, 0, 0]} : ... -> tensor<1x3x1x700xf32>

    Done for convolutions with more than ``WIDEST_BORDER`` columns of padding on one side. The C has
    a function for each way in which a tile of columns meets the border, with all taps written out:
    code and compile time would grow with the square of the window. The copy of the image is little
    beside the products of all taps.
    """

    name = "separate-padding"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        for step in operations_of(op):
            if step.operation != "conv":
                continue
            top, left, bottom, right = step.integers("pads")
            if max(left, right) <= WIDEST_BORDER:
                continue
            values: dict[str, PythonValue] = {
                "pads": (0, 0, top, left, 0, 0, bottom, right),
                "value": float(step.number("fill")) if step.get("fill") else 0.0,
            }
            image = make("pad", [step.inputs[0]], values, before=step, like=step)
            kept = {name: value for name, value in step.values.items() if name != "fill"}
            inputs = [image.result, *step.inputs[1:]]
            conv = make("conv", inputs, {**kept, "pads": (0, 0, 0, 0)}, before=step, like=step)
            replace(step, conv.result)
        sweep(network_of(op))
