"""The conditions under which an operation can run on a machine's accelerator.

Each constraint is a named check with a reason as concrete as it can be: the reasons are what a
user reads when part of a network runs on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from tilewright.graph.dialect import WeightOp
from tilewright.graph.operations import Operation
from tilewright.ir import SSAValue, VerifyException
from tilewright.ir.types import FixedType, element_dtype, element_name, tensor, tensor_type
from tilewright.machine import Machine, Primitive
from tilewright.machine.numbers import is_mixed, seen_by
from tilewright.memory.alignment import align_up
from tilewright.numerics.element_types import ELEMENTS
from tilewright.numerics.operators import has
from tilewright.planning.domain import Stage
from tilewright.planning.space.operand_layouts import takes_operand


@dataclass(frozen=True)
class Candidate:
    """An operation as constraints see it: with its loop nest, if it has one."""

    op: Operation
    stage: Stage | None

    @property
    def operation(self) -> str:
        """The operation's name as primitives list it (``depthwise_conv``)."""
        return self.stage.operation if self.stage is not None else self.op.operation

    @property
    def extents(self) -> dict[str, int]:
        """Extent of every dim."""
        return self.stage.extents if self.stage is not None else {}


def candidate(op: Operation) -> Candidate:
    """The operation with a stage over invented names."""
    names = [f"x{index}" for index in range(len(op.inputs))]
    return Candidate(op, op.stage(names, "y"))


def _no_remedy(asked: Candidate, machine: Machine) -> Mapping[str, int]:
    return {}


MOST_LISTED = 15
"""Operations of a machine that a reason lists."""


@dataclass(frozen=True)
class Constraint:
    """One condition: ``check`` gives None or the reason why the operation does not meet it."""

    name: str
    check: Callable[[Candidate, Machine], str | None]
    help: str
    remedy: Callable[[Candidate, Machine], Mapping[str, int]] = _no_remedy
    """Values of the machine (``Machine.with_values``) with which the operation would meet it."""


def _has_loops(asked: Candidate, machine: Machine) -> str | None:
    if asked.stage is not None:
        return None
    return f"{asked.operation} with these attributes is no loop nest over its elements"


def _listed(asked: Candidate, machine: Machine) -> str | None:
    if machine.primitives_for(asked.operation):
        return None
    listed = sorted({name for p in machine.primitives for name in p.operations})
    others = f" (it has {', '.join(listed)})" if len(listed) <= MOST_LISTED else ""
    return (
        f"no primitive of {machine.name} computes {asked.operation}{others}{_after(asked, machine)}"
    )


def _after(asked: Candidate, machine: Machine) -> str:
    """Return where epilogues lack the operand that an operation's further values are, or ""."""
    lacking = [
        primitive.name
        for primitive in machine.primitives
        if "residual" not in primitive.operands
        and any(asked.operation in group for group in primitive.epilogue)
    ]
    if len(asked.op.inputs) < 2 or not lacking:
        return ""
    return (
        f"; the epilogue of {', '.join(lacking)} has it, but its further values are an operand "
        "residual, which the primitive lacks"
    )


def other_parameters(op: Operation, name: str, primitive: Primitive) -> str | None:
    """Return the reason why a primitive does not take an operation with its attributes; None if it
    does. Limits that an operation does not state are those of its result's type."""
    for attribute, numbers in primitive.parameters.get(name, {}).items():
        value = op.values.get(attribute)
        if value is None and attribute in ("minimum", "maximum"):
            limits = np.iinfo(element_dtype(tensor_type(op.result).element_type))
            value = limits.min if attribute == "minimum" else limits.max
        if value not in numbers:
            known = " or ".join(f"{number:g}" for number in numbers)
            stated = "none" if value is None else str(value)
            return f"{primitive.name} takes {name} with {attribute} {known}, here it is {stated}"
    return None


def _parameters(asked: Candidate, machine: Machine) -> str | None:
    """Return the reason why no primitive takes an operation with these attributes."""
    name, reasons = asked.operation, dict[str, None]()
    for primitive in machine.primitives:
        listed = name in primitive.operations or any(name in g for g in primitive.epilogue)
        reason = other_parameters(asked.op, name, primitive) if listed else None
        if reason is None and name in primitive.operations:
            return None
        if reason is not None:
            reasons[reason] = None
    return "; ".join(reasons) or None


