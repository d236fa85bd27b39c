"""The primitives of the vector unit, for planning: kernels/ has the kernels.

Cycles are those of repeats: 128 halves or 64 floats each; exponentials take twice as many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilewright.machine import Primitive, Storage
from tilewright.machine.model import MATRICES
from tilewright.numerics.operators import operators
from tilewright.targets.ascend.formats import heads, image, nz
from tilewright.targets.ascend.isa import INDEX_ELEMENTS
from tilewright.targets.ascend.isa import LANES as REPEAT
from tilewright.targets.ascend.kernels.folds import MOST_ROWS, fold_bytes
from tilewright.targets.ascend.kernels.recipes import NAMES, RECIPES
from tilewright.targets.ascend.kernels.transposing import LINES
from tilewright.targets.ascend.machine import BLOCK, CUBE, MAX_BURSTS, MAX_REPEAT, DaVinci

POINTS = tuple(
    name
    for name in (*operators("arithmetic", "function"), "identity")
    if NAMES.get(name, name) in RECIPES or name == "pow"
)
"""Elementwise operations that have kernels (kernels/recipes.py)."""

QUANTISED = ("quantise_linear", "dequantise_linear")
"""The operations between halves and integers of 8 bits."""

CHOICES = ("less", "less_equal", "equal", "select")
"""The operations that compare or choose."""

ROOM = 24576
"""The bytes of UB that stay free for what elementwise kernels need beside their tiles."""

_SCORES = {"m": CUBE, "t": CUBE}

_POINTS = "d0*d1*d2*d3*d4*d5*d6*d7"

OUTER = tuple(f"d{number}" for number in range(6))
"""Outer dims of elements.py, of which a tile has one index."""

SUMMED = ("a0", "a1", "a2")
"""Reduced dims of elements.py, of which a tile has one index."""

_ELEMENTS = "*".join((*OUTER, "o", "e", "r", "l", "c", "w"))


BESIDE = 16384
"""The bytes of UB that stay free for what moves need beside their tiles."""


def points_of(core: DaVinci) -> tuple[str, ...]:
    """The elementwise operations of a core."""
    return tuple(name for name in POINTS if name != "div" or core.divides)


def elementwise(
    name: str,
    operations: tuple[str, ...],
    layouts: Mapping[str, str],
    elements: Mapping[str, tuple[str, ...]] | None = None,
    epilogue: tuple[tuple[str, ...], ...] = (("cast",),),
) -> Primitive:
    """An elementwise operation on operands in these layouts, by role, over the dims of elements.py:
    a tile has whole repeats of elements, blocks of columns, and rows as copies and spreads take
    them."""
    known = elements or {}
    multiples = {"e": REPEAT, "c": BLOCK, "w": BLOCK}
    operands = {
        role: Storage(memory="ub", layout=layout, elements=known.get(role, ()), multiples=multiples)
        for role, layout in layouts.items()
    }
    return Primitive(
        name=name,
        operations=operations,
        engine="v",
        operands=operands,
        epilogue=epilogue,
        cycles=f"ceil({_ELEMENTS}/{REPEAT})",
        peak=f"{_ELEMENTS}/{REPEAT}",
        multiples={"e": REPEAT, "c": REPEAT},
        blocks=("e", "c"),
        whole=("w",),
        limits={"o": MAX_BURSTS, "r": MAX_BURSTS, "l": LINES} | dict.fromkeys(OUTER, 1),
        reserved={"ub": ROOM},
    )


def normalisation(name: str, operation: str, passes: int, layout: str) -> Primitive:
    """Softmax or layer normalisation of whole rows, or columns, over the dims of elements.py; a
    slot has a half and a float for each element."""
    storage = Storage(memory="ub", element_bytes=6, multiples=dict.fromkeys(("axis", "c", "w"), 32))
    tile = storage.model_copy(update={"layout": layout})
    count = "d0*r*l*c*w*axis"
    return Primitive(
        name=name,
        operations=(operation,),
        engine="v",
        operands={"input": tile, "weight": storage, "bias": storage, "output": tile},
        epilogue=(("cast",),),
        # What belongs to rows is turned to columns and back, however few they are.
        cycles=f"200+ceil({count}*{passes}/64)",
        peak=f"{count}*{passes}/64",
        multiples={"c": BLOCK},
        blocks=("c",),
        whole=("axis", "l", "w"),
        limits={"d0": 1, "r": MOST_ROWS, "c": 2048},
        reserved={"ub": fold_bytes(MOST_ROWS)},
    )


def _fold() -> Primitive:
    """Reductions over the dims of elements.py, in any number of tiles; of a tile that is read a
    slot has a half and a float for each element."""
    source: dict[str, int] = dict.fromkeys(("axis", "c"), CUBE)
    result = Storage(memory="ub", multiples=dict.fromkeys(("r", "c"), CUBE))
    count = f"{'*'.join((*OUTER, *SUMMED))}*r*l*c*axis"
    return Primitive(
        name="fold",
        operations=("fold",),
        engine="v",
        operands={
            "input": Storage(memory="ub", element_bytes=6, multiples=source),
            "output": result,
        },
        epilogue=(("cast",),),
        cycles=f"200+ceil({count}/64)",
        peak=f"{count}/64",
        multiples={"r": CUBE, "axis": 64, "c": CUBE},
        blocks=("r", "axis", "c"),
        limits={"r": MOST_ROWS, "l": MAX_BURSTS, "axis": 16_320, "c": 4096}
        | dict.fromkeys((*OUTER, *SUMMED), 1),
        reserved={"ub": fold_bytes(MOST_ROWS)},
    )


def move(
    name: str, operations: tuple[str, ...], layout: str, *elements: str, row: int = 0, **others: Any
) -> Primitive:
    """Moves of elements, over the dims of moves.py, which take ``row`` cycles for each row."""
    sizes = dict.fromkeys(("c", "w", "p"), BLOCK) | {"r": CUBE}
    tile = Storage(memory="ub", layout=layout, elements=elements, multiples=sizes)
    count = "*".join((*OUTER, "r", "p", "c", "w"))
    return Primitive(
        name=name,
        operations=operations,
        engine="v",
        operands={"input": tile, "output": tile},
        epilogue=(("cast",),),
        cycles=f"16+{row}*{'*'.join(OUTER)}*r+ceil({count}/{REPEAT})",
        peak=f"{count}/{REPEAT}",
        multiples={"r": CUBE} | dict.fromkeys(("p", "c", "w"), BLOCK),
        blocks=("r", "p", "c", "w"),
        limits={"r": 240, "p": 256, "c": 16 * MAX_REPEAT} | dict.fromkeys(OUTER, 1),
        reserved={"ub": BESIDE},
        **others,
    )


def _quantisations() -> Iterator[Primitive]:
    """Between halves and integers of 8 bits, in blocks of as many rows or pixels, or in rows."""
    elements: dict[str, tuple[str, ...]] = {
        "input": ("float16", "int8", "int32"),
        "residual": ("float32",),
        "output": ("float16", "int8"),
    }
    for suffix, halves, integers in (
        ("", "", ""),
        ("_nz", f"{MATRICES}{nz()}", f"{MATRICES}{nz(1)}"),
        ("_image", image(), image(1)),
    ):
        for name, ends in zip(QUANTISED, ((halves, integers), (integers, halves)), strict=True):
            layouts = {"input": ends[0], "residual": "", "output": ends[1]}
            yield elementwise(f"{name}{suffix}", (name,), layouts, elements)


def vector_primitives() -> tuple[Primitive, ...]:
    """Operations on rows and places of elements, row by row in main memory, and pools of images."""
    roles: tuple[str, ...] = ("input", "weight", "bias", "output")
    rows: dict[str, Storage] = dict.fromkeys(roles, Storage(memory="ub"))
    planes = Storage(memory="ub", layout=image(), multiples={"c": CUBE})

    def primitive(
        name: str,
        operations: tuple[str, ...],
        count: str,
        passes: int,
        operands: Mapping[str, Storage] = rows,
        **others: Any,
    ) -> Primitive:
        return Primitive(
            name=name,
            operations=operations,
            engine="v",
            operands=dict(operands),
            epilogue=(("cast",),),
            cycles=f"ceil({count}*{passes}/64)",
            peak=f"{count}*{passes}/64",
            **others,
        )

    choices: dict[str, tuple[str, ...]] = dict.fromkeys(
        ("input", "weight", "residual"), ("float16", "bool")
    )
    scores = Storage(memory="ub", multiples=_SCORES)
    return (
        *(
            normalisation(f"{name}{suffix}", name, passes, layout)
            for suffix, layout in (("", ""), ("_nz", f"{MATRICES}{nz()}"))
            for name, passes in (("softmax", 9), ("layer_norm", 11))
        ),
        _fold(),
        *(
            primitive(
                *(name, (name,), "n*c*oh*ow*kh*kw", passes),
                {
                    "input": planes,
                    "output": planes.model_copy(update={"element_bytes": 2 if passes == 1 else 10}),
                },
                whole=("ow", "kh", "kw"),
                multiples={"c": CUBE},
                blocks=("c",),
                limits={"n": 1},
                reserved={"ub": 8192},
            )
            for name, passes in (("max_pool", 1), ("average_pool", 2))
        ),
        move("formats", ("convert_layout",), "any", "float16", "int8"),
        move("move", ("transpose", "slice"), ""),
        move("pad", ("pad",), "", whole=("w",)),
        # The scalar unit waits for main memory with each index.
        move("look_up", ("gather",), "", "float16", *INDEX_ELEMENTS, row=100),
        elementwise("cast", ("cast",), dict.fromkeys(("input", "output"), "")),
        elementwise("choose", CHOICES, dict.fromkeys((*choices, "output"), ""), choices),
        *_quantisations(),
        primitive(
            *("attention_weights", ("attention_weights",), "b0*b1*m*t", 9),
            {
                "input": Storage(memory="ub", multiples=_SCORES, element_bytes=4),
                **dict.fromkeys(("bias", "output"), scores),
            },
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
