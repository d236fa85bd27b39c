"""In which layouts each operation of a network can take its operands and give its result."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, product
from math import prod

from tilewright.graph.dialect import KernelOp, OutputOp, WeightOp
from tilewright.graph.operations import Operation
from tilewright.graph.operations.pointwise import PointwiseOperation
from tilewright.graph.operations.pooling import PoolOperation
from tilewright.graph.operations.quantisation import BYTES
from tilewright.graph.operations.views import JoinOperation, PadOp, SliceOp
from tilewright.graph.passes.computed_weights import by_price
from tilewright.graph.passes.constraints import Candidate, candidate, serving
from tilewright.graph.passes.strides import (
    dense_box,
    pads,
    parse,
    reshape_box,
    slice_box,
    transpose_box,
)
from tilewright.ir import Operation as AnyOperation
from tilewright.ir import SSAValue, Use
from tilewright.ir.types import element_name, element_size, shape_of, tensor_type
from tilewright.machine import Machine, Primitive
from tilewright.numerics.element_types import ELEMENTS
from tilewright.numerics.operators import operators
from tilewright.planning import Planner
from tilewright.planning.domain import Operand
from tilewright.planning.space.operand_layouts import lies_along, operand_layout

LANE_SAFE = frozenset((*operators("finite"), "slice", "concat", "interleave"))
"""Maps that give finite numbers for whatever finite numbers lie in padded lanes.

Padded lanes are written like all others and read by convolutions with weights of zero, so they do
no harm as long as they are finite. Division, logarithms and powers are not listed (0 / 0, log 0,
0 ** -1), nor is anything that reduces over channels: a machine that does such things on padded
channels has a primitive that names the blocked layout itself.
"""

CONVERSIONS = frozenset(("quantise", "dequantise", "convert_layout"))
"""Maps whose operand and result may lie in different layouts."""

LINEAR_CONVERSIONS = frozenset(("quantise_linear", "dequantise_linear"))
"""Such maps while one scale and one zero point hold for all elements."""

IMAGE_LAYOUTS_TRIED = 7
"""Layouts of a value that are tried at most, row-major included."""

_INNERMOST = re.compile(r"(.*[A-Za-z])(\d+)([a-z])")
"""A layout's innermost block: what lies around it, its elements, its letter."""


@dataclass(frozen=True)
class Choice:
    """One way to run an operation: a layout for every operand and for the result.

    An operand's None means that any layout will do. ``primitive`` is the one that is meant.
    """

    operands: tuple[str | None, ...]
    result: str
    primitive: str = ""


def plain(text: str, rank: int) -> str:
    """The layout's name, "" if it is row-major."""
    return "" if not text or parse(text, rank).row_major else text


def candidates(machine: Machine, value: SSAValue) -> tuple[str, ...]:
    """Layouts in which the machine's primitives take a value; row-major comes last."""
    rank = len(shape_of(value))
    element = element_name(tensor_type(value).element_type)
    layouts = [
        plain(text, rank)
        for primitive in machine.primitives
        for role in ("input", "residual", "output")
        if _takes(machine, primitive, role, element)
        and (text := machine.layout_of(primitive, role, rank)) != "any"
    ]
    layouts += [
        machine.turned_layout(primitive, role, rank)
        for primitive in machine.primitives
        for role in ("input", "weight")
    ]
    view = machine.layouts.get("view", "")
    layouts += [view] if sum(letter.isupper() for letter in view) == rank else []
    blocked = dict.fromkeys(text for text in layouts if text)
    return (*islice(blocked, IMAGE_LAYOUTS_TRIED - 1), "")


def _takes(machine: Machine, primitive: Primitive, role: str, element: str) -> bool:
    """Return True if a primitive takes elements; of integers on a machine of short floats only what
    names them."""
    if machine.number.is_short_float and ELEMENTS[element].is_integer:
        storage = primitive.operands.get(role)
        named = storage is not None and element in storage.elements
        return named or (primitive.element is not None and primitive.takes(role, element))
    return primitive.takes(role, element)


def choices_of(op: AnyOperation, machine: Machine, planner: Planner) -> list[Choice]:
    """The choices of one operation of the network, the preferred one first.

    ``planner`` is one by the machine's cost model.
    """
    if isinstance(op, KernelOp):
        return _kernel_choices(op, machine, planner)
    if isinstance(op, OutputOp):
        return [Choice(("",) * len(op.operands), "")]
    if isinstance(op, Operation):
        return _view_choices(op, machine)
    return [Choice((None,) * len(op.operands), "")]


