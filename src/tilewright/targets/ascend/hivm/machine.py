"""The machine that networks are compiled for on an Ascend 910B: a cube core and a vector core.

Their memories are apart: products go from main memory through L1 to L0C and back by the pipe FIX,
all else through UB. Tensors lie row by row in main memory; ``nd2nz`` and ``fixpipe`` change formats
on the way. Sizes are those of the tool's own table of Ascend910B2; rates are ``ASCEND_910B1``'s.
"""

from __future__ import annotations

from typing import Any

from tilewright.machine import Engine, Machine, Memory, Move, Primitive, Storage
from tilewright.targets.ascend.machine import ASCEND_910B1, BLOCK, CUBE, FRACTAL

UB = 192 << 10
"""Bytes of a vector core's unified buffer."""

SCRATCH = 144 << 10
"""Bytes of it that operands leave alone: three tiles of floats beside two of halves."""

MOST = 256
"""Largest extent of a tile of a product: L0C holds 256 x 128 sums, and L0A 256 x 128 halves."""

HEAD = int(ASCEND_910B1.mad_head)
"""Cycles of a product before its first block."""

VECTOR_HEAD = 16
"""Assumed of a vector operation; no public source gives it."""

ROUNDED = ("add", "sub", "mul", "div")
"""Elementwise operations that round, once each; vectors.py computes them in halves."""

EXACT = ("max", "min", "relu", "neg", "abs", "clip", "identity", "convert_layout")
FUNCTIONS = ("exp", "log", "sqrt", "erf", "tanh", "sigmoid", "silu", "gelu")

IMAGES = "NHWC"
"""Layout of images: a row of pixels is a matrix whose columns are channels."""

_POINTS = "d0*d1*d2*d3*d4*d5*d6*d7"


def machine_910b() -> Machine:
    """One cube core and one vector core."""
    core = ASCEND_910B1
    latency = int(core.latency)
    rate = core.paths["gm", "cbuf"]

    def move(source: str, target: str, engine: str, rate: float) -> Move:
        return Move(
            name=f"{source}-to-{target}",
            source=source,
            target=target,
            engine=engine,
            bytes_per_cycle=rate,
            latency=latency,
            in_flight=4,
            transaction=BLOCK,
        )

    return Machine(
        name="ascend910b",
        description="a cube core and a vector core of an Ascend 910B (dav-c220)",
        clock_hz=core.clock_hz,
        memories=(
            Memory(name="gm", bytes_per_cycle=rate),
            Memory(name="cbuf", bytes=core.l1, granule=FRACTAL),
            Memory(name="cc", bytes=core.l0c, granule=2 * FRACTAL),
            Memory(name="ub", bytes=UB, granule=BLOCK, reserved=SCRATCH),
        ),
        moves=(
            move("gm", "cbuf", "mte2", rate),
            move("cc", "gm", "fix", core.paths["cc", "gm"]),
            move("gm", "ub", "mte2-v", rate),
            move("ub", "gm", "mte3", rate),
        ),
        engines=tuple(Engine(name=name) for name in ("mte2", "m", "fix", "mte2-v", "v", "mte3")),
        primitives=(_mmad(), _convolution(), *_vectors()),
        main="gm",
        element="float16",
        accumulator="float32",
    )


def _mmad() -> Primitive:
    return Primitive(
        name="mmad",
        operations=("matmul",),
        engine="m",
        operands={
            "input": Storage(memory="cbuf", multiples=dict.fromkeys(("n", "m", "ci"), CUBE)),
            "weight": Storage(memory="cbuf", multiples=dict.fromkeys(("co", "ci"), CUBE)),
            "bias": Storage(memory="cbuf", multiples={"co": CUBE}),
            "output": Storage(memory="cc", multiples=dict.fromkeys(("n", "m", "co"), CUBE)),
        },
        epilogue=(("relu",), ("cast",)),
        cycles=f"{HEAD} + b0*b1*ceil(n*m/16)*ceil(co/16)*ceil(ci/16)",
        peak="b0*b1*n*m*co*ci/4096",
        multiples=dict.fromkeys(("n", "m", "co", "ci"), CUBE),
        blocks=("n", "m", "co", "ci"),
        limits={**dict.fromkeys(("n", "m", "co"), MOST), **dict.fromkeys(("b0", "b1", "b2"), 1)},
        sums=True,
    )


