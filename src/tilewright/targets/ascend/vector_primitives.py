"""The primitives of the vector unit, for planning: kernels/ has the kernels.

Cycles are those of repeats: 128 halves or 64 floats each; exponentials take twice as many.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.machine import Primitive, Storage
from tilewright.machine.model import MATRICES
from tilewright.numerics.operators import operators
from tilewright.targets.ascend.formats import heads, image, nz
from tilewright.targets.ascend.kernels.recipes import NAMES, RECIPES
from tilewright.targets.ascend.kernels.turning import LINES
from tilewright.targets.ascend.machine import CUBE, DaVinci

POINTS = tuple(
    name
    for name in (*operators("arithmetic", "function"), "identity")
    if NAMES.get(name, name) in RECIPES or name == "pow"
)
"""Elementwise operations that have kernels (kernels/recipes.py)."""

INDICES = ("int64", "int32")
"""Elements of look-ups' indices."""

_MATRICES = ("input", "output")
"""Roles of whole matrices; the others are one row."""

_SCORES = {"m": CUBE, "t": CUBE}

_POINTS = "d0*d1*d2*d3*d4*d5*d6*d7"
_REDUCED = f"{_POINTS}*r0*r1*r2*r3*r4*r5*r6*r7"


def points_of(core: DaVinci) -> tuple[str, ...]:
    """The elementwise operations of a core."""
    return tuple(name for name in POINTS if name != "div" or core.divides)


def vector_primitives() -> tuple[Primitive, ...]:
    """Operations on rows and places of elements, row by row in main memory, and pools of images."""
    roles: tuple[str, ...] = ("input", "weight", "bias", "output")
    rows: dict[str, Storage] = dict.fromkeys(roles, Storage(memory="ub"))
    blocks = {
        role: Storage(memory="ub", layout=f"{MATRICES}{nz()}" if role in _MATRICES else "")
        for role in roles
    }
    planes = Storage(memory="ub", layout=image(), multiples={"c": CUBE})
    images: dict[str, Storage] = dict.fromkeys(roles, planes)

    def primitive(
        name: str,
        operations: tuple[str, ...],
        count: str,
        passes: int,
        whole: tuple[str, ...] = (),
        operands: Mapping[str, Storage] = rows,
    ) -> Primitive:
        return Primitive(
            name=name,
            operations=operations,
            engine="v",
            operands=dict(operands),
            epilogue=(("cast",),),
            cycles=f"ceil({count}*{passes}/64)",
            peak=f"{count}*{passes}/64",
            whole=whole,
        )

    return (
        primitive("softmax", ("softmax",), f"{_POINTS}*axis", 6, ("axis",)),
        primitive("layer_norm", ("layer_norm",), f"{_POINTS}*axis", 7, ("axis",)),
        primitive("softmax_nz", ("softmax",), f"{_POINTS}*axis", 6, ("axis",), blocks),
        primitive("layer_norm_nz", ("layer_norm",), f"{_POINTS}*axis", 7, ("axis",), blocks),
        primitive("fold", ("fold",), _REDUCED, 1),
        primitive(
            *("pool", ("max_pool", "average_pool"), "n*c*oh*ow*kh*kw", 1, ("kh", "kw"), images)
        ),
        primitive("move", ("transpose", "slice", "pad"), _POINTS, 2),
        primitive("cast", ("cast",), _POINTS, 1),
        Primitive(
            name="choose",
            operations=("less", "less_equal", "equal", "select"),
            engine="v",
            operands={
                **dict.fromkeys(
                    ("input", "weight", "residual"),
                    Storage(memory="ub", elements=("float16", "bool")),
                ),
                "output": Storage(memory="ub"),
            },
            epilogue=(("cast",),),
            cycles=f"ceil({_POINTS}*4/128)",
            peak=f"{_POINTS}*4/128",
        ),
        Primitive(
            name="quantise",
            operations=("quantise_linear", "dequantise_linear"),
            engine="v",
            operands={
                "input": Storage(memory="ub", elements=("float16", "int8", "int32")),
                "residual": Storage(memory="ub", elements=("float32",)),
                "output": Storage(memory="ub", elements=("float16", "int8")),
            },
            epilogue=(("cast",),),
            cycles=f"ceil({_POINTS}*6/64)",
            peak=f"{_POINTS}*6/64",
        ),
        Primitive(
            name="look_up",
            operations=("gather",),
            engine="v",
            operands={
                "input": Storage(memory="ub", elements=("float16", *INDICES)),
                "output": Storage(memory="ub"),
            },
            epilogue=(("cast",),),
            cycles=f"ceil({_POINTS}/64)",
            peak=f"{_POINTS}/64",
            # Rows are read where they lie, whatever their number.
            limits={"v": 1},
        ),
        Primitive(
            name="attention_weights",
            operations=("attention_weights",),
            engine="v",
            operands={
                "input": Storage(memory="ub", multiples=_SCORES, element_bytes=4),
                "bias": Storage(memory="ub", multiples=_SCORES),
                "output": Storage(memory="ub", multiples=_SCORES),
            },
            epilogue=(("cast",),),
            cycles="ceil(b0*b1*m*t*9/64)",
            peak="b0*b1*m*t*9/64",
            whole=("t",),
            multiples={"m": CUBE},
            limits={"m": LINES},
            reserved={"ub": 40960},
        ),
        Primitive(
            name="attention",
            operations=("attention",),
            engine="v",
            operands={
                "input": Storage(memory="cbuf", layout=heads()),
                "bias": Storage(memory="ub"),
                "output": Storage(memory="ub", layout=heads()),
            },
            epilogue=(("cast",),),
            # Seven passes over the scores, of floats, and an exponential.
            cycles="ceil(b0*b1*m*t*9/64)",
            peak="b0*b1*m*t*(d+e)/4096",
            whole=("e", "t", "d"),
            extents={"d": (1, 128), "e": (1, 128), "t": (1, 1536)},
        ),
    )
