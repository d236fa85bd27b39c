"""The machine that networks are compiled for: a DaVinci core with its layouts in main memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilewright.machine import Fusion, Machine, Primitive, Storage
from tilewright.machine.model import MATRICES
from tilewright.numerics.operators import operators
from tilewright.targets.ascend.capabilities import (
    AscendMachine,
    AscendMemory,
    AscendOperand,
    AscendPrimitive,
)
from tilewright.targets.ascend.formats import (
    block_elements,
    convolution_weight,
    heads,
    image,
    nz,
)
from tilewright.targets.ascend.machine import BLOCK, CUBE, DaVinci, machine_of
from tilewright.targets.ascend.vector_primitives import (
    POINTS,
    elementwise,
    points_of,
    vector_primitives,
)


def chip_machine(core: DaVinci) -> Machine:
    """The machine of all cores: products and convolutions are shared among them, and L2 gives each
    what others have loaded before."""
    machine = network_machine(core)
    memories = tuple(
        memory.model_copy(
            update={
                "bytes_per_cycle": core.memory,
                "own": AscendMemory(cached=core.l2, hit_bytes_per_cycle=core.hit),
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


MEMORIES = {"l1": "cbuf", "l0a": "ca", "l0b": "cb", "l0c": "cc", "ub": "ub"}
"""A core's fields of sizes -> the memories of its machine."""


def as_varied(core: DaVinci, machine: Machine) -> DaVinci:
    """A core with the values that a variant of its machine has in place of its own."""
    main = machine.memory(machine.main)
    sizes = {memory.name: memory.bytes for memory in machine.memories}
    rates = {(move.source, move.target): move.bytes_per_cycle for move in machine.moves}
    latencies = {move.source: move.latency for move in reversed(machine.moves)}
    queues = {engine.name: engine.queue for engine in machine.engines}
    varied: dict[str, object] = {field: sizes.get(name) or 0 for field, name in MEMORIES.items()}
    varied |= {"clock_hz": machine.clock_hz, "cores": machine.cores}
    varied |= {"latency": latencies.get(machine.main, 0), "queue": queues.get("m", 0)}
    varied["paths"] = {path: rates.get(path, rate) for path, rate in core.paths.items()}
    varied["memory"] = 0
    if isinstance(main.own, AscendMemory):
        varied |= {"l2": main.own.cached, "hit": main.own.hit_bytes_per_cycle or 0}
        varied["memory"] = main.bytes_per_cycle or 0
    varied["events"] = machine.synchronisation.count
    return replace(core, **varied)


def network_machine(core: DaVinci) -> Machine:
    """The machine of one core with main memory to itself: values of half precision there, matrices
    in Nz and images in NC1HWC0; products and convolutions with bias, a second summand, and relu on
    the way out."""
    machine = machine_of(core)
    layouts: dict[str, str] = dict.fromkeys(("input", "weight", "residual", "output"), "any")
    clipped = ("relu", "clip"), ("cast",)
    vector = elementwise("vector", points_of(core), layouts, epilogue=clipped)
    widths = (2, 1)
    primitives = (*map(_product, widths), *map(_convolution, widths))
    primitives = (*primitives, *map(_depthwise, widths), vector)
    primitives = (*primitives, *vector_primitives())
    # A slot next to the cube is free when the product before last is complete: its head later.
    head = {"latency": int(core.mad_head)}
    moves = tuple(
        move.model_copy(update=head) if move.target in ("ca", "cb") else move
        for move in machine.moves
    )
    return machine.model_copy(
        update={
            "primitives": primitives,
            "moves": moves,
            "layouts": {"view": heads()},
            "fusions": tuple(
                Fusion(
                    name=query.replace(" -> ", "-"), query=query, between=memory, gain=CHAIN_GAIN
                )
                for query, memory in CHAINS.items()
            ),
            "element": "float16",
            "accumulator": "float32",
        }
    )


CHAINS = {
    **dict.fromkeys(("conv -> conv", "depthwise -> conv", "conv -> depthwise"), "cbuf"),
    "product -> product": "cbuf",
    "conv -> max_pool": "ub",
}
"""Kernels that a core computes as one, and where what the first makes waits for the second."""

CHAIN_GAIN = 0.9
"""Part of the predicted cycles apart that a chain must stay below: predictions leave out what the
vector unit does and what waits for the cube, so that one that seems a little faster is up to 5 %
slower."""

MOST = 127 * CUBE
"""Largest extent of a tile of a product, by the fields of loads and vector operations."""

FUNCTIONS = tuple(name for name in operators("activation") if name in POINTS)
"""The functions of one element that networks have after a product."""

EPILOGUE_BYTES = 8192
"""The bytes of UB that stay free for what functions after a product need beside its tiles."""

_EPILOGUE = (("add",), FUNCTIONS, ("cast",))
"""The epilogue of a product in UB; relu alone comes with the conversion on the way there."""

_LEFT = {"ub": EPILOGUE_BYTES}


INTEGER_EPILOGUE_BYTES = 32_768
"""Bytes of the epilogue after a product of integers, whose sums are dequantised in UB a part at a
time."""

