"""The CPU as a machine: vector lanes, registers, caches, and the primitives of the emitted C.

Every operand stays in main memory; caches are memories that the hardware manages. A primitive is
one register-tiled C function whose sizes are constants (``sizes="fixed"``). Layouts keep ``lanes``
channels innermost: activations NCHW16c, weights OIHW16i16o (for 16 lanes).
"""

from __future__ import annotations

from functools import cache

from tilewright.machine import Engine, Fusion, Machine, Memory, Primitive, Storage, Synchronisation
from tilewright.targets.cpu.block_primitives import (
    FEW_CHANNELS,
    separable,
    winograd,
)
from tilewright.targets.cpu.builds import NATIVE
from tilewright.targets.cpu.capabilities import CpuMachine
from tilewright.targets.cpu.functions import MOST, SHORT_FLOATS, Kind, c_function, storage
from tilewright.targets.cpu.piece_primitives import piece_primitives
from tilewright.targets.cpu.planning.capabilities import own_of
from tilewright.targets.cpu.processors import Processor, this_processor
from tilewright.targets.cpu.word_primitives import integer_primitives, short_primitives

REDUCTIONS = ("fold", "arg_max", "arg_min", "gather", "scatter")
"""Reductions of any shape, one element of the result after another."""


def _wide(lanes: int, registers: int) -> int:
    """Output channels of a product's register tile."""
    # Three vectors by nine rows of 32 registers, two by six of 16.
    return (3 if registers >= 32 else 2) * lanes


def _products(lanes: int, vectors: float, registers: int) -> tuple[Primitive, ...]:
    kind, wide = Kind(lanes, vectors), _wide(lanes, registers)
    unblocked = f"OIHW{lanes}o"
    return (
        kind.conv("conv_first", unblocked, source="NCHW", ci=(1, FEW_CHANNELS), g=(1, 1)),
        kind.conv("conv", f"OIHW{lanes}i{lanes}o"),
        kind.grouped("conv_grouped", unblocked),
        *(
            winograd(lanes, vectors, sizes, plain)
            for plain in (False, True)
            for sizes in ((2, 3), (4, 3), (6, 3), (2, 5))
        ),
        # Vectors of channels are loaded, and widen so.
        kind.windows(
            "depthwise_conv", "depthwise_conv", weighted=True, source=("float32", *SHORT_FLOATS)
        ),
        *kind.wide_matmuls("matmul", f"OI{wide}o", wide),
        kind.matmul("matmul", f"OI{lanes}o"),
        # Computed weights are read row by row where that is less than to lay them out in blocks
        # first: for few rows.
        kind.matmul("matmul_rows", "IO"),
        separable(lanes, vectors),
    )


