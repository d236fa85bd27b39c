"""A core as planning knows machines: memories, moves, engines, primitives, all from core.py.

A memory is a group of banks. Its granule is a row of all of them, so that an address in bytes is a
row by division, and extents are rounded to what the banks hold: rows of an image come in turns of
``rows`` banks (times the stride, whose rows share a bank), channels in groups of ``channels``. What
the planner counts as bytes is then what the tile takes of the banks.

A kernel reads group vb0 and writes group vb1; in kernels of several computes all of them may lie
in any group, so that one reads what another has written. Rows that two tiles read may stay there,
in a circular buffer of whole turns round the banks. Sums do not outlive a CONV: a tile has all
input channels and the whole kernel. A bias counts as 4 bytes, which the graph's biases have; the
banks hold them as bytes with a binary point of their own, so the bias bank counts fourfold.
"""

from __future__ import annotations

from functools import cache

from tilewright.machine import Engine, Fusion, Machine, Memory, Move, Primitive, Storage
from tilewright.machine.records import OperandRecord
from tilewright.machine.rounding import Rounding
from tilewright.machine.synchronisation import Synchronisation
from tilewright.numerics.power_of_two import AVERAGE_FACTORS, LEAKY
from tilewright.targets.dpu.capabilities import DpuMachine, DpuOperand
from tilewright.targets.dpu.core import DEPTH, BankGroup, Core
from tilewright.targets.dpu.formats import CATEGORIES

BIAS_BYTES = 4
"""Bytes of a bias in the graph."""

MOST_GROUPS = 256
"""Groups of channels of a pixel that instructions can name."""

MOST_LENGTH = 1024
"""Pixels of a row that instructions can name."""

MOST_KERNEL = 16
"""Rows and columns of a convolution's kernel."""

ROUNDING = Rounding(
    bias_bits=8,
    guard_bits=2,
    average_bits=7,
    averages={f"{width}x{width}": factor for width, factor in AVERAGE_FACTORS.items()},
    slope=(LEAKY, 8),
    shifts={"conv": (0, 16), "matmul": (0, 16), "add": (-5, 17), "mul": (-3, 23)},
)
"""numerics/power_of_two.py as rules for the graph. The shifts of sums of products are those that
Vitis AI's quantiser allows; others are what the fields hold."""

SHARED = "vb0"
"""The group from which kernels read: what several of them read may stay there."""

FEW = "conv-few"
"""The primitive of convolutions of few input channels: channel augmentation."""

FEW_CHANNELS = 3
"""The most input channels of these convolutions."""

ACTIVATIONS = ("relu", "clip", "leaky_relu")
"""Maps that instructions apply to sums; ``clip`` as ReLU6."""

FUSIONS = {
    "conv-pool": "conv -> pool",
    "conv-add": "conv|depthwise -> add",
    "conv-conv": "conv -> conv",
    "conv-depthwise": "conv -> depthwise",
    "depthwise-conv": "depthwise -> conv",
    "pool-conv": "pool -> conv",
    "conv-conv-conv": "conv -> conv -> conv",
    "conv-conv-add": "conv -> conv -> add",
    "conv-conv-pool": "conv -> conv -> pool",
    "bottleneck": "conv -> conv -> conv -> add",
    "inverted": "conv -> depthwise -> conv",
    "inverted-residual": "conv -> depthwise -> conv -> add",
}
"""Kernels that may be one: templates of DNNVM's operations (section 4.1)."""