TAPS = AscendOperand(apart=("kh", "kw"))
"""Images next to the cube have a row for every position, and one matrix of them for each tap."""


def _product(width: int) -> Primitive:
    """Matrix products of elements of ``width`` bytes: halves, or int8 by constant weights."""
    rows, columns, depth = _cubes("n", "m"), _cubes("co"), {"ci": block_elements(width)}
    # No transposition turns blocks of int8 on the way to the cube.
    side: dict[str, Any] = {
        "layout": f"{MATRICES}{nz(width)}",
        "turned": width == 2,
        "elements": ("float16",) if width == 2 else (),
    }
    return _of_cube(
        *(width, "mad", "matmul", f"{MATRICES}{nz()}", columns, rows | columns),
        Storage(memory="ca", multiples=rows | depth, **side),
        Storage(memory="cb", multiples=columns | depth, **side),
        cycles=f"b0*b1*ceil(n*m/16)*ceil(co/16)*ceil(ci/{depth['ci']})",
        peak=f"b0*b1*n*m*co*ci/{256 * depth['ci']}",
        multiples=rows | columns | depth,
        blocks=("n", "m", "co", "ci"),
        limits=dict.fromkeys(("n", "m", "co", "ci"), MOST),
    )


def _convolution(width: int) -> Primitive:
    """Convolutions of elements of ``width`` bytes; see ``_product``. Next to the cube they go tap
    by tap: img2col makes a product of each. Groups are of whole blocks of channels
    (join-groups)."""
    depth, columns = {"ci": block_elements(width)}, _cubes("co")
    weights = convolution_weight(width)
    return _of_cube(
        *(width, "conv", "conv", image(), columns, _cubes("co", "ow")),
        _windows(width, depth | _cubes("ow")),
        Storage(memory="cb", multiples=columns | depth, layout=weights),
        cycles=f"g*ceil(oh*ow/16)*ceil(co/16)*ceil(ci/{depth['ci']})*kh*kw",
        peak=f"g*n*oh*ow*co*ci*kh*kw/{256 * depth['ci']}",
        multiples=columns | depth,
        blocks=("co", "ci"),
        limits={"n": 1, "g": 1, "co": MOST, "ci": MOST, "kh": 1, "kw": 1},
        whole=("ow",),
    )


def _depthwise(width: int) -> Primitive:
    """Depthwise convolutions of elements of ``width`` bytes: a diagonal for each channel block."""
    block = {"c": block_elements(width)}
    channels = _cubes("c", "ow") | block
    return _of_cube(
        *(width, "depthwise", "depthwise_conv", image(), block, channels),
        _windows(width, channels),
        Storage(memory="cb", multiples=block, element_bytes=BLOCK),
        cycles="ceil(oh*ow/16)*ceil(c/16)*kh*kw",
        peak="n*oh*ow*c*kh*kw/256",
        multiples=block,
        blocks=("c",),
        limits={"n": 1, "c": MOST, "kh": 1, "kw": 1},
        whole=("ow",),
    )


def _windows(width: int, multiples: dict[str, int]) -> Storage:
    """An image next to the cube."""
    elements = ("float16",) if width == 2 else ()
    return Storage(
        memory="ca",
        multiples=multiples,
        layout=image(width),
        elements=elements,
        fills=width == 1,
        own=TAPS,
    )


def _of_cube(
    width: int,
    name: str,
    operation: str,
    layout: str,
    columns: dict[str, int],
    results: dict[str, int],
    left: Storage,
    right: Storage,
    **others: Any,
) -> Primitive:
    """A primitive of operands of ``width`` bytes; its results leave L0C with an epilogue in UB."""
    primitive = Primitive(
        name=name,
        operations=(operation,),
        engine="m",
        operands={
            "input": left,
            "weight": right,
            "bias": Storage(memory="ub", at_store=True, multiples=columns, element_bytes=2),
            "residual": Storage(memory="ub", at_store=True, multiples=results, layout=layout),
            "output": Storage(memory="cc", multiples=results, layout=layout),
        },
        epilogue=_EPILOGUE,
        reserved=_LEFT,
        sums=True,
        **others,
    )
    return primitive if width == 2 else _of_integers(primitive)


def _of_integers(primitive: Primitive) -> Primitive:
    """A primitive of int8: its sums, of 32 bits, are dequantised on the way out by a factor for
    each column, which lies where a second summand would."""
    output = primitive.operands["output"]
    columns = primitive.operands["bias"].multiples
    operands = {
        **primitive.operands,
        "bias": Storage(memory="ub", at_store=True, multiples=columns),
        "residual": Storage(memory="ub", at_store=True, multiples=columns, elements=("float32",)),
        "output": output.model_copy(update={"elements": ("float16", "float32", "int32")}),
    }
    return primitive.model_copy(
        update={
            "name": f"{primitive.name}_s8",
            "element": "int8",
            "operands": operands,
            "epilogue": (("dequantise_linear",), FUNCTIONS, ("cast",)),
            "reserved": {"ub": INTEGER_EPILOGUE_BYTES},
        }
    )


def _cubes(*dims: str) -> dict[str, int]:
    return dict.fromkeys(dims, CUBE)
