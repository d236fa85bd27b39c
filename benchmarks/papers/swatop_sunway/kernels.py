"""Convolutions and products of swATOP's listings as kernels of the sunway machine."""

from __future__ import annotations

from tilewright.numerics.element_types import ElementType
from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Stage


def _axes(text: str) -> tuple[Affine, ...]:
    return tuple(Affine.parse(part) for part in text.split(","))


def convolution(
    batch: int,
    inputs: int,
    outputs: int,
    side: int,
    window: int = 3,
    stride: int = 1,
    element: ElementType = "float32",
) -> Kernel:
    """A convolution whose result has ``side`` x ``side`` positions; nothing is padded.

    Doubles are a variant for timing: registers hold four of them as of floats, and tiles take twice
    the bytes, of LDM and of DMA. No C is emitted for them.
    """
    own = (side - 1) * stride + window
    dims = (
        *(Dim("n", batch), Dim("co", outputs), Dim("oh", side), Dim("ow", side)),
        *(Dim(name, size, "reduction") for name, size in (("ci", inputs), ("kh", window))),
        Dim("kw", window, "reduction"),
    )
    where = _axes(f"n, ci, oh*{stride} + kh, ow*{stride} + kw")
    x = Operand("x", (batch, inputs, own, own), where, element, layout="NCHW")
    shape = (outputs, inputs, window, window)
    w = Operand("w", shape, _axes("co, ci, kh, kw"), element, "weight", layout="IHWO")
    shape = (batch, outputs, side, side)
    y = Operand("y", shape, _axes("n, co, oh, ow"), element, "output", layout="NCHW")
    name = f"conv_{batch}_{inputs}_{outputs}_{side}"
    return Kernel(name, (Stage("conv", dims, (x, w), y),))


def product(rows: int, columns: int, depth: int) -> Kernel:
    """C = A B of so many rows and columns, the rows of A by those of B transposed."""
    dims = (Dim("m", rows), Dim("co", columns), Dim("ci", depth, "reduction"))
    x = Operand("x", (rows, depth), _axes("m, ci"), "float32")
    w = Operand("w", (columns, depth), _axes("co, ci"), "float32", "weight", layout="OI")
    y = Operand("y", (rows, columns), _axes("m, co"), "float32", "output")
    return Kernel(f"product_{rows}_{columns}_{depth}", (Stage("matmul", dims, (x, w), y),))