@cache
def machine_of(core: Core) -> Machine:
    """The machine of a core."""
    return Machine(
        name=core.name,
        description=(
            f"FPGA CNN core: {core.rows} rows x {core.channels} input x {core.channels} output "
            f"channels at once, int8 with power-of-two scales, {core.clock_hz / 1e6:g} MHz"
        ),
        clock_hz=core.clock_hz,
        issue_cycles=core.issue_cycles,
        instruction_bytes=0,
        element="fixed8",
        accumulator="fixed32",
        synchronisation=Synchronisation(style="tokens", grain="rows"),
        own=DpuMachine(rounding=ROUNDING),
        memories=(
            Memory(name="dram", bytes_per_cycle=core.memory_bytes_per_second / core.clock_hz),
            *(_memory(core, group) for group in core.bank_groups),
        ),
        moves=(
            *(_move(core, "load", group) for group in core.bank_groups),
            *(_move(core, "save", group) for group in core.bank_groups),
        ),
        engines=tuple(Engine(name=name, queue=core.queue) for name in CATEGORIES),
        primitives=_primitives(core),
        fusions=tuple(
            Fusion(name=name, query=query, between="vb1") for name, query in FUSIONS.items()
        ),
        layouts={"activation": "NHWC", "weight": "OHWI"},
    )


def _move(core: Core, engine: str, group: BankGroup) -> Move:
    """The path of LOADs into a group, or of SAVEs from it."""
    ends = ("dram", group.name) if engine == "load" else (group.name, "dram")
    memory = core.memory_bytes_per_second / core.clock_hz
    return Move(
        name=f"{engine}-{group.name}",
        source=ends[0],
        target=ends[1],
        engine=engine,
        bytes_per_cycle=min(core.bytes_per_cycle, memory),
        latency=core.latency,
        in_flight=core.in_flight,
    )


def _memory(core: Core, group: BankGroup) -> Memory:
    row = group.count * core.channels * (BIAS_BYTES if group.kind == "bias" else 1)
    return Memory(
        name=group.name,
        bytes=row * DEPTH,
        banks=group.count,
        granule=row,
        resident=("inputs",) if group is core.group(SHARED) else (),
    )


