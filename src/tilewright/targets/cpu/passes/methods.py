"""The methods by which a processor can compute a convolution, each with its price and memory, and
a kernel in the form of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tilewright.graph.dialect import KernelOp, ScratchOp, WeightOp
from tilewright.graph.operations import Operation
from tilewright.graph.operations.convolution import ConvOp
from tilewright.graph.operations.matrix import MatMulOp
from tilewright.graph.passes.constraints import candidate, serving
from tilewright.graph.passes.editing import erase, insert
from tilewright.graph.passes.methods import TRIAL, Form, Priced, forms_of
from tilewright.graph.passes.reanchoring import (
    anchor_operands,
    anchor_weights,
    plain_kernel,
    reanchored,
    with_layouts,
)
from tilewright.graph.passes.strides import size
from tilewright.ir import PythonValue, SSAValue, bf16, f32
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import element_dtype, shape_of, tensor, tensor_type
from tilewright.machine import Machine, Primitive
from tilewright.numerics.pieces import GROUP, THREE, TWO, groups, split_weights
from tilewright.numerics.winograd import TRANSFORMS, transform_weights
from tilewright.planning import Planner
from tilewright.planning.domain import Kernel
from tilewright.planning.planners.caches import in_place_planning
from tilewright.planning.schedule import Schedule
from tilewright.targets.cpu.planning.blocks import scratch_elements
from tilewright.targets.cpu.planning.capabilities import facts_of, own_of
from tilewright.targets.cpu.planning.cost import near_bytes
from tilewright.targets.cpu.planning.pieces import scratch_words

SCRATCH_CACHES = 4
"""Largest size of scratch, as a multiple of the size of the cache before the last one."""


@dataclass(frozen=True)
class Method:
    """One way to compute a convolution: the kernel that it asks for, and what computes that."""

    form: Form
    kernel: Kernel
    """The kernel with the primitive's layouts, and room for as much scratch as there may be."""
    primitive: Primitive
    weight_bytes: int
    """Bytes of the weights in the form and the layout that the primitive takes."""


def most_scratch(machine: Machine) -> int:
    """Elements of scratch beyond which no method goes."""
    return SCRATCH_CACHES * near_bytes(machine) // 4


def methods_of(kernel: KernelOp, machine: Machine, room: int | None = None) -> Iterator[Method]:
    """Every method that a machine has for a kernel whose anchor is a convolution, direct first.

    ``room`` is how many elements of scratch there may be (by default ``most_scratch``).
    """
    anchor = kernel.anchor
    assert isinstance(anchor, ConvOp | MatMulOp)
    direct = next(_fitting(anchor, machine), None)
    if direct is None:
        direct = serving(candidate(anchor), machine)[0]
    yield _method(kernel, machine, direct, Form(), anchor_operands(kernel)[1])
    if not direct.multiples:
        return
    # Register tiles read windows where they lie: there is no method that lays them out first.
    forms = [f for f in forms_of(kernel, anchor) if f.tile] if isinstance(anchor, ConvOp) else []
    forms += [Form(plain=False, pieces=n) for n in _pieces(kernel, anchor, machine)]
    for form in forms:
        trial = rewritten(kernel, form, most_scratch(machine) if room is None else room, None)
        inner = trial.anchor
        weight = anchor_operands(trial)[1]
        methods = [
            _method(trial, machine, primitive, form, weight)
            for primitive in list(_fitting(inner, machine))[:1]
        ]
        forget(trial)
        yield from methods


def has_methods(machine: Machine) -> bool:
    """Return True if a machine has other methods than the direct one for convolutions."""
    return any(machine.primitives_for(name) for name in ("winograd_conv", "piece_conv"))


def kernels_by_method(kernel: KernelOp, machine: Machine) -> list[Kernel] | None:
    """A kernel in each method that has a schedule; None where there is no choice."""
    if not has_methods(machine) or not isinstance(kernel.anchor, ConvOp | MatMulOp):
        return None
    return [method.kernel for method in _scheduled(kernel, machine)]


def _scheduled(kernel: KernelOp, machine: Machine, room: int | None = None) -> Iterator[Method]:
    """The methods that have a schedule."""
    own = in_place_planning(machine)
    for method in methods_of(kernel, machine, room):
        if next(own.schedules(method.kernel, machine, method.primitive), None) is not None:
            yield method


def priced_methods(
    kernel: KernelOp, machine: Machine, room: int, planner: Planner | None = None
) -> list[Priced]:
    """The methods with their prices, the direct one first; those that fit the room of scratch.

    ``planner`` is one by the machine's cost model.
    """
    priced: list[Priced] = []
    planner = planner or Planner(machine)
    for method in _scheduled(kernel, machine, room):
        method_plan = planner.plan(method.kernel)
        elements = 0
        if not method.form.direct:
            elements = scratch_of(method.primitive, method_plan.schedule, method.kernel)
        price = method_plan.predicted_cycles, elements, method.weight_bytes
        priced.append(Priced(method.form, method.primitive.name, *price))
    return priced


def scratch_of(primitive: Primitive, schedule: Schedule, kernel: Kernel) -> int:
    """Elements of 4 bytes of scratch that a schedule's instances need."""
    if not own_of(primitive).block_cycles:
        return scratch_elements(primitive, schedule, kernel)
    return scratch_words(kernel, {**kernel.anchor.extents, **dict(schedule.levels[-1].tile)})


