"""The methods by which a machine can compute a convolution, each with its price and its memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.graph.dialect import KernelOp, WeightOp
from tilewright.graph.operations import Operation
from tilewright.graph.operations.base import is_float
from tilewright.graph.operations.convolution import SHORT_FLOATS, ConvOp
from tilewright.graph.operations.matrix import MatMulOp
from tilewright.graph.passes.constraints import candidate, serving
from tilewright.graph.passes.reanchoring import plain_kernel, with_layouts
from tilewright.graph.passes.rewrite_method import Form, forget, rewritten
from tilewright.graph.passes.strides import size
from tilewright.ir import SSAValue, f32, i16
from tilewright.ir.types import element_size, shape_of, tensor_type
from tilewright.machine import Machine, Primitive
from tilewright.numerics.winograd import TRANSFORMS
from tilewright.planning import Planner
from tilewright.planning.caches import in_place_planning
from tilewright.planning.domain import Kernel

SCRATCH_CACHES = 4
"""Scratch may be so many times as large as the cache before the last one."""


@dataclass(frozen=True)
class Method:
    """One way to compute a convolution: the kernel that it asks for, and what computes that."""

    form: Form
    kernel: Kernel
    """With the primitive's layouts, and room for as much scratch as there may be."""
    primitive: Primitive
    weight_bytes: int
    """Of the weights in the form and the layout that the primitive takes."""


@dataclass(frozen=True)
class Priced:
    """A method as the planner expects it to be."""

    form: Form
    primitive: str
    cycles: float
    scratch: int = 0
    """Elements."""
    weight_bytes: int = 0


def most_scratch(machine: Machine) -> int:
    """Elements of scratch beyond which no method goes."""
    return SCRATCH_CACHES * in_place_planning(machine).near_bytes(machine) // 4


def methods_of(kernel: KernelOp, machine: Machine, room: int | None = None) -> Iterator[Method]:
    """Every method that a machine has for a kernel whose anchor is a convolution, direct first.

    ``room`` is how many elements of scratch there may be (by default ``most_scratch``).
    """
    anchor = kernel.operations[0]
    assert isinstance(anchor, ConvOp | MatMulOp)
    direct = next(_fitting(anchor, machine), None)
    if direct is None:
        direct = serving(candidate(anchor), machine)[0]
    yield _method(kernel, machine, direct, Form(), kernel.inputs[_weight(kernel)])
    if not direct.multiples:
        return
    forms = list(forms_of(kernel, anchor)) if isinstance(anchor, ConvOp) else []
    forms += [Form(plain=False, pieces=n) for n in _pieces(kernel, anchor, machine)]
    for form in forms:
        trial = rewritten(kernel, form, most_scratch(machine) if room is None else room, None)
        inner = trial.operations[0]
        assert isinstance(inner, Operation)
        weight = trial.inputs[_weight(trial)]
        methods = [
            _method(trial, machine, primitive, form, weight)
            for primitive in list(_fitting(inner, machine))[:1]
        ]
        forget(trial)
        yield from methods


def priced_methods(
    kernel: KernelOp, machine: Machine, room: int, planner: Planner | None = None
) -> list[Priced]:
    """The methods with their prices, the direct one first; those that fit the room of scratch.

    ``planner`` is one by the machine's cost model.
    """
    priced: list[Priced] = []
    own, planner = in_place_planning(machine), planner or Planner(machine)
    for method in methods_of(kernel, machine, room):
        if next(own.schedules(method.kernel, machine, method.primitive), None) is None:
            continue
        method_plan = planner.plan(method.kernel)
        elements = 0
        if not method.form.direct:
            elements = own.scratch_elements(method.primitive, method_plan.schedule, method.kernel)
        price = method_plan.predicted_cycles, elements, method.weight_bytes
        priced.append(Priced(method.form, method.primitive.name, *price))
    return priced


def forms_of(kernel: KernelOp, anchor: ConvOp) -> Iterator[Form]:
    """The forms that are defined for a kernel's anchor."""
    weight = kernel.inputs[_weight(kernel)]
    if kernel.on_host or anchor.is_fixed or not isinstance(weight.owner, WeightOp):
        return
    elements = [tensor_type(value).element_type for value in (anchor.inputs[0], weight)]
    whole = is_float(elements[1])
    if not is_float(elements[0]) or not (whole or elements[1] in (*SHORT_FLOATS, i16)):
        return
    window = shape_of(weight)[2:]
    group = anchor.integer("group", 1, 2**24)
    if group == 1 and window != (1, 1) and whole:
        yield Form(explicit=True)
    apart = anchor.integers("strides") + anchor.integers("dilations")
    for tile, taps in TRANSFORMS:
        if apart == (1, 1, 1, 1) and window == (taps, taps):
            # Weights of 16 bits would be eight times as many bytes when they are transformed.
            if whole:
                yield Form(tile, False)
            yield Form(tile, True)


def _pieces(kernel: KernelOp, anchor: ConvOp | MatMulOp, machine: Machine) -> tuple[int, ...]:
    """Into how many pieces numbers may be split, where that is defined.

    Three are exact; two are so nearly, and taken where the machine says so.
    """
    weight = kernel.inputs[_weight(kernel)]
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
    return in_place_planning(machine).piece_counts(machine, rough=rough) if fits else ()


def _weight(kernel: KernelOp) -> int:
    """Which of a kernel's operands the anchor takes as weights."""
    return list(kernel.body.block.args).index(kernel.operations[0].operands[1])  # type: ignore[arg-type]


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
    described = with_layouts(plain_kernel(kernel), machine, primitive)
    return Method(
        form,
        described,
        primitive,
        element_size(tensor_type(weight).element_type, size(layout, shape)),
    )