def _primitives(core: Core) -> tuple[Primitive, ...]:
    rows, channels = core.rows, core.channels
    most, transfer = MOST_GROUPS * channels, _row_cycles(core)
    bias = Storage(memory="bias", multiples={"co": channels})
    few = min(2 * channels // FEW_CHANNELS, MOST_KERNEL)
    return (
        Primitive(
            # LOADs put the pixels of a row of the kernel side by side, as channels of one pixel.
            name=FEW,
            operations=("conv",),
            engine="conv",
            operands={
                "input": _map(
                    core, "vb0", {"oh": rows, "ci": 2 * channels}, own=DpuOperand(apart=("kw",))
                ),
                "weight": Storage(memory="weight", multiples={"co": channels, "ci": channels}),
                "bias": bias,
                "output": _map(core, "vb1", {"oh": rows, "co": channels}, circular=True),
            },
            epilogue=(ACTIVATIONS, ("requantise",)),
            cycles=f"n*ceil(oh/{rows})*ow*ceil(co/{channels})*kh*ceil(kw*ci/{channels})",
            peak=f"n*oh*ow*co*ci*kh*kw/{core.macs}",
            multiples={"oh": rows, "co": channels},
            issue=f"{transfer}*(oh+kh)",
            limits={"n": 1, "ow": MOST_LENGTH, "co": most},
            extents={
                "g": (1, 1),
                "ci": (1, FEW_CHANNELS),
                "kh": (1, MOST_KERNEL),
                "kw": (2, few),
            },
            whole=("ci", "kh", "kw"),
        ),
        Primitive(
            name="conv",
            operations=("conv",),
            engine="conv",
            operands={
                "input": _map(core, "vb0", {"oh": rows, "ci": channels}, circular=True),
                "weight": Storage(memory="weight", multiples={"co": channels, "ci": channels}),
                "bias": bias,
                "output": _map(core, "vb1", {"oh": rows, "co": channels}, circular=True),
            },
            epilogue=(ACTIVATIONS, ("requantise",)),
            cycles=f"n*g*ceil(oh/{rows})*ow*ceil(co/{channels})*ceil(ci/{channels})*kh*kw",
            peak=f"n*g*oh*ow*co*ci*kh*kw/{core.macs}",
            multiples={"oh": rows, "co": channels, "ci": channels},
            issue=f"{transfer}*(oh+kh)",
            limits={"n": 1, "g": 1, "ow": MOST_LENGTH, "co": most},
            extents={"ci": (1, most), "kh": (1, MOST_KERNEL), "kw": (1, MOST_KERNEL)},
            whole=("ci", "kh", "kw"),
        ),
        Primitive(
            name="fc",
            operations=("matmul",),
            engine="conv",
            operands={
                "input": _map(core, "vb0", {"n": rows, "m": rows, "ci": channels}),
                "weight": Storage(memory="weight", multiples={"co": channels, "ci": channels}),
                "bias": bias,
                "output": _map(core, "vb1", {"n": rows, "m": rows, "co": channels}),
            },
            epilogue=(ACTIVATIONS, ("requantise",)),
            cycles=f"ceil(n*m/{rows})*ceil(co/{channels})*ceil(ci/{channels})",
            peak=f"n*m*co*ci/{core.macs}",
            multiples={"n": rows, "m": rows, "co": channels, "ci": channels},
            limits={"co": most},
            extents={"ci": (1, most), "b0": (1, 1), "b1": (1, 1)},
            whole=("ci",),
        ),
        _windows(
            core,
            "depthwise",
            ("depthwise_conv",),
            weight=Storage(memory="depthwise", layout="HWIO", multiples={"c": channels}),
            bias=Storage(memory="bias", multiples={"c": channels}),
        ),
        _windows(core, "pool", ("max_pool", "average_pool")),
        Primitive(
            name="elementwise",
            operations=("add", "mul"),
            engine="misc",
            operands={
                "input": _map(core, "vb0", {"d2": rows, "d1": channels}),
                "output": _map(core, "vb1", {"d2": rows, "d1": channels}),
            },
            epilogue=(("relu",), ("requantise",)),
            cycles=f"d0*ceil(d2/{core.elementwise_rows})*d3*ceil(d1/{channels})*2",
            peak=f"d0*d1*d2*d3*2/{core.elementwise_rows * channels}",
            multiples={"d1": channels, "d2": rows},
            issue=f"{transfer}*2*d2",
            limits={"d0": 1, "d3": MOST_LENGTH, "d1": most},
        ),
    )


def _map(
    core: Core,
    group: str,
    multiples: dict[str, int],
    *,
    circular: bool = False,
    own: DpuOperand | None = None,
) -> Storage:
    """A feature map, which lies in a group of banks, or in any other of those for maps."""
    maps = [each.name for each in core.bank_groups if each.kind == "map" and each.name != group]
    return Storage(
        memory=group,
        alternatives=tuple(maps),
        multiples=multiples,
        circular=circular,
        own=own or OperandRecord(),
    )


def _row_cycles(core: Core) -> int:
    """Cycles that a LOAD of a short row takes at least: of a tile, every row has one."""
    return -(-core.latency // core.in_flight)


def _windows(core: Core, name: str, operations: tuple[str, ...], **operands: Storage) -> Primitive:
    """Return a primitive that reduces windows by channel, maybe with operands beside the image."""
    rows, channels = core.misc_rows, core.channels
    image = {"oh": core.rows, "c": channels}
    kernel = (1, MOST_KERNEL)
    return Primitive(
        name=name,
        operations=operations,
        engine="misc",
        operands={
            "input": _map(core, "vb0", image, circular=True),
            **operands,
            "output": _map(core, "vb1", image, circular=True),
        },
        epilogue=(ACTIVATIONS, ("requantise",)) if operands else (),
        cycles=f"n*ceil(oh/{rows})*ow*ceil(c/{channels})*kh*kw",
        peak=f"n*oh*ow*c*kh*kw/{rows * channels}",
        issue=f"{_row_cycles(core)}*(oh+kh)",
        multiples=image,
        limits={"n": 1, "ow": MOST_LENGTH, "c": MOST_GROUPS * channels},
        extents={"kh": kernel, "kw": kernel} if operands else {},
        whole=("kh", "kw"),
    )