def piece_counts(machine: Machine, *, rough: bool) -> tuple[int, ...]:
    """Into how many pieces of bfloat16 products may be split; fewer round more, and ``rough`` says
    that another method whose errors are as large stands ready."""
    if not any(own_of(primitive).block_cycles for primitive in machine.primitives):
        return ()
    return (TWO, THREE) if rough or facts_of(machine).pieces == "all" else (THREE,)


def _pieces(kernel: KernelOp, anchor: ConvOp | MatMulOp, machine: Machine) -> tuple[int, ...]:
    """Into how many pieces numbers may be split, where that is defined.

    Three are exact; two are so nearly, and taken where the machine says so.
    """
    weight = anchor_operands(kernel)[1]
    if kernel.on_host or not isinstance(weight.owner, WeightOp):
        return ()
    kinds = [tensor_type(value) for value in anchor.inputs]
    if any(kind.element_type != f32 for kind in kinds):
        return ()
    if isinstance(anchor, ConvOp):
        apart = anchor.integers("strides") + anchor.integers("dilations") == (1, 1, 1, 1)
        window = shape_of(weight)[2:]
        rough = apart and any(window == (taps, taps) for _, taps in TRANSFORMS)
        fits = anchor.integer("group", 1, 2**24) == 1
    else:
        co = shape_of(anchor.result)[-1]
        biases = [kind.get_shape() for kind in kinds[2:]]
        rough = False
        fits = len(kinds[1].get_shape()) == 2 and not anchor.transposed[0]
        fits = fits and all(shape == (co,) for shape in biases)
    return piece_counts(machine, rough=rough) if fits else ()


def _fitting(op: Operation, machine: Machine) -> Iterator[Primitive]:
    """The primitives that serve an operation, in register tiles, whose blocks hold one group."""
    asked = candidate(op)
    for primitive in serving(asked, machine):
        if not primitive.multiples:
            continue
        if "g" not in asked.extents or not any(
            asked.extents.get(dim, granule) % granule
            for dim, granule in primitive.multiples.items()
        ):
            yield primitive


def _method(
    kernel: KernelOp, machine: Machine, primitive: Primitive, form: Form, weight: SSAValue
) -> Method:
    shape = shape_of(weight)
    layout = machine.layout_of(primitive, "weight", len(shape))
    layout = "" if layout == "any" else layout
    item = element_dtype(tensor_type(weight).element_type).itemsize
    described = with_layouts(plain_kernel(kernel), machine, primitive)
    return Method(form, described, primitive, size(layout, shape) * item)


def rewritten(
    kernel: KernelOp, form: Form, elements: int, context: CompilerContext | None
) -> KernelOp:
    """The kernel in another form with ``elements`` of scratch, in place of the old one.

    Without a context it stands beside the old one, with weights that do not exist: a trial.
    """
    anchor = kernel.anchor
    assert isinstance(anchor, ConvOp | MatMulOp)
    image, weight, *bias = anchor_operands(kernel)
    owner = anchor_weights(kernel)
    scratch = ScratchOp.of(elements)
    insert(scratch, kernel)
    if form.pieces:
        filters, name, attributes = _split(kernel, anchor, owner, form.pieces, context)
        operands = [image, filters, scratch.result, *bias]
        return reanchored(kernel, name, operands, attributes, replace=context is not None)
    taps = shape_of(weight)[2]
    filters = weight
    if not form.plain:
        shape = (*shape_of(weight)[:2], *(form.tile + taps - 1,) * 2)
        symbol = TRIAL
        if context is not None:
            array = transform_weights(context.weights.get(owner.symbol.data), form.tile)
            symbol = context.weights.add(array, "winograd")
        transformed = WeightOp.of(symbol, tensor(shape))
        insert(transformed, kernel)
        filters = transformed.result
    attributes = {
        "pads": anchor.integers("pads"),
        "tile": form.tile,
        "taps": taps,
        "group": anchor.integer("group", 1, 2**24),
    }
    return reanchored(
        kernel,
        "winograd_conv",
        [image, filters, scratch.result, *bias],
        attributes,
        replace=context is not None,
    )


def _split(
    kernel: KernelOp,
    anchor: Operation,
    owner: WeightOp,
    count: int,
    context: CompilerContext | None,
) -> tuple[SSAValue, str, dict[str, PythonValue]]:
    """Weights for ``count`` pieces, and the operation that takes them, with its attributes."""
    shape = shape_of(owner.result)
    attributes: dict[str, PythonValue] = {}
    name = "piece_matmul"
    if isinstance(anchor, ConvOp):
        name = "piece_conv"
        names = ("pads", "strides", "dilations")
        attributes = {"window": shape[2:], **{n: anchor.integers(n) for n in names}}
    elif not anchor.get("transpose_b", False):
        shape = shape[::-1]
    element, parts = (bf16, TWO) if count == TWO else (f32, 1)
    size = groups(shape[1]) * prod(shape[2:]) * parts * GROUP
    symbol = TRIAL
    if context is not None:
        array = context.weights.get(owner.symbol.data)
        if name == "piece_matmul" and not anchor.get("transpose_b", False):
            array = array.T
        symbol = context.weights.add(split_weights(array, count), "pieces")
    split = WeightOp.of(symbol, tensor((shape[0], size), element))
    insert(split, kernel)
    return split.result, name, attributes


def forget(trial: KernelOp) -> None:
    """Erase a trial with its weights and scratch."""
    owners = [value.owner for value in trial.inputs]
    erase(trial)
    for op in owners:
        if isinstance(op, ScratchOp) or (isinstance(op, WeightOp) and op.symbol.data == TRIAL):
            erase(op)