def _extents(asked: Candidate, machine: Machine) -> str | None:
    primitives = machine.primitives_for(asked.operation)
    if any(_serves(p, asked, machine) for p in primitives):
        return None
    if not asked.extents:
        return "it is a single number: there is nothing to cut into tiles"
    spans = [
        f"{p.name} serves {dim} from {least} to {greatest}, here it is {asked.extents.get(dim, 1)}"
        for p in primitives
        for dim, (least, greatest) in p.extents.items()
        if not least <= asked.extents.get(dim, 1) <= greatest
    ]
    return "; ".join(spans)


def _serves(primitive: Primitive, asked: Candidate, machine: Machine) -> bool:
    """Return True if a primitive takes an operation of these extents; without any, only in
    place."""
    places = {storage.memory for storage in primitive.operands.values()}
    return primitive.serves(asked.operation, asked.extents) and (
        bool(asked.extents) or places == {machine.main}
    )


def _places(asked: Candidate, machine: Machine) -> str | None:
    """Return the reason why no primitive has a memory for every operand; None if one has."""
    if asked.stage is None:
        return None
    roles = dict.fromkeys(operand.role for operand in (*asked.stage.inputs, asked.stage.output))
    reasons: list[str] = []
    for primitive in serving(asked, machine):
        missing = [role for role in roles if role not in primitive.operands]
        if not missing:
            return None
        reasons.append(f"{primitive.name} takes no {' and no '.join(missing)}")
    return "; ".join(reasons)


def fills(op: Operation, machine: Machine) -> bool:
    """Return True if every primitive that computes an operation says what its image's padding
    holds."""
    element = machine.element_of(element_name(tensor_type(op.inputs[0]).element_type), "input")
    primitives = [
        primitive
        for primitive in machine.primitives_for(candidate(op).operation)
        if primitive.takes("input", element)
    ]
    return bool(primitives) and all(
        "input" in p.operands and p.operands["input"].fills for p in primitives
    )


def _fill(asked: Candidate, machine: Machine) -> str | None:
    """Return the reason why padding with numbers other than 0 is impossible; None if it is
    possible."""
    fill = asked.op.get("fill", 0) if "fill" in asked.op.DEFAULTS else 0
    if not fill or fills(asked.op, machine):
        return None
    return f"its image is padded with {fill}, and {machine.name} pads with 0"


def _elements(asked: Candidate, machine: Machine) -> str | None:
    """Return the reason why primitives with element types of their own refuse the operands'; None
    if one takes them."""
    if is_mixed(machine) and not serving(asked, machine):
        return _own_numbers(asked, machine)
    return None


def _numbers(asked: Candidate, machine: Machine) -> str | None:
    """Return the reason why the operation is undefined on the machine's elements; None if it is
    defined."""
    if is_mixed(machine):
        others = _own_numbers(asked, machine)
        if machine.computes_as_given or others is None:
            return others
    if machine.computes_as_given:
        return None
    elements = {element_name(tensor_type(value).element_type) for value in asked.op.inputs}
    computable = {machine.element, machine.accumulator} | _taken(asked, machine)
    if machine.number.kind == "float":
        elements.add(element_name(tensor_type(asked.op.result).element_type))
    others = sorted(
        name for name in elements if not ELEMENTS[name].is_plain and name not in computable
    )
    if others:
        return f"{machine.name} computes on {machine.element}, not on {', '.join(others)}"
    if machine.number.kind == "float":
        return None
    if machine.number.kind == "integer":
        return _integers(asked, machine)
    biases = asked.op.inputs[2:] if has(asked.op.operation, "product") else ()
    if not all(isinstance(bias.owner, WeightOp) or _has_32_bits(bias) for bias in biases):
        return "its bias is computed, and 32-bit biases have to be constants"
    element = fixed_element(asked, machine.fixed_bits)
    if element is None:
        return f"{asked.operation} is not defined on {machine.fixed_bits}-bit fixed point"
    if element == machine.element or _requantises(asked, machine):
        return None
    return f"{asked.operation} gives 32-bit results, and no primitive for it can requantise them"


def _taken(asked: Candidate, machine: Machine) -> set[str]:
    """The elements that primitives for the operation name for one of their operands."""
    return {
        element
        for primitive in serving(asked, machine)
        for storage in primitive.operands.values()
        for element in storage.elements
    }


def _own_numbers(asked: Candidate, machine: Machine) -> str | None:
    """Return the reason why no primitive that takes the operands has the operation on its element
    types."""
    primitives = serving(asked, machine)
    if not machine.computes_as_given:
        primitives = tuple(p for p in primitives if p.element is not None)
    if any(has_meaning(asked, seen_by(machine, primitive)) for primitive in primitives):
        return None
    elements = [element_name(tensor_type(value).element_type) for value in asked.op.inputs]
    kinds = ", ".join(dict.fromkeys(elements))
    return f"no primitive of {machine.name} computes {asked.operation} on {kinds}"