def _others(lanes: int, vectors: float) -> tuple[Primitive, ...]:
    kind = Kind(lanes, vectors)
    images = storage(input=kind.image, residual=kind.image, output=kind.image)
    points = "d0*d1*d2*d3*d4*d5"
    anything = storage(input="any", weight="any", bias="any", residual="any", output="any")
    rate = lanes * vectors
    return (
        kind.windows("pool", "max_pool", "average_pool"),
        kind.windows("pool_16", "max_pool", effort="*1.5", source=SHORT_FLOATS),
        c_function(
            "shuffle",
            "channel_shuffle",
            operands=images,
            cycles=f"n*a*b*h*w/{vectors:g}",
            peak=f"n*a*b*h*w/{rate:g}",
            whole=("a", "b"),
        ),
        c_function(
            "lrn",
            "lrn",
            operands=images,
            # Squares, their windows' sums, and two square roots and a division for each vector,
            # which may overlap by a quarter.
            cycles=f"n*ceil(c/{lanes})*h*w*(j+32)/{vectors:g}",
            peak=f"n*c*h*w*(j+24)/{rate:g}",
            whole=("c", "j"),
        ),
        c_function(
            "softmax",
            "softmax",
            operands=storage(input="any", residual="any", output="any"),
            cycles=f"{points}*axis*20",
            peak=f"{points}*axis*20/{rate:g}",
            whole=("axis",),
        ),
        c_function(
            "attention",
            "attention",
            operands=storage(input="NCHW", bias="any", residual="NCHW", output="NCHW"),
            # Two products, and an exponential for every score.
            cycles=f"b0*b1*m*t*(d + e + 20)/{rate:g}",
            peak=f"b0*b1*m*t*(d + e)/{rate:g}",
            whole=("e", "t", "d"),
            # A block's queries and results lie on the stack.
            extents={"d": (1, 256), "e": (1, 256)},
        ),
        *_decoding(lanes, vectors),
        c_function(
            "layer_norm",
            "layer_norm",
            operands=anything,
            cycles=f"{points}*(axis*5/{rate:g} + 60)",
            peak=f"{points}*axis*5/{rate:g}",
            whole=("axis",),
        ),
        c_function(
            "reduce",
            "fold",
            operands={
                **storage(residual="any", output="any"),
                "input": Storage(memory="dram", layout="any", elements=("float32",)),
            },
            cycles=f"{points}*r0*r1*r2*r3*r4*r5/{vectors:g}",
            peak=f"{points}*r0*r1*r2*r3*r4*r5/{rate:g}",
        ),
        # Rows that are kept whole, one after another.
        c_function(
            "row",
            "running_sum",
            "running_product",
            epilogue_any=False,
            operands=storage(input="any", output="any"),
            cycles=f"{points}*axis*20",
            peak=f"{points}*axis*20/{rate:g}",
            whole=("axis",),
        ),
        c_function(
            "sort",
            "arg_sort",
            epilogue_any=False,
            operands=storage(input="any", output="any"),
            cycles=f"{points}*axis*100",
            peak=f"{points}*axis*20/{rate:g}",
            whole=("axis",),
            # Two lists of indices lie on the stack.
            extents={"axis": (1, 1 << 16)},
        ),
        # Booleans are sorted in two passes, however many there are.
        c_function(
            "partition",
            "arg_sort",
            epilogue_any=False,
            operands={
                "input": Storage(memory="dram", layout="any", elements=("bool",)),
                **storage(output="any"),
            },
            cycles=f"{points}*axis*8",
            peak=f"{points}*axis*2/{rate:g}",
            whole=("axis",),
        ),
        c_function(
            "suppression",
            "non_max_suppression",
            epilogue_any=False,
            operands=storage(input="any", output="any"),
            cycles="d0*d1*m*20",
            peak=f"d0*d1*m*4/{rate:g}",
            whole=("m", "s", "r"),
            # Lists of candidates, and the boxes that are chosen, lie on the stack.
            extents={"m": (1, 1 << 16), "r": (1, 1 << 14)},
        ),
        c_function(
            "pointwise",
            "map",
            "transpose",
            "slice",
            "pad",
            operands=anything,
            cycles=f"ceil({points}/{lanes})*2",
            peak=f"{points}/{rate:g}",
        ),
        # Slow and sure: any operation, layout, stride and shape, one element after another.
        c_function(
            "general",
            *("conv", "depthwise_conv", "matmul", "max_pool", "average_pool", "lrn"),
            *REDUCTIONS,
            operands=anything,
            cycles=f"{points}*n*g*b0*b1*m*c*co*ci*oh*ow*kh*kw*h*w*j*4",
            peak=f"{points}*n*g*b0*b1*m*c*co*ci*oh*ow*kh*kw*h*w*j/{rate:g}",
        ),
    )


def _decoding(lanes: int, vectors: float) -> tuple[Primitive, ...]:
    """What language models need beside products and norms: matrices in blocks, and a cache."""
    rate = lanes * vectors
    points = storage(input="any", residual="any", output="any")
    weights = storage(input="any", weight="any", residual="any", output="any")
    cached = storage(input="any", weight="any", bias="any", residual="any", output="any")
    return (
        c_function(
            "block_matmul",
            "block_matmul",
            operands=weights,
            # Words of two numbers, which take shifts and masks beside the multiply-adds.
            cycles=f"b0*b1*m*co*s*w*2/{rate:g}",
            peak=f"b0*b1*m*co*s*w/{rate:g}",
            whole=("s", "w", "j", "z"),
        ),
        c_function(
            "block_round",
            "block_round",
            epilogue_any=False,
            operands=points,
            cycles=f"b0*b1*m*k*4/{rate:g}",
            peak=f"b0*b1*m*k/{rate:g}",
            whole=("s", "w", "k"),
        ),
        c_function(
            "block_gather",
            "block_gather",
            epilogue_any=False,
            operands=weights,
            cycles="m*k*4",
            peak=f"m*k/{rate:g}",
            whole=("k", "v", "j", "z"),
        ),
        c_function(
            "rotate",
            "rotate",
            epilogue_any=False,
            operands=cached,
            cycles=f"m*h*d*4/{rate:g}",
            peak=f"m*h*d/{rate:g}",
            whole=("h", "d"),
        ),
        c_function(
            "cached_attention",
            "cached_attention",
            epilogue_any=False,
            operands=cached,
            # As if the cache were full.
            cycles=f"g*m*r*p*(d + e + 20)/{rate:g}",
            peak=f"g*m*r/{rate:g}",
            whole=("m", "r", "e", "d", "u", "l", "p"),
            extents={"d": (1, 256)},
        ),
    )


