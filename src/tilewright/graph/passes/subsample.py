"""subsample: layers that skip pixels read a strided view of their input instead."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.graph.dialect import network_of
from tilewright.graph.operations import Operation
from tilewright.graph.operations.views import JoinOperation
from tilewright.graph.passes.constraints import candidate, serving
from tilewright.graph.passes.editing import Rewriter, compiler, make, operations_of, sweep
from tilewright.graph.passes.strides import dense_box, slice_box
from tilewright.ir import Context, ModuleOp, ModulePass, PythonValue, SSAValue
from tilewright.ir.types import shape_of
from tilewright.machine import Machine

Range = tuple[int, int, int]
"""Axis, end and step of the pixels that are read along it, from index 0 on."""


@dataclass(frozen=True)
class Subsample(ModulePass):
    """Take a stride out of a layer whose windows are one pixel wide along it.

    Before::

        %1 = graph.conv %x, %w {strides = [2, 2]} : (tensor<1x64x56x56xf32>,
             tensor<128x64x1x1xf32>) -> tensor<1x128x28x28xf32>

    After::

        %1 = graph.slice %x {starts = [0, 0], ends = [55, 55], steps = [2, 2], axes = [2, 3]} : ...
        %2 = graph.conv %1, %w : (tensor<1x64x28x28xf32>, ...) -> tensor<1x128x28x28xf32>

    A tile's box of the input spans all pixels between the first and the last that it touches; where
    windows leave gaps, most of the box would be moved to the chip for nothing. The slice is an
    address with strides of its own, so the transfer itself leaves the gaps out. Layers that read
    the same pixels share one slice.

    Done for convolutions and pools on the accelerator, along axes without padding on which the
    kernel has extent 1 and the stride is larger, if every primitive that serves the layer keeps the
    input in a memory that software manages (a cache does not load gaps) and takes it
    in a layout in which the slice is an address. Where a transfer is one contiguous block
    (``MoveRecord.block_by_block``) gaps are no gain: each pixel would be a transfer of its own. The
    input must be computed on the accelerator too: any other may have to be copied into that layout,
    and a strided copy is no better.
    """

    name = "subsample"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        context = compiler(ctx)
        machine = context.machine
        known: dict[tuple[SSAValue, tuple[Range, ...]], SSAValue] = {}
        for step in operations_of(op):
            ranges = skipped(step)
            if not ranges or not _computed(step.inputs[0]) or not _is_address(step, machine):
                continue
            key = step.inputs[0], ranges
            if key not in known:
                known[key] = _slice(step, ranges)
            strides = list(step.integers("strides"))
            for axis, _, _ in ranges:
                strides[axis - 2] = 1
            values, at = {**step.values, "strides": tuple(strides)}, Rewriter(context, step)
            at.replace(at.make(step.operation, known[key], *step.inputs[1:], **values))
        sweep(network_of(op))


def skipped(op: Operation) -> tuple[Range, ...]:
    """Which pixels a convolution or pool reads along axes on which it skips some."""
    if op.operation == "conv":
        kernel = shape_of(op.inputs[1])[2:]
    elif op.operation in ("max_pool", "average_pool"):
        kernel = op.integers("kernel")
    else:
        return ()
    strides, pads, result = op.integers("strides"), op.integers("pads"), shape_of(op.result)
    return tuple(
        (2 + i, (result[2 + i] - 1) * strides[i] + 1, strides[i])
        for i in range(2)
        if kernel[i] == 1 and strides[i] > 1 and pads[i] == pads[2 + i] == 0
    )


def _slice(op: Operation, ranges: tuple[Range, ...]) -> SSAValue:
    attributes: dict[str, PythonValue] = {
        "starts": (0,) * len(ranges),
        "ends": tuple(end for _, end, _ in ranges),
        "steps": tuple(step for _, _, step in ranges),
        "axes": tuple(axis for axis, _, _ in ranges),
    }
    return make("slice", [op.inputs[0]], attributes, before=op).result


def _computed(value: SSAValue) -> bool:
    """Return True if the accelerator writes a value in the layout in which its users want it."""
    owner = value.owner
    if not isinstance(owner, Operation):
        return False
    parts = owner.inputs if isinstance(owner, JoinOperation) else (value,)
    return all(_on_accelerator(part.owner) for part in parts)


def _on_accelerator(op: object) -> bool:
    """Return True if partition gave an operation to the accelerator; views have no engine."""
    return isinstance(op, Operation) and op.engine is not None and op.engine.data == "accelerator"


def _is_address(op: Operation, machine: Machine) -> bool:
    """Return True if all primitives for a layer gain by the slice, and can read it where it
    lies."""
    if not _on_accelerator(op):
        return False
    shape = shape_of(op.inputs[0])
    taken = [range(extent) for extent in shape]
    for axis, end, step in skipped(op):
        taken[axis] = range(0, end, step)
    for primitive in serving(candidate(op), machine):
        storage = primitive.operands.get("input")
        layout = machine.layout_of(primitive, "input", len(shape))
        if storage is None or storage.memory == machine.main or layout == "any":
            return False
        if machine.path(machine.main, storage.memory)[0].own.block_by_block():
            return False
        if slice_box(dense_box(layout, shape), taken) is None:
            return False
    return True
