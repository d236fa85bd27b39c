"""One core group of the SW26010: an MPE, 8 x 8 CPEs with 64 KB of LDM each, 8 GB of memory.

Figures and where they come from: clock 1.45 GHz, 8 FLOP a cycle and CPE (a fused multiply-add on
four lanes, float and double alike), 34.1 GB/s of main memory for the group. What public sources
leave open has a name here, and is printed by who uses it:

``move.get.curve``, ``move.put.curve``
    Part of the 34.1 GB/s that a transfer reaches by the length of its contiguous blocks. Two
    public measurements differ by 3.6 at 64 bytes: ``swgemm``, the map of a GEMM tuner's strided
    tiles (feifeibear/swGEMM, without its dips at 96, 224 and 448 bytes), and ``swcandle``, in which
    each CPE copies a region of its own (jameslinsjtu/swCandle).
``move.get.latency``, ``move.put.latency``
    1,043 cycles (0.72 us) from a command to the end of its first transaction, with 64 CPEs at work:
    what swCandle's shortest lone commands (8 bytes, ``LONE_SECONDS``) take, less the issue and a
    transaction of 128 bytes by Eq. 1 of swATOP. 278 were measured for one CPE alone.
``move.get.in_flight``, ``move.put.in_flight``
    2: by swCandle two gets of a CPE hide each other's latency. Of more nothing is known.
``memory.ldm.reserved``
    8 KB of LDM for the stack: public kernels take 55 to 57 KB for data.
``spawn_cycles``
    15,000 (10 us) to start 64 CPEs and wait for them: an estimate, from intercepts of 16 to 35 us
    that have start-ups of DMA in them.

Each CPE works for itself here (planning/planners/cores.py): registers are not exchanged. The cycles
of convolutions and matrix products are those of the instructions of gemm/tile.py by the model of
the two pipelines: 16 for 16 multiply-adds of vectors, and what a tap and a block take beside.
Depthwise convolutions and pools are loops over rows: a vector of four multiply-adds takes six slots
of the memory pipeline (two loads and a store of what is not aligned, two slots each).
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.machine import Engine, Fusion, Machine, Memory, Move, Primitive, Storage
from tilewright.machine.records import PrimitiveRecord
from tilewright.machine.synchronisation import MAX_WORDS, Synchronisation
from tilewright.targets.sunway.capabilities import SunwayMachine, SunwayPrimitive

CPES = 64
LDM_BYTES = 64 << 10
STACK_BYTES = 8 << 10
MAIN_BYTES = 8 << 30
"""Bytes of a core group's memory."""
CLOCK_HZ = 1.45e9
PEAK_RATE = 34.1
"""GB/s of one core group's main memory."""
ISSUE_CYCLES = 25
"""Cycles to issue a DMA command."""
LONE_SECONDS = 1.099e-6
"""Seconds of a DMA command of 8 bytes while 64 CPEs do the same: 2,000 gets and 2,000 puts in turns
take 4.397 ms (swCandle, PE_CONT)."""
TRANSACTION_BYTES, DMA_RATE = 128, 22.6
"""Bytes of a transaction of main memory; and GB/s of DMA in swATOP (section 2), which Eq. 1 divides
among the CPEs."""
LATENCY = (
    round((LONE_SECONDS - TRANSACTION_BYTES * CPES / (DMA_RATE * 1e9)) * CLOCK_HZ) - ISSUE_CYCLES
)
"""Cycles of a command beside its issue and its bytes."""

RATES: dict[str, tuple[tuple[int, float], ...]] = {
    "swgemm": (
        *((16, 3.4), (32, 6.1), (64, 11.9), (128, 13.4), (256, 17.5), (512, 21.0)),
        *((1024, 23.6), (2048, 24.6), (4080, 25.4)),
    ),
    "swcandle": (
        *((16, 1.1), (32, 2.11), (64, 3.30), (128, 5.16), (256, 8.42), (512, 11.8)),
        *((1024, 14.5), (2048, 17.4), (4096, 18.7), (8192, 19.6)),
    ),
}
"""GB/s of a core group by bytes of a contiguous block, as measured; 16 bytes of swCandle are the
middle of 0.8 to 1.4."""

CURVES = {
    name: tuple((size, round(rate / PEAK_RATE, 4)) for size, rate in rates)
    for name, rates in RATES.items()
}