def _view_choices(op: Operation, machine: Machine) -> list[Choice]:
    shape, result = shape_of(op.inputs[0]), shape_of(op.result)
    choices: list[Choice] = []
    if isinstance(op, JoinOperation | SliceOp):
        for text in candidates(machine, op.result):
            if _cuts_blocks(op, text):
                continue
            choices.append(Choice((text,) * len(op.inputs), text))
        return choices
    for source, target in product(
        candidates(machine, op.inputs[0]), candidates(machine, op.result)
    ):
        box, layout = dense_box(source, shape), parse(target, len(result))
        if op.operation == "transpose":
            view = transpose_box(box, op.integers("permutation"), layout)
        else:
            view = reshape_box(box, result, layout)
        if view is not None:
            choices.append(Choice((source,), target))
    if Choice(("",), "") not in choices:
        # Not an address, but computable as a copy.
        choices.append(Choice(("",), ""))
    return choices


def _cuts_blocks(op: Operation, text: str) -> bool:
    """Return True if a part of a join, or a slice, is no address: it cuts blocks, or pixels
    apart."""
    if text == "":
        return False
    if isinstance(op, SliceOp):
        shape = shape_of(op.inputs[0])
        return slice_box(dense_box(text, shape), op.ranges(shape)) is None
    assert isinstance(op, JoinOperation)
    box = dense_box(text, shape_of(op.result))
    return any(slice_box(box, part) is None for part in op.parts())


def _kernel_choices(kernel: KernelOp, machine: Machine, planner: Planner) -> list[Choice]:
    operations, anchor = kernel.operations, kernel.anchor
    count, rank = len(kernel.inputs), len(shape_of(kernel.result))
    row_major = Choice(("",) * count, "")
    if anchor.operation in CONVERSIONS and len(operations) == 1:
        return [Choice((None,), text) for text in candidates(machine, kernel.result)]
    alone = all(step.operation == "cast" for step in operations[1:])
    if anchor.operation in LINEAR_CONVERSIONS and alone and _scalars(kernel):
        others = ("",) * (count - 1)
        alike = [
            Choice((text, *others), to)
            for text in candidates(machine, kernel.inputs[0])
            for to in candidates(machine, kernel.result)
            if _same_bytes(kernel, text, to)
        ]
        anyhow = [Choice((None, *others), text) for text in candidates(machine, kernel.result)]
        if not machine.number.is_short_float:
            return anyhow
        # Floats of images change from rows to blocks, bytes do not: those are quantised in blocks.
        blocked = [choice for choice in alike if rank == 4 and choice.result]
        return blocked or alike or anyhow
    if kernel.on_host:
        if not all(isinstance(op, PointwiseOperation) for op in operations):
            return [row_major]
        return _shared(kernel, [{"any"}] * count, "any", machine, "") or [row_major]
    names = [op.operation for op in operations[1:]]
    for primitive in _in_order(kernel, machine, planner):
        if not primitive.accepts(names):
            continue
        demands = _demands(kernel, primitive, machine)
        result = machine.layout_of(primitive, "output", rank)
        choices = _shared(kernel, demands, result, machine, primitive.name)
        choices = [
            choice
            for choice in choices
            if _groups_fit_blocks(kernel, choice, primitive)
            and _runs_along(kernel, choice, primitive)
        ]
        if choices:
            turned = _turned(kernel, choices, machine, primitive)
            return [*choices, *turned, *_as_it_lies(kernel, choices, machine)]
    return [row_major]


def _same_bytes(kernel: KernelOp, source: str, target: str) -> bool:
    """Return True if two layouts of elements of several sizes are the same but for the innermost
    block, which is as many bytes in both: a kernel changes elements where they lie."""
    if "" in (source, target):
        return source == target
    widths = [
        element_size(tensor_type(value).element_type) for value in (kernel.inputs[0], kernel.result)
    ]
    ends = [_INNERMOST.fullmatch(text) for text in (source, target)]
    if None in ends:
        return source == target
    (outer, block, letter), other = (end.groups() for end in ends if end is not None)
    size = int(block) * widths[0]
    return (outer, letter) == (other[0], other[2]) and size == int(other[1]) * widths[1]


