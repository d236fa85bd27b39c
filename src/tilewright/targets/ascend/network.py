"""The machine that networks are compiled for: a DaVinci core with its layouts in main memory."""

from __future__ import annotations

from tilewright.machine import Machine, Primitive, Storage
from tilewright.machine.model import MATRICES
from tilewright.targets.ascend.capabilities import AscendMachine, AscendMemory, AscendPrimitive
from tilewright.targets.ascend.formats import (
    block_elements,
    convolution_weight,
    heads,
    image,
    nz,
)
from tilewright.targets.ascend.machine import CUBE, DaVinci, machine_of
from tilewright.targets.ascend.vector_primitives import points_of, vector_primitives


def chip_machine(core: DaVinci) -> Machine:
    """The machine of all cores: products and convolutions are shared among them, and L2 gives each
    what others have loaded before."""
    machine = network_machine(core)
    memories = tuple(
        memory.model_copy(
            update={
                "bytes_per_cycle": core.memory.value,
                "own": AscendMemory(cached=core.l2, hit_bytes_per_cycle=core.hit.value),
            }
        )
        if memory.name == machine.main
        else memory
        for memory in machine.memories
    )
    primitives = tuple(
        primitive
        if primitive.engine == "m"
        else primitive.model_copy(update={"own": AscendPrimitive(alone=True)})
        for primitive in machine.primitives
    )
    return machine.model_copy(
        update={
            "cores": core.cores,
            "memories": memories,
            "primitives": primitives,
            "own": AscendMachine(),
        }
    )


def network_machine(core: DaVinci) -> Machine:
    """The machine of one core with main memory to itself: values of half precision there, matrices
    in Nz and images in NC1HWC0; products and convolutions with bias, a second summand, and relu on
    the way out."""
    machine = machine_of(core)
    vector = machine.primitive("vector")
    everywhere = Storage(memory="ub", layout="any")
    vector = vector.model_copy(
        update={
            "operations": points_of(core),
            "operands": dict.fromkeys(("input", "weight", "residual", "output"), everywhere),
            "epilogue": (("relu", "clip"), ("cast",)),
        }
    )
    primitives = (*_products(), _integer_product(), _convolution(), _integer_convolution())
    primitives = (*primitives, _depthwise(), _formats(), vector)
    primitives = (*primitives, *vector_primitives())
    # A slot next to the cube is free when the product before last is complete: its head later.
    late = {"latency": int(core.mad_head.value)}
    moves = tuple(
        move.model_copy(update=late) if move.target in ("ca", "cb") else move
        for move in machine.moves
    )
    return machine.model_copy(
        update={
            "primitives": primitives,
            "moves": moves,
            "layouts": {"view": heads()},
            "element": "float16",
            "accumulator": "float32",
        }
    )


MOST = 127 * CUBE
"""Largest extent of a tile of a product, by the fields of loads and vector operations."""

FUNCTIONS = (
    *("clip", "leaky_relu", "hard_swish", "hard_sigmoid"),
    *("gelu", "silu", "sigmoid", "tanh", "elu", "softplus"),
)
"""Of one element, behind a product: what networks have there."""

EPILOGUE_BYTES = 8192
"""Of UB that stay free for what functions behind a product need beside its tiles."""

_EPILOGUE = (("add",), ("relu", *FUNCTIONS), ("cast",))
"""What follows a product in UB; relu alone comes with the conversion on the way there."""

_LEFT = {"ub": EPILOGUE_BYTES}


def _products() -> tuple[Primitive, ...]:
    matrix = f"{MATRICES}{nz()}"
    return (
        Primitive(
            name="mad",
            operations=("matmul",),
            engine="m",
            operands={
                "input": Storage(
                    memory="ca",
                    multiples=_cubes("n", "m", "ci"),
                    layout=matrix,
                    turned=True,
                    elements=("float16",),
                ),
                "weight": Storage(
                    memory="cb",
                    multiples=_cubes("co", "ci"),
                    layout=matrix,
                    turned=True,
                    elements=("float16",),
                ),
                "bias": Storage(memory="ub", multiples=_cubes("co")),
                "residual": Storage(memory="ub", multiples=_cubes("n", "m", "co"), layout=matrix),
                "output": Storage(memory="cc", multiples=_cubes("n", "m", "co"), layout=matrix),
            },
            epilogue=_EPILOGUE,
            reserved=_LEFT,
            cycles="b0*b1*ceil(n*m/16)*ceil(co/16)*ceil(ci/16)",
            peak="b0*b1*n*m*co*ci/4096",
            multiples=_cubes("n", "m", "co", "ci"),
            blocks=("n", "m", "co", "ci"),
            limits=dict.fromkeys(("n", "m", "co", "ci"), MOST),
            sums=True,
        ),
    )


INTEGER_EPILOGUE_BYTES = 32_768
"""The same behind a product of integers, whose sums are dequantised in UB a part at a time."""


