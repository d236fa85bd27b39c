"""What a machine must offer so that an operation can run on its accelerator.

Each constraint is a named check with a reason as concrete as it can be: the reasons are what a
user reads when part of a network runs on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from tilewright.graph.dialect import WeightOp
from tilewright.graph.operations import Operation
from tilewright.ir import VerifyException
from tilewright.machine import Machine, Primitive
from tilewright.planning.domain import ELEMENT_BYTES, Stage
from tilewright.types import FixedType, element_name, tensor, tensor_type


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


@dataclass(frozen=True)
class Constraint:
    """One condition: ``check`` gives None or the reason why the operation does not meet it."""

    name: str
    check: Callable[[Candidate, Machine], str | None]
    help: str


def _has_loops(found: Candidate, machine: Machine) -> str | None:
    if found.stage is not None:
        return None
    return f"{found.operation} with these attributes is no loop nest over its elements"


def _listed(found: Candidate, machine: Machine) -> str | None:
    if machine.primitives_for(found.operation):
        return None
    listed = sorted({name for p in machine.primitives for name in p.operations})
    return f"no primitive of {machine.name} computes {found.operation} (it has {', '.join(listed)})"


def _extents(found: Candidate, machine: Machine) -> str | None:
    primitives = machine.primitives_for(found.operation)
    if any(p.serves(found.operation, found.extents) for p in primitives):
        return None
    spans = [
        f"{p.name} serves {dim} from {least} to {greatest}, here it is {found.extents.get(dim, 1)}"
        for p in primitives
        for dim, (least, greatest) in p.extents.items()
        if not least <= found.extents.get(dim, 1) <= greatest
    ]
    return "; ".join(spans)


def _places(found: Candidate, machine: Machine) -> str | None:
    """Whether a primitive has a place for every operand."""
    if found.stage is None:
        return None
    roles = dict.fromkeys(operand.role for operand in (*found.stage.inputs, found.stage.output))
    reasons: list[str] = []
    for primitive in serving(found, machine):
        missing = [role for role in roles if role not in primitive.operands]
        if not missing:
            return None
        reasons.append(f"{primitive.name} takes no {' and no '.join(missing)}")
    return "; ".join(reasons)


def _numbers(found: Candidate, machine: Machine) -> str | None:
    """Whether the operation has a meaning on the machine's elements."""
    if machine.element == "float32":
        return None
    elements = {element_name(tensor_type(value).element_type) for value in found.op.inputs}
    plain = sorted(elements - {"float32", "fixed16", "fixed32"})
    if plain:
        return f"{machine.name} computes on 16-bit fixed point, not on {', '.join(plain)}"
    biases = found.op.inputs[2:] if found.op.operation in ("conv", "matmul") else ()
    if not all(isinstance(bias.owner, WeightOp) for bias in biases):
        return "its bias is computed, and 32-bit biases have to be constants"
    element = fixed_element(found)
    if element is None:
        return f"{found.operation} is not defined on 16-bit fixed point"
    if element == "fixed16" or _requantises(found, machine):
        return None
    return f"{found.operation} gives 32-bit results, and no primitive for it can requantise them"


def fixed_element(found: Candidate) -> str | None:
    """Element of the result on 16-bit fixed-point operands; None if that has no meaning."""
    kinds = [tensor_type(value) for value in found.op.inputs]
    fixed = [tensor(kind.get_shape(), FixedType.of(16, 14)) for kind in kinds]
    if found.op.operation in ("conv", "matmul") and len(fixed) == 3:
        fixed[2] = tensor(fixed[2].get_shape(), FixedType.of(32, 28))
    try:
        return element_name(found.op.infer(fixed).element_type)
    except VerifyException:
        return None


def _requantises(found: Candidate, machine: Machine) -> bool:
    return any(
        p.epilogue_any or any("requantise" in group for group in p.epilogue)
        for p in serving(found, machine)
    )


def serving(found: Candidate, machine: Machine) -> tuple[Primitive, ...]:
    """The primitives that compute the operation at its extents."""
    return tuple(p for p in machine.primitives if p.serves(found.operation, found.extents))


def _whole(found: Candidate, machine: Machine) -> str | None:
    """Whether dims that a tile must cover whole fit limits and memories."""
    reasons: list[str] = []
    for primitive in serving(found, machine):
        reason = _too_large(found, primitive, machine)
        if reason is None:
            return None
        reasons.append(reason)
    return "; ".join(dict.fromkeys(reasons))


def _too_large(found: Candidate, primitive: Primitive, machine: Machine) -> str | None:
    stage = found.stage
    if stage is None:
        return None
    extents = found.extents
    whole = [dim for dim in primitive.whole if dim in extents]
    for dim in whole:
        limit = primitive.limits.get(dim)
        if limit is not None and extents[dim] > limit:
            return (
                f"{found.operation} over {extents[dim]} elements: "
                f"the {primitive.name} unit takes at most {limit}"
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
        element = machine.element if operand.element == "float32" else operand.element
        size = prod(box) * ELEMENT_BYTES[element]
        needed[storage.memory] = needed.get(storage.memory, 0) + size
    for memory, size in needed.items():
        available = machine.memory(memory).bytes
        if available is not None and size > available:
            what = " x ".join(f"{dim} = {extents[dim]}" for dim in whole) or "one element"
            return (
                f"{found.operation} with {what} kept whole needs {size} bytes of {memory}, "
                f"which holds {available}"
            )
    return None


CONSTRAINTS: tuple[Constraint, ...] = (
    Constraint("loop-nest", _has_loops, "write the operation in terms of supported ones"),
    Constraint("primitive", _listed, "replace the operation, or add a primitive to the machine"),
    Constraint("extents", _extents, "change the layer's size, or choose another machine"),
    Constraint("operands", _places, "give the primitive's operands that role in the machine"),
    Constraint("numbers", _numbers, "use an operation with a fixed-point meaning"),
    Constraint(
        "whole-dims", _whole, "make the layer smaller, or vary the machine's memory with --set"
    ),
)
"""In the order in which they are checked; the first that fails gives the reason."""


def objection(op: Operation, machine: Machine) -> tuple[Constraint, str] | None:
    """The first constraint that the operation does not meet, and why; None if it meets all."""
    found = candidate(op)
    for constraint in CONSTRAINTS:
        reason = constraint.check(found, machine)
        if reason is not None:
            return constraint, reason
    return None