def has_meaning(asked: Candidate, machine: Machine) -> bool:
    """Return True if an operation within a kernel has a meaning on the machine's elements."""
    if machine.number.kind == "integer":
        return _integers(asked, machine) is None
    return machine.number.kind == "float" or fixed_element(asked, machine.fixed_bits) is not None


ON_INTEGERS = frozenset(
    (
        *("conv", "matmul", "max_pool", "requantise_linear", "add_linear", "mul_linear"),
        *("look_up", "add", "sub", "mul", "max", "min", "relu", "transpose", "convert_layout"),
    )
)
"""Operations that plain integers have."""


def _integers(asked: Candidate, machine: Machine) -> str | None:
    """Return the reason why an integer operation does not map the machine's integers, or sums of
    them, to such."""
    integers = (machine.element, machine.accumulator)
    ends = [
        element_name(tensor_type(v).element_type) for v in (asked.op.inputs[0], asked.op.result)
    ]
    if asked.op.operation in ON_INTEGERS and all(end in integers for end in ends):
        return None
    if asked.op.operation == "dequantise_linear" and ends[0] in integers:
        return None  # On the way out: its result is a float.
    others = ", ".join(sorted(set(ends) - set(integers)))
    if others:
        return f"{machine.name} computes on {machine.element}, not on {others}"
    return f"{asked.op.operation} is not defined on {machine.element}"


def _has_32_bits(value: SSAValue) -> bool:
    """Return True if a value is 32-bit fixed point, in a network that came with its numbers."""
    element = ELEMENTS[element_name(tensor_type(value).element_type)]
    return element.kind == "fixed" and element.bits == 32


def fixed_element(asked: Candidate, bits: int) -> str | None:
    """Element of the result on fixed-point operands of ``bits``; None if that has no meaning."""
    kinds = [tensor_type(value) for value in asked.op.inputs]
    fixed = [tensor(kind.get_shape(), FixedType.of(bits, bits - 2)) for kind in kinds]
    if has(asked.op.operation, "product") and len(fixed) == 3:
        fixed[2] = tensor(fixed[2].get_shape(), FixedType.of(32, 2 * bits - 4))
    try:
        return element_name(asked.op.inferred(fixed).element_type)
    except VerifyException:
        return None


def _requantises(asked: Candidate, machine: Machine) -> bool:
    return any(
        p.epilogue_any or any("requantise" in group for group in p.epilogue)
        for p in serving(asked, machine)
    )


def serving(asked: Candidate, machine: Machine) -> tuple[Primitive, ...]:
    """The primitives that compute the operation at its extents, of its operands' elements."""
    inputs = asked.stage.inputs if asked.stage is not None else ()
    return tuple(
        p
        for p in machine.primitives
        if p.serves(asked.operation, asked.extents)
        and other_parameters(asked.op, asked.operation, p) is None
        and all(takes_operand(machine, p, operand) for operand in inputs)
    )


def _whole(asked: Candidate, machine: Machine) -> str | None:
    """Return the reason why dims that a tile must cover whole exceed limits or memories; None if
    they fit."""
    reasons: list[str] = []
    for primitive in serving(asked, machine):
        shortage = _shortage(asked, primitive, machine)
        if shortage is None:
            return None
        reasons.append(shortage.reason)
    return "; ".join(dict.fromkeys(reasons))


def _larger(asked: Candidate, machine: Machine) -> Mapping[str, int]:
    """Return the machine keys that must grow for the first primitive that serves the operation,
    with their values."""
    for primitive in serving(asked, machine):
        shortage = _shortage(asked, primitive, machine)
        if shortage is not None:
            return {shortage.key: shortage.value}
    return {}


@dataclass(frozen=True)
class _Shortage:
    """A limit or memory that is too small for an operation's whole dims."""

    reason: str
    key: str
    """The machine's value that is too small (``memory.nbin.bytes``)."""
    value: int
    """The least that would do."""