LDM = Storage(memory="ldm", elements=("float32",))
OPERANDS = {"input": LDM, "residual": LDM, "output": LDM}
PRODUCT = {**OPERANDS, "weight": LDM, "bias": LDM}
BLOCKS = "(co//16+co%16//8+ceil(co%8/4))"
"""Blocks of a tile's output channels: 16, 8 and 4 of them (gemm/tile.py)."""


def _blocks(wide: int, half: int, quarter: int) -> str:
    """A figure of each of a tile's blocks, added up."""
    return f"({wide}*(co//16)+{half}*(co%16//8)+{quarter}*ceil(co%8/4))"


CONVOLUTION = (
    "n*g*ceil(oh*ow/4)*where(co<4,kh*kw*(ci*8+12)*co,where(co%4>0,"
    f"kh*kw*(ci*{_blocks(23, 13, 10)}+8*{BLOCKS}+12)+{_blocks(150, 88, 55)}+63,"
    f"kh*kw*(ci*{_blocks(16, 11, 10)}+6*{BLOCKS}+12)+{_blocks(81, 48, 30)})"
    f"+where(oh*ow%4>0,63*{BLOCKS},0)+20)"
)
"""Cycles of a convolution's tile: for each four positions, what the instructions of ``taps`` take
in a step, a tap and a block, and integers for the table of taps. Where channels do not come in
fours, weights are merged out of two vectors each, and the last block is copied; less than four are
taken one by one."""

_DOTS = "(where(ci%4>0,48*ci,18*ceil(ci/4))+150)"

DOTS = f"ceil(m*n/4)*ceil(co/4)*{_DOTS}"
"""Cycles of a matrix product's tile by ``gemm_by_dots``: four rows by four; element by element
where rows do not begin at vectors."""

PANELS = (
    "((co//16)*(ceil(m*n/4)*(16*ci+63*ceil(ci/64))+where(ci%4>0,96*ci,72*ceil(ci/4)))"
    f"+ceil(m*n/4)*ceil(co%16/4)*{_DOTS})"
)
"""Cycles by ``gemm_by_panels`` as far as there are 16 columns: steps and blocks of gemm/panel.py
with 25 cycles for pointers and choices, and panels that are turned."""

MATMUL = f"b0*b1*where(ceil(m*n/4)*(ci+540)>18*ci,{PANELS},{DOTS})"
"""The faster of both, as ``gemm_turns`` has it."""

IN_TURNS = "b0*b1*(co//16)*(ceil(m*n/4)*(20*ci+60*ceil(ci/64))+18*ci)+30"
"""Cycles of a turn of ``gemm_in_turns``: the sender's loop, in which floats are loaded and sent by
separate instructions (gemm/mesh.py), a block, and a panel that the sender turns."""

TRANSFORM = "n*c*th*tw*(8*kh*kw+30)"
"""Cycles of a tile of transformed inputs. Each element is copied, goes through a pass of rows and
one of columns, of two multiply-adds in the mean, and lies in LDM between them: eight slots of the
busier pipeline with its share of the indices; loops over tiles take 30 more."""

TRANSFORM_BACK = "n*c*th*tw*(5*p+10*r*s+30)"
"""Cycles of a tile of products that are transformed back, and read where they lie; elements of the
result are taken one by one through the rest of the chain."""

WINDOWS = "n*c*kh*kw*oh*(2*ow+24)"
"""Cycles of a tile of windows that are written side by side: an element is loaded and stored by
itself, as those of a stride do not lie side by side; 24 for where a row meets the padding."""

POINTS = "d0*d1*d2*d3*d4*d5"


def _primitive(
    name: str,
    operations: tuple[str, ...],
    operands: dict[str, Storage],
    cycles: str,
    peak: str,
    whole: tuple[str, ...] = (),
    approximate: bool = False,
    granules: Mapping[str, int] | None = None,
) -> Primitive:
    return Primitive(
        name=name,
        operations=operations,
        engine="cpe",
        operands=operands,
        epilogue_any=True,
        cycles=cycles,
        peak=peak,
        whole=whole,
        approximate=approximate,
        multiples=dict(granules or {}),
        own=PrimitiveRecord() if granules is None else SunwayPrimitive(turns=True),
    )