def _integer_product() -> Primitive:
    """Products of int8 by constant weights into int32, dequantised on the way out: twice as many
    in a cycle as of halves (a block has 32 of them in a row)."""
    rows, columns = _cubes("n", "m"), _cubes("co")
    depth = {"ci": block_elements(1)}
    return Primitive(
        name="mad_s8",
        operations=("matmul",),
        element="int8",
        engine="m",
        operands={
            "input": Storage(memory="ca", multiples=rows | depth, layout=f"{MATRICES}{nz(1)}"),
            "weight": Storage(memory="cb", multiples=columns | depth, layout=f"{MATRICES}{nz(1)}"),
            "bias": Storage(memory="ub", multiples=columns),
            "residual": Storage(memory="ub", multiples=columns, elements=("float32",)),
            "output": Storage(
                memory="cc",
                multiples=rows | columns,
                layout=f"{MATRICES}{nz()}",
                elements=("float16", "float32", "int32"),
            ),
        },
        epilogue=(("dequantise_linear",), ("relu", *FUNCTIONS), ("cast",)),
        reserved={"ub": INTEGER_EPILOGUE_BYTES},
        cycles="b0*b1*ceil(n*m/16)*ceil(co/16)*ceil(ci/32)",
        peak="b0*b1*n*m*co*ci/8192",
        multiples=rows | columns | depth,
        blocks=("n", "m", "co", "ci"),
        limits=dict.fromkeys(("n", "m", "co", "ci"), MOST),
        sums=True,
    )


def _convolution() -> Primitive:
    """Convolutions next to the cube go tap by tap: img2col makes a product of each. Groups are of
    whole blocks of channels (join-groups)."""
    return Primitive(
        name="conv",
        operations=("conv",),
        engine="m",
        operands={
            "input": Storage(
                memory="ca",
                multiples=_cubes("ci", "ow"),
                layout=image(),
                elements=("float16",),
            ),
            "weight": Storage(
                memory="cb", multiples=_cubes("co", "ci"), layout=convolution_weight()
            ),
            "bias": Storage(memory="ub", multiples=_cubes("co")),
            "residual": Storage(memory="ub", multiples=_cubes("co", "ow"), layout=image()),
            "output": Storage(memory="cc", multiples=_cubes("co", "ow"), layout=image()),
        },
        epilogue=_EPILOGUE,
        reserved=_LEFT,
        cycles="g*ceil(oh*ow/16)*ceil(co/16)*ceil(ci/16)*kh*kw",
        peak="g*n*oh*ow*co*ci*kh*kw/4096",
        multiples=_cubes("co", "ci"),
        blocks=("co", "ci"),
        limits={"n": 1, "g": 1, "co": MOST, "ci": MOST, "kh": 1, "kw": 1},
        whole=("ow",),
        sums=True,
    )


def _integer_convolution() -> Primitive:
    """The same of int8, 32 channels of the image in a block, dequantised on the way out."""
    result, image_rows = _cubes("co", "ow"), {"ci": block_elements(1), "ow": CUBE}
    return Primitive(
        name="conv_s8",
        operations=("conv",),
        element="int8",
        engine="m",
        operands={
            "input": Storage(memory="ca", multiples=image_rows, layout=image(1), fills=True),
            "weight": Storage(
                memory="cb",
                multiples={"co": CUBE, "ci": block_elements(1)},
                layout=convolution_weight(1),
            ),
            "bias": Storage(memory="ub", multiples=_cubes("co")),
            "residual": Storage(memory="ub", multiples=_cubes("co"), elements=("float32",)),
            "output": Storage(
                memory="cc",
                multiples=result,
                layout=image(),
                elements=("float16", "float32", "int32"),
            ),
        },
        epilogue=(("dequantise_linear",), ("relu", *FUNCTIONS), ("cast",)),
        reserved={"ub": INTEGER_EPILOGUE_BYTES},
        cycles="g*ceil(oh*ow/16)*ceil(co/16)*ceil(ci/32)*kh*kw",
        peak="g*n*oh*ow*co*ci*kh*kw/8192",
        multiples={"co": CUBE, "ci": block_elements(1)},
        blocks=("co", "ci"),
        limits={"n": 1, "g": 1, "co": MOST, "ci": MOST, "kh": 1, "kw": 1},
        whole=("ow",),
        sums=True,
    )


def _depthwise() -> Primitive:
    """Depthwise convolutions: each 16 channels by a diagonal."""
    channels = _cubes("c", "ow")
    return Primitive(
        name="depthwise",
        operations=("depthwise_conv",),
        engine="m",
        operands={
            "input": Storage(memory="ca", multiples=channels, layout=image()),
            "weight": Storage(memory="cb", multiples=_cubes("c")),
            "bias": Storage(memory="ub", multiples=_cubes("c")),
            "residual": Storage(memory="ub", multiples=channels, layout=image()),
            "output": Storage(memory="cc", multiples=channels, layout=image()),
        },
        epilogue=_EPILOGUE,
        reserved=_LEFT,
        cycles="ceil(oh*ow/16)*ceil(c/16)*kh*kw",
        peak="n*oh*ow*c*kh*kw/256",
        multiples=_cubes("c"),
        blocks=("c",),
        limits={"n": 1, "c": MOST, "kh": 1, "kw": 1},
        whole=("ow",),
        sums=True,
    )


def _formats() -> Primitive:
    """Changes of format: fractalise, defractalise and the like."""
    anywhere = Storage(memory="ub", layout="any", elements=("float16", "int8"))
    return Primitive(
        name="formats",
        operations=("convert_layout",),
        engine="v",
        operands={"input": anywhere, "output": anywhere},
        cycles="ceil(d0*d1*d2*d3*d4*d5/128)",
        peak="d0*d1*d2*d3*d4*d5/128",
    )


def _cubes(*dims: str) -> dict[str, int]:
    return dict.fromkeys(dims, CUBE)