def _turned(
    kernel: KernelOp, choices: Sequence[Choice], machine: Machine, primitive: Primitive
) -> list[Choice]:
    """The choices with matrices that lie with rows and columns exchanged, each way."""
    both_ways: list[Choice] = []
    roles = operand_roles(kernel)
    for choice in choices:
        ways: list[list[str | None]] = []
        for value, text, used_as in zip(kernel.inputs, choice.operands, roles, strict=True):
            turned = machine.turned_layout(primitive, used_as[0], len(shape_of(value)))
            constant = isinstance(value.owner, WeightOp)
            ways.append([text, turned] if turned and not constant and len(used_as) == 1 else [text])
        both_ways += [
            Choice(operands, choice.result, choice.primitive)
            for operands in product(*ways)
            if operands != choice.operands
        ]
    return both_ways


def _as_it_lies(kernel: KernelOp, choices: Sequence[Choice], machine: Machine) -> list[Choice]:
    """The choices of the largest or least of all elements, which may come in any order."""
    anchor, image = kernel.anchor, kernel.inputs[0]
    if anchor.operation not in ("reduce_max", "reduce_min"):
        return []
    if prod(shape_of(anchor.result)) > 1 or anchor.inputs[0] is not kernel.body.block.args[0]:
        return []
    return [
        Choice((text, *choice.operands[1:]), choice.result, choice.primitive)
        for choice in choices
        for text in candidates(machine, image)
        if text != choice.operands[0] and not pads(text, shape_of(image))
    ]


def _in_order(kernel: KernelOp, machine: Machine, planner: Planner) -> list[Primitive]:
    """The primitives that serve a kernel, the preferred one first.

    Constants are laid out when the network is compiled, computed weights each time that it runs:
    behind caches the planner prices the copies, too; elsewhere those come first that read computed
    weights as they lie.
    """
    asked = _anchor(kernel)
    anchor = asked.op
    outside, operands = kernel.outside, asked.stage.inputs if asked.stage is not None else ()
    computed = [
        operand
        for value, operand in zip(anchor.inputs, operands, strict=False)
        if operand.role == "weight" and not isinstance(outside[value].owner, WeightOp)
    ]

    def moves(primitive: Primitive) -> bool:
        return any(operand_layout(machine, primitive, operand) for operand in computed)

    primitives = sorted(serving(asked, machine), key=moves)
    places = {p.operands["weight"].memory for p in primitives if "weight" in p.operands}
    if computed and anchor.operation == "matmul" and places == {machine.main}:
        return by_price(kernel, machine, primitives, planner)
    return primitives


def _scalars(kernel: KernelOp) -> bool:
    """Return True if all operands but the first hold one number."""
    return all(prod(shape_of(value)) == 1 for value in kernel.inputs[1:])


def _groups_fit_blocks(kernel: KernelOp, choice: Choice, primitive: Primitive) -> bool:
    """Return True if groups of channels start at whole blocks (``g*48 + ci`` on blocks of 16).

    Read off the access maps: along an axis that the layout cuts, a coefficient is 1 or a multiple
    of the block. A primitive that keeps such a dim whole sees to it itself.
    """
    for operand, text in _anchor_layouts(kernel, choice):
        for factor in parse(text, len(operand.shape)).factors:
            terms = operand.access[factor.axis].terms
            steps = {abs(step) for name, step in terms if name not in primitive.whole} - {1}
            if any(step % factor.divisor for step in steps):
                return False
    return True


def _runs_along(kernel: KernelOp, choice: Choice, primitive: Primitive) -> bool:
    """Return True if the anchor's operands lie along the dims that a primitive asks for."""
    extents = _anchor(kernel).extents
    return all(
        operand.role not in primitive.operands
        or lies_along(operand, text, primitive.operands[operand.role].along, extents)
        for operand, text in _anchor_layouts(kernel, choice)
    )


def _anchor(kernel: KernelOp) -> Candidate:
    """A kernel's anchor with its loop nest."""
    return candidate(kernel.anchor)


def _anchor_layouts(kernel: KernelOp, choice: Choice) -> list[tuple[Operand, str]]:
    """The anchor's operands and its result, each with the layout that a choice gives it."""
    anchor = _anchor(kernel)
    if anchor.stage is None:
        return []
    arguments: list[SSAValue] = list(kernel.body.block.args)
    texts = [choice.operands[arguments.index(value)] or "" for value in anchor.op.inputs]
    operands = (*anchor.stage.inputs, anchor.stage.output)
    return list(zip(operands, (*texts, choice.result), strict=True))