def _shortage(asked: Candidate, primitive: Primitive, machine: Machine) -> _Shortage | None:
    stage = asked.stage
    if stage is None:
        return None
    extents = asked.extents
    whole = [dim for dim in primitive.whole if dim in extents]
    for dim in whole:
        limit = primitive.limits.get(dim)
        if limit is not None and extents[dim] > limit:
            return _Shortage(
                f"{asked.operation} over {extents[dim]} elements: "
                f"the {primitive.name} unit takes at most {limit}",
                f"primitive.{primitive.name}.limits.{dim}",
                extents[dim],
            )
    # The smallest tile: whole dims in full, one index of every other.
    dims = {dim: (0, extents[dim] if dim in whole else 1) for dim in extents}
    needed: dict[str, int] = {}
    for operand in (*stage.inputs, stage.output):
        storage = primitive.operands.get(operand.role) or primitive.operands.get("input")
        if storage is None or storage.memory == machine.main:
            continue
        box = [axis.interval(dims)[1] for axis in operand.access]
        box = [min(size, extent) for size, extent in zip(box, operand.shape, strict=True)]
        element = ELEMENTS[operand.element]
        size = prod(box) * (machine.number if element.is_plain else element).bytes
        needed[storage.memory] = needed.get(storage.memory, 0) + size
    for memory, size in needed.items():
        described = machine.memory(memory)
        available = described.bytes
        if available is not None and size > available:
            sizes = " x ".join(f"{dim} = {extents[dim]}" for dim in whole) or "one element"
            unit = described.banks * described.granule
            return _Shortage(
                f"{asked.operation} with {sizes} kept whole needs {size} bytes of {memory}, "
                f"which holds {available}",
                f"memory.{memory}.bytes",
                align_up(size, unit),
            )
    return None


def _windows(asked: Candidate, machine: Machine) -> str | None:
    """Return the reason why a window may lie in the padding alone, where primitives leave padding
    out; None if none does."""
    primitives = serving(asked, machine)
    if asked.stage is None or not all(primitive.own.skips_padding() for primitive in primitives):
        return None
    extents, reduction = asked.extents, set(asked.stage.reduction)
    for operand in asked.stage.inputs:
        if operand.role != "input":
            continue
        for axis, extent in zip(operand.access, operand.shape, strict=True):
            inner = [(name, c) for name, c in axis.terms if name in reduction]
            outer = [(name, c) for name, c in axis.terms if name not in reduction]
            if not inner or not outer:
                continue
            span = sum((extents[name] - 1) * c for name, c in inner) + 1
            last = axis.offset + sum((extents[name] - 1) * c for name, c in outer)
            if axis.offset + span <= 0 or last >= extent:
                return (
                    f"a window lies wholly in the padding, which {primitives[0].name} of "
                    f"{machine.name} leaves out"
                )
    return None


CONSTRAINTS: tuple[Constraint, ...] = (
    Constraint("loop-nest", _has_loops, "write the operation in terms of supported ones"),
    Constraint(
        "parameters",
        _parameters,
        "quantise so that the operation has such attributes (zero points of 0, say)",
    ),
    Constraint(
        "primitive",
        _listed,
        "replace the operation by one that `tilewright explain --operators` lists, or add a "
        "primitive to the machine",
    ),
    Constraint("extents", _extents, "change the layer's size, or choose another machine"),
    Constraint("elements", _elements, "quantise the operation, or leave it in floats"),
    Constraint("operands", _places, "give the primitive's operands that role in the machine"),
    Constraint("fill", _fill, "pad the image by an operation of its own"),
    Constraint("windows", _windows, "pad by less than the kernel's size"),
    Constraint(
        "numbers",
        _numbers,
        "compute on floats (DequantizeLinear before a product), or use an operation that the "
        "machine's numbers have",
    ),
    Constraint(
        "whole-dims",
        _whole,
        "make the layer smaller, or vary the machine's memory with --set",
        _larger,
    ),
)
"""Rules in the order in which they are checked; the first that fails gives the reason."""

_MOST_VALUES = 16
"""Values of the machine that a remedy changes at most."""


def objection(op: Operation, machine: Machine) -> tuple[Constraint, str] | None:
    """The first constraint that the operation does not meet, and why; None if it meets all."""
    asked = candidate(op)
    for constraint in CONSTRAINTS:
        reason = constraint.check(asked, machine)
        if reason is not None:
            return constraint, reason
    return None


def remedy(op: Operation, machine: Machine) -> dict[str, int] | None:
    """Values of the machine that bring an operation of the host onto the accelerator, if any do.

    ``machine.with_values`` takes them; None if no values alone would do.
    """
    asked, values = candidate(op), dict[str, int]()
    for _ in range(_MOST_VALUES):
        refused = objection(op, machine.with_values(values))
        if refused is None:
            return values
        more = refused[0].remedy(asked, machine.with_values(values))
        if not more:
            return None
        values.update(more)
    return None