def _primitives() -> tuple[Primitive, ...]:
    return (
        _primitive(
            "conv",
            ("conv",),
            {**PRODUCT, "weight": Storage(memory="ldm", layout="IHWO", elements=("float32",))},
            CONVOLUTION,
            "n*g*co*oh*ow*ci*kh*kw/4",
        ),
        _primitive(
            "matmul",
            ("matmul",),
            {**PRODUCT, "weight": Storage(memory="ldm", layout="OI", elements=("float32",))},
            MATMUL,
            "b0*b1*m*n*co*ci/4",
        ),
        _primitive(
            "matmul_in_turns",
            ("matmul",),
            {**PRODUCT, "weight": Storage(memory="ldm", layout="OI", elements=("float32",))},
            IN_TURNS,
            "b0*b1*m*n*co*ci/4",
            granules={"co": 16, "m": 4, "n": 4, "ci": 4},
        ),
        _primitive(
            "depthwise_conv",
            ("depthwise_conv",),
            PRODUCT,
            "n*c*oh*kh*kw*(6*ceil(ow/4)+8)",
            "n*c*oh*ow*kh*kw/4",
        ),
        _primitive(
            "pool",
            ("max_pool", "average_pool"),
            OPERANDS,
            "n*c*oh*kh*kw*(6*ceil(ow/4)+8)",
            "n*c*oh*ow*kh*kw/4",
            whole=("kh", "kw"),
        ),
        _primitive(
            "winograd_input",
            ("winograd_input",),
            OPERANDS,
            TRANSFORM,
            "n*c*th*tw*2*kh*kw",
            whole=("p", "kh", "kw"),
            approximate=True,
        ),
        _primitive(
            "winograd_output",
            ("winograd_output",),
            {**OPERANDS, "bias": LDM},
            TRANSFORM_BACK,
            "n*c*th*tw*2*p",
            whole=("r", "s", "p"),
            approximate=True,
        ),
        _primitive("im2col", ("im2col",), OPERANDS, WINDOWS, "n*c*kh*kw*oh*ow"),
        _primitive("lrn", ("lrn",), OPERANDS, "n*c*h*w*(3*j+80)", "n*c*h*w*(j/4+20)", whole=("j",)),
        _primitive(
            "softmax", ("softmax",), OPERANDS, f"{POINTS}*axis*60", f"{POINTS}*axis*20", ("axis",)
        ),
        _primitive(
            "vector",
            ("function", "arithmetic", "identity", "batch_norm"),
            {**OPERANDS, "weight": LDM, "bias": LDM},
            f"{POINTS}*3",
            f"{POINTS}/4",
        ),
    )


CHAINS = (
    *("conv -> pool", "conv -> conv", "depthwise -> conv", "conv -> depthwise"),
    "product -> softmax -> product",
)
"""Chains of kernels that a CPE computes tile by tile as one: the intermediate tile stays in its
LDM."""

CHAIN_GAIN = 0.9
"""Part of the predicted cycles apart that a chain must stay below: predictions of chains are up to
19 % off the shim's count, so one that seems hardly faster may be slower."""


MACHINE = Machine(
    name="sw26010",
    description="one core group of SW26010: an MPE and 64 CPEs of 64 KB LDM, float, 34.1 GB/s",
    clock_hz=CLOCK_HZ,
    memories=(
        Memory(name="dram", bytes=MAIN_BYTES, bytes_per_cycle=PEAK_RATE * 1e9 / CLOCK_HZ),
        Memory(name="ldm", bytes=LDM_BYTES, reserved=STACK_BYTES, granule=32),
    ),
    moves=tuple(
        Move(
            name=name,
            source=source,
            target=target,
            engine=name,
            bytes_per_cycle=PEAK_RATE * 1e9 / CLOCK_HZ,
            latency=LATENCY,
            in_flight=2,
            curves=CURVES,
            curve="swgemm",
        )
        for name, source, target in (("get", "dram", "ldm"), ("put", "ldm", "dram"))
    ),
    engines=(Engine(name="get"), Engine(name="put"), Engine(name="cpe")),
    primitives=_primitives(),
    fusions=(
        Fusion(name="sum", query="conv|depthwise|product -> add"),
        *(
            Fusion(name=query.replace(" -> ", "-"), query=query, between="ldm", gain=CHAIN_GAIN)
            for query in CHAINS
        ),
    ),
    cores=CPES,
    temporary_space=True,  # swTVM, section 4.1
    own=SunwayMachine(spawn_cycles=15_000),
    memory_growth=8,
    issue_cycles=ISSUE_CYCLES,
    synchronisation=Synchronisation(style="replies", ids=MAX_WORDS, issuer="cpe"),
    layouts={"activation": "NCHW", "weight": "OIHW"},
)
"""The machine of one core group."""