def _fitted(primitive: Primitive, cpu: Processor) -> Primitive:
    """The primitive with its register tiles as they were measured: those of products, or, of what
    works in scratch with a micro-kernel of its own, those of blocks."""
    if not primitive.name.startswith(("conv", "matmul", "winograd")):
        return primitive
    fit = cpu.parts if primitive.name.startswith("winograd") else cpu.tiles
    return primitive.model_copy(update={"own": own_of(primitive).model_copy(update={"fit": fit})})


FUSIONS = (
    Fusion(name="sum", query="conv|depthwise|product -> add"),
    Fusion(name="pool", query="conv -> pool"),
    # Predictions charge two kernels for images that a second cache still holds: pairs of which nine
    # tenths are predicted took as long either way (measured).
    Fusion(name="separable", query="depthwise -> conv[window=1, stride=1]", gain=0.85),
    Fusion(name="separable-sum", query="depthwise -> conv[window=1, stride=1] -> add", gain=0.85),
)
"""Patterns of kernels that may become one: search with ``tilewright fuse``."""


def machine(processor: Processor | None = None) -> Machine:
    """The machine of a processor; by default of the one at hand."""
    return _machine(processor or this_processor())


@cache
def _machine(cpu: Processor) -> Machine:
    first, second, third, main = cpu.bandwidths
    return Machine(
        name="cpu" if cpu.name == NATIVE else f"cpu-{cpu.name}",
        description=f"C with vectors of {cpu.lanes} float32 lanes, {cpu.registers} registers",
        clock_hz=cpu.clock_hz,
        memories=(
            Memory(name="dram", bytes_per_cycle=main),
            Memory(name="l3", bytes=cpu.level3_bytes, bytes_per_cycle=third),
            Memory(name="l2", bytes=cpu.level2_bytes, bytes_per_cycle=second),
            Memory(name="l1", bytes=cpu.level1_bytes, bytes_per_cycle=first),
            # One granule is one vector register.
            Memory(
                name="registers",
                bytes=cpu.registers * cpu.lanes * 4,
                granule=cpu.lanes * 4,
            ),
        ),
        engines=(Engine(name="core"),),
        primitives=(
            *(piece_primitives(cpu.block_cycles) if cpu.block_cycles else ()),
            *(_fitted(p, cpu) for p in _products(cpu.lanes, cpu.vectors_per_cycle, cpu.registers)),
            *integer_primitives(cpu.lanes, cpu.word_bytes, cpu.words_per_cycle),
            *(
                short_primitives(cpu.lanes, cpu.pairs_per_cycle, _wide(cpu.lanes, cpu.registers))
                if cpu.pairs_per_cycle
                else ()
            ),
            *_others(cpu.lanes, cpu.vectors_per_cycle),
        ),
        fusions=FUSIONS,
        synchronisation=Synchronisation(style="none"),
        cores=cpu.cores,
        own=CpuMachine(cache_costs=cpu.cache_costs),
    )


def lanes_of(machine: Machine) -> int:
    """float32 lanes of a vector of a machine that ``machine`` has made."""
    return machine.memory("registers").granule // 4


def with_one_layout(described: Machine) -> Machine:
    """The machine with products whose weights have one layout for a row and for many, so that
    networks of different lengths share them.

    Wide blocks of output channels take one row, too: what it computes on is read from main memory,
    which takes longer than its few chains of multiply-adds.
    """
    wide = [p for p in described.primitives if p.name in ("matmul_m", "matmul_n")]
    most = min((p.extents["co"][0] - 1 for p in wide), default=MOST)
    changed: list[Primitive] = []
    for primitive in described.primitives:
        extents = dict(primitive.extents)
        if primitive in wide:
            extents = {"co": extents["co"]}
        elif primitive.name == "matmul":
            extents |= {"co": (1, most)}
        elif primitive.name == "matmul_rows":
            continue
        changed.append(primitive.model_copy(update={"extents": extents}))
    return described.model_copy(update={"primitives": tuple(changed)})
