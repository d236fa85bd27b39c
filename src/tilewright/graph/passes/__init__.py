"""Passes over the graph, one file each, and the order in which a compilation runs them."""

from __future__ import annotations

from tilewright.graph.passes.absorb_constants import AbsorbConstants
from tilewright.graph.passes.assign_layouts import AssignLayouts
from tilewright.graph.passes.compress_weights import CompressWeights
from tilewright.graph.passes.compute_in_integers import ComputeInIntegers
from tilewright.graph.passes.eliminate_views import EliminateViews
from tilewright.graph.passes.equalise import Equalise
from tilewright.graph.passes.expand_blocks import ExpandBlocks
from tilewright.graph.passes.fix_numbers import FixNumbers
from tilewright.graph.passes.fold_constants import FoldConstants
from tilewright.graph.passes.fuse_batch_norm import FuseBatchNorm
from tilewright.graph.passes.fuse_pointwise import FusePointwise
from tilewright.graph.passes.join_groups import JoinGroups
from tilewright.graph.passes.join_on_chip import JoinOnChip
from tilewright.graph.passes.multiply_bytes import MultiplyBytes
from tilewright.graph.passes.narrow_floats import NarrowFloats
from tilewright.graph.passes.own import passes_of
from tilewright.graph.passes.partition import Partition
from tilewright.graph.passes.plan_memory import PlanMemory
from tilewright.graph.passes.quantise import Quantise
from tilewright.graph.passes.read_short_floats import ReadShortFloats
from tilewright.graph.passes.simplify import Simplify
from tilewright.graph.passes.state_scales import StateScales
from tilewright.graph.passes.take_steps import TakeSteps
from tilewright.graph.passes.unroll_loops import UnrollLoops
from tilewright.ir import ModulePass
from tilewright.ir.passes import PassEntry
from tilewright.machine import Machine
from tilewright.machine.numbers import integers_of, is_mixed

PASSES: dict[str, type[ModulePass]] = {
    step.name: step
    for step in (
        AbsorbConstants,
        AssignLayouts,
        CompressWeights,
        ComputeInIntegers,
        EliminateViews,
        Equalise,
        ExpandBlocks,
        FixNumbers,
        FoldConstants,
        FuseBatchNorm,
        FusePointwise,
        JoinGroups,
        JoinOnChip,
        MultiplyBytes,
        NarrowFloats,
        Partition,
        PlanMemory,
        Quantise,
        ReadShortFloats,
        Simplify,
        StateScales,
        TakeSteps,
        UnrollLoops,
    )
}
"""Every graph pass by its name on the command line, but those that machines bring (own.py)."""


def simplify_pipeline(machine: Machine) -> list[PassEntry]:
    """The passes on the model as it is, whatever numbers it will have."""
    integers = [
        PassEntry(
            FoldConstants(keep="dequantise_linear"),
            "but weights of 8 bits stay what they are until integers have been found",
        ),
        PassEntry(
            ComputeInIntegers(), "before floats are rewritten: a quantised network has its scales"
        ),
    ]
    blocks = [PassEntry(ExpandBlocks(), f"{machine.name} multiplies no matrices in blocks")]
    return [
        *([] if machine.primitives_for("block_matmul") else blocks),
        *(integers if machine.computes_as_given or integers_of(machine) is not None else []),
        PassEntry(FoldConstants(), "so that later passes see constants where there are any"),
        PassEntry(MultiplyBytes(), "before zero points that are subtracted join anything else"),
        PassEntry(Simplify(), "fewer forms: one spelling for each thing that exporters write"),
        PassEntry(FuseBatchNorm(), "normalisations cost nothing inside a convolution's weights"),
        PassEntry(Simplify(), "scales and shifts that normalisations left join their producers"),
        PassEntry(FoldConstants(), "and what they leave unused goes"),
        PassEntry(AbsorbConstants(), "weights that have been folded are known to loops' bodies"),
    ]


def kernel_pipeline(machine: Machine, host: tuple[str, ...] = ()) -> list[PassEntry]:
    """The passes that form kernels."""
    shorts = [
        PassEntry(
            ReadShortFloats(), "before kernels: copies in float32 would be kernels of their own"
        )
    ]
    blocks = any(primitive.blocks for primitive in machine.primitives)
    groups = [PassEntry(JoinGroups(), "a primitive in blocks takes groups of whole blocks")]
    stated = [PassEntry(StateScales(), "instructions carry numbers, and operands that are scales")]
    return [
        *(shorts if machine.computes_as_given else []),
        *(groups if blocks else []),
        *passes_of(machine).kernel_passes(),
        PassEntry(Partition(host), f"ask {machine.name} what it computes, operation by operation"),
        *(stated if is_mixed(machine) else []),
        PassEntry(FusePointwise(), "what passes between a kernel's stages never leaves the chip"),
    ]


def layout_pipeline(machine: Machine) -> list[PassEntry]:
    """The passes that give kernels their numbers, methods and layouts."""
    numbers: list[PassEntry] = []
    if machine.number.kind == "fixed":
        reason = f"{machine.name} computes on {machine.element}; needs ranges"
        numbers = [PassEntry(FixNumbers(), reason)]
    elif machine.number.is_short_float:
        numbers = [PassEntry(NarrowFloats(), f"{machine.name} reads and writes {machine.element}")]
    reason = "after numbers, which make small weights 0; before layouts"
    sparse = [PassEntry(CompressWeights(), reason)]
    joins = [PassEntry(JoinOnChip(), "after layouts: whether parts of a tensor have gaps is known")]
    return [
        *numbers,
        *(sparse if machine.primitives_for("sparse_product") else []),
        *passes_of(machine).method_passes(machine),
        PassEntry(AssignLayouts(), "after kernels are formed: each asks for layouts as a whole"),
        *passes_of(machine).layout_passes(),
        *(joins if machine.primitives_for("concat") else []),
    ]


def address_pipeline(*, exact_memory: bool = False) -> list[PassEntry]:
    """The passes that give every value its address."""
    return [
        PassEntry(EliminateViews(), "after layouts, which decide what is an address"),
        PassEntry(
            PlanMemory(exact=exact_memory), "last: every value that needs memory is known now"
        ),
    ]
