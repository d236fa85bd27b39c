"""A DaVinci core whose cube and vector unit compute in fixed point, as the thesis plans for it."""

from __future__ import annotations

from tilewright.machine import Machine, Primitive, Storage
from tilewright.targets.ascend.machine import CUBE, DaVinci, machine_of


def fixed_point_machine(core: DaVinci) -> Machine:
    """The core's machine with a product and elementwise operations."""
    products = Primitive(
        name="mad",
        operations=("matmul",),
        engine="m",
        operands={
            "input": Storage(memory="ca", multiples=dict.fromkeys(("n", "m", "ci"), CUBE)),
            "weight": Storage(memory="cb", multiples={"co": CUBE, "ci": CUBE}),
            "output": Storage(memory="cc", multiples=dict.fromkeys(("n", "m", "co"), CUBE)),
        },
        epilogue=(("requantise",),),
        cycles="b0*b1*ceil(n*m/16)*ceil(co/16)*ceil(ci/16)",
        peak="b0*b1*n*m*co*ci/4096",
        multiples=dict.fromkeys(("n", "m", "co", "ci"), CUBE),
    )
    points = Primitive(
        name="vector",
        operations=("add", "sub", "mul", "relu", "clip", "requantise"),
        engine="v",
        operands=dict.fromkeys(("input", "weight", "residual", "output"), Storage(memory="ub")),
        epilogue=(("add",), ("relu", "clip")),
        cycles="ceil(d0*d1*d2*d3*d4*d5/128)",
        peak="d0*d1*d2*d3*d4*d5/128",
    )
    primitives = (products, points) if core.ub else (products,)
    return machine_of(core).model_copy(update={"primitives": primitives})