def _convolution() -> Primitive:
    """A product for each tap and each row of results (convolutions.py)."""
    return Primitive(
        name="conv",
        operations=("conv",),
        engine="m",
        operands={
            "input": Storage(memory="cbuf", multiples=_cubes("ci", "ow"), layout=IMAGES),
            "weight": Storage(memory="cbuf", multiples=_cubes("co", "ci"), layout="HWIO"),
            "bias": Storage(memory="cbuf", multiples=_cubes("co")),
            "output": Storage(memory="cc", multiples=_cubes("co", "ow"), layout=IMAGES),
        },
        epilogue=(("relu",), ("cast",)),
        cycles=f"n*oh*kh*kw*({HEAD} + ceil(ow/16)*ceil(co/16)*ceil(ci/16))",
        peak="n*oh*ow*co*ci*kh*kw/4096",
        multiples=_cubes("ow", "co", "ci"),
        blocks=("ow", "co", "ci"),
        limits={"n": 1, "co": MOST, "ow": MOST},
        extents={"g": (1, 1)},
        reserved={"cbuf": ASCEND_910B1.l1 // 2},
        sums=True,
    )


def _cubes(*dims: str) -> dict[str, int]:
    return dict.fromkeys(dims, CUBE)


def _vectors() -> tuple[Primitive, ...]:
    rows, any_order, images = (
        Storage(memory="ub"),
        Storage(memory="ub", layout="any"),
        Storage(memory="ub", layout=IMAGES, multiples=_cubes("c")),
    )

    def primitive(
        name: str,
        operations: tuple[str, ...],
        roles: tuple[str, ...],
        count: str,
        passes: int,
        storage: Storage = rows,
        epilogue: tuple[tuple[str, ...], ...] = (),
        **others: Any,
    ) -> Primitive:
        return Primitive(
            name=name,
            operations=operations,
            engine="v",
            operands=dict.fromkeys((*roles, "output"), storage),
            epilogue=epilogue,
            cycles=f"{VECTOR_HEAD} + ceil({count}*{passes}/64)",
            peak=f"{count}*{passes}/64",
            **others,
        )

    chains = ((*ROUNDED, *EXACT), EXACT, ("cast",))
    points = (*ROUNDED, *EXACT, *FUNCTIONS)
    roles = ("input", "weight", "residual")
    return (
        primitive("points", points, roles, _POINTS, 1, any_order, chains),
        primitive("turns", ("transpose",), roles, _POINTS, 1, rows, chains),
        primitive("softmax", ("softmax",), ("input",), f"{_POINTS}*axis", 6, whole=("axis",)),
        primitive(
            "layer_norm",
            ("layer_norm",),
            (*roles[:2], "bias"),
            f"{_POINTS}*axis",
            7,
            whole=("axis",),
        ),
        primitive(
            "pool",
            ("max_pool", "average_pool"),
            ("input",),
            "n*c*oh*ow*kh*kw",
            1,
            images,
            (("cast",),),
            whole=("kh", "kw"),
            limits={"n": 1},
        ),
        _depthwise(images),
    )


def _depthwise(images: Storage) -> Primitive:
    """Depthwise convolutions, on floats: a conversion, a product and a sum for each tap."""
    work = "n*c*oh*ow*kh*kw*3"
    return Primitive(
        name="depthwise",
        operations=("depthwise_conv",),
        engine="v",
        operands={
            "input": images,
            "weight": Storage(memory="ub", layout="HWIO", multiples=_cubes("c")),
            "bias": Storage(memory="ub", multiples=_cubes("c")),
            "output": images,
        },
        epilogue=(("relu", "clip"), ("cast",)),
        cycles=f"{VECTOR_HEAD}*kh*kw*3 + ceil({work}/64)",
        peak=f"{work}/64",
        whole=("kh", "kw"),
        limits={"n": 1},
        # Ten bytes of temporaries for each element of a tile of results, which has two.
        reserved={"ub": UB * 7 // 8},
    )
