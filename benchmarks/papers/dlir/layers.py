"""The five layers of the thesis' sweeps (section 5.3.2.2), as kernels of 16-bit fixed point."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tilewright.machine import Machine
from tilewright.planning.cost.bounds import primitives_for
from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Stage


def _one(name: str) -> Affine:
    return Affine(((name, 1),))


def convolution(ci: int, co: int, size: int, kernel: int) -> Kernel:
    """A convolution that keeps the size of its map."""
    pad = kernel // 2
    dims = [Dim("n", 1), Dim("co", co), Dim("oh", size), Dim("ow", size)]
    dims += [Dim(n, e, "reduction") for n, e in (("ci", ci), ("kh", kernel), ("kw", kernel))]
    rows, columns = (
        Affine(((out, 1), (tap, 1)), -pad) for out, tap in (("oh", "kh"), ("ow", "kw"))
    )
    inputs = (
        Operand("x", (1, ci, size, size), (_one("n"), _one("ci"), rows, columns), "fixed16"),
        Operand(
            "w",
            (co, ci, kernel, kernel),
            (_one("co"), _one("ci"), _one("kh"), _one("kw")),
            "fixed16",
            "weight",
        ),
    )
    access = (_one("n"), _one("co"), _one("oh"), _one("ow"))
    return _requantised("conv", dims, inputs, (1, co, size, size), access)


def connected(ci: int, co: int) -> Kernel:
    """A fully connected layer."""
    dims = [Dim("n", 1), Dim("co", co), Dim("ci", ci, "reduction")]
    inputs = (
        Operand("x", (1, ci), (_one("n"), _one("ci")), "fixed16"),
        Operand("w", (co, ci), (_one("co"), _one("ci")), "fixed16", "weight"),
    )
    return _requantised("matmul", dims, inputs, (1, co), (_one("n"), _one("co")))


def _requantised(
    operation: str,
    dims: list[Dim],
    inputs: tuple[Operand, ...],
    shape: tuple[int, ...],
    access: tuple[Affine, ...],
) -> Kernel:
    """The product with its sums brought back to 16 bits."""
    sums = Operand("s", shape, access, "fixed32", "output")
    result = Operand("y", shape, access, "fixed16", "output")
    product = Stage(operation, tuple(dims), inputs, sums)
    parallel = tuple(dim for dim in dims if dim.kind == "parallel")
    last = Stage("requantise", parallel, (sums,), result)
    return Kernel("layer", (product, last))


LAYERS: Mapping[str, Callable[[], Kernel]] = {
    "fc1": lambda: connected(9216, 4096),
    "fc2": lambda: connected(4096, 4096),
    "conv1": lambda: convolution(96, 256, 27, 5),
    "fc3": lambda: connected(4096, 1000),
    "conv2": lambda: convolution(64, 128, 112, 3),
}
"""fc1, fc2 and conv1 of AlexNet, fc3 and conv2 of VGG."""


def layer(name: str, machine: Machine) -> Kernel:
    """One of the layers with its tensors in main memory as the machine's primitives like them."""
    plain = LAYERS[name]()
    primitive = primitives_for(plain, machine)[0]

    def laid_out(operand: Operand) -> Operand:
        rank = len(operand.shape)
        return replace(operand, layout=machine.layout_of(primitive, operand.role, rank))

    return replace(
        plain,
        stages=tuple(
            replace(
                stage,
                inputs=tuple(laid_out(one) for one in stage.inputs),
                output=laid_out(stage.output),
            )
            for stage in plain.stages
        ),
    )