def _demands(kernel: KernelOp, primitive: Primitive, machine: Machine) -> list[set[str]]:
    """For every operand the layouts that its uses ask for.

    Weights of a product that may lie anyhow are row-major: they share nothing with the result.
    """
    demands: list[set[str]] = []
    maps = isinstance(kernel.anchor, PointwiseOperation)
    for value, operands in zip(kernel.inputs, operands_by_role(kernel), strict=True):
        asked: set[str] = set()
        for role, operand in operands.items():
            if operand is None:
                text = machine.layout_of(primitive, role, len(shape_of(value)))
            else:
                text = operand_layout(machine, primitive, operand)
            constant = role in ("weight", "bias") and not maps
            asked.add("" if text == "any" and constant else text)
        demands.append(asked)
    return demands


def operand_roles(kernel: KernelOp) -> list[list[str]]:
    """For every operand of a kernel the roles of its uses, in order."""
    return [list(operands) for operands in operands_by_role(kernel)]


def operands_by_role(kernel: KernelOp) -> list[dict[str, Operand | None]]:
    """For every operand of a kernel, by role, the anchor's operand; None for operands of maps."""
    computes: list[dict[str, Operand | None]] = []
    for uses in operand_uses(kernel):
        computes.append({})
        for _, role, operand in uses:
            computes[-1].setdefault(role, operand)
    return computes


def operand_uses(kernel: KernelOp) -> list[list[tuple[Use, str, Operand | None]]]:
    """For every operand of a kernel its uses, the anchor's first: their roles and operands."""
    anchor, stage = kernel.anchor, _anchor(kernel).stage
    described = stage.inputs if stage is not None else ()
    uses: list[list[tuple[Use, str, Operand | None]]] = []
    for argument in kernel.body.block.args:
        uses.append([])
        for use in sorted(argument.uses, key=lambda use: use.operation is not anchor):
            inside = use.operation is anchor and use.index < len(described)
            operand = described[use.index] if inside else None
            uses[-1].append((use, operand.role if operand is not None else "residual", operand))
    return uses


def _shared(
    kernel: KernelOp, demands: Sequence[set[str]], result: str, machine: Machine, primitive: str
) -> list[Choice]:
    """Choices for a kernel with these demands; what may be ``any`` shares one layout."""
    shape = shape_of(kernel.result)
    free = result == "any" or any("any" in asked for asked in demands)
    choices: list[Choice] = []
    maps = isinstance(kernel.anchor, PointwiseOperation)
    images = ["input" in roles and not maps for roles in operands_by_role(kernel)]
    for text in candidates(machine, kernel.result) if free else ("",):
        target = text if result == "any" else plain(result, len(shape))
        operands = [
            _operand_layout(value, asked, text, shape, image)
            for value, asked, image in zip(kernel.inputs, demands, images, strict=True)
        ]
        if _lanes_are_safe(kernel, operands, target, result == "any"):
            choices.append(Choice(tuple(operands), target, primitive))
    return choices


def _operand_layout(
    value: SSAValue, asked: set[str], shared: str, result: tuple[int, ...], image: bool
) -> str:
    """The one layout of an operand: ``shared`` where any will do.

    An operand that broadcasts along channels, or has another rank than the result, stays
    row-major: a block of it would hold one element. The image that an anchor reads (``image``)
    broadcasts along nothing.
    """
    shape = shape_of(value)
    like_result = len(shape) == len(result) and shape[1:2] == result[1:2]
    named = sorted(asked - {"any"})
    text = named[0] if named else (shared if like_result else "")
    cut = "c" in text  # not weights, whose second axis has extent 1 in depthwise convolutions
    if (
        cut
        and len(shape) == 4
        and shape[1] == 1
        and not (like_result or image)
        and pads(text, shape)
    ):
        text = ""
    return plain(text, len(shape))


def _lanes_are_safe(kernel: KernelOp, operands: Sequence[str], result: str, free: bool) -> bool:
    """Return True if padded lanes stay finite through a kernel."""
    shape = shape_of(kernel.result)
    padded = pads(result, shape) or any(
        pads(text, shape_of(value))
        for text, value in zip(operands, kernel.inputs, strict=True)
        if not isinstance(value.owner, WeightOp)
    )
    if not padded:
        return True
    # An anchor whose primitive names the blocked layout takes care of the lanes itself.
    checked = kernel.operations if free else kernel.operations[1:]
    return all(
        op.operation in LANE_SAFE
        or (isinstance(op, PoolOperation) and op is not kernel.anchor)
        or (isinstance(op, PadOp) and element_name(tensor_type(op.result).element_type) in BYTES)
        for op in checked
    )
