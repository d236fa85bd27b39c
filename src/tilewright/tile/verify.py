"""The verifier's checks of each tile operation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import singledispatch
from typing import cast, get_args

from tilewright.ir import Operation, PythonValue, SSAValue, TensorType, VerifyException
from tilewright.ir.types import element_name, layout_of
from tilewright.numerics.element_types import ELEMENTS
from tilewright.planning.domain import Affine
from tilewright.planning.layout import Layout
from tilewright.planning.space.mesh import Axis
from tilewright.tile.attributes import BufferType, WindowAttr
from tilewright.tile.dialect import (
    all_dims,
    enclosing_loops,
    enclosing_scopes,
    program_of,
    unbound,
)
from tilewright.tile.operations import (
    BufferOp,
    ComputeOp,
    DomainOp,
    EventOp,
    LoopOp,
    MoveOp,
    ProgramOp,
    StageOp,
    TensorOp,
    TileOperation,
)
from tilewright.tile.queues import GROUPINGS, users_of, wait_parts

GATHER = "img2col"
"""The transform that gathers windows."""

CONVERT = "convert"
"""The transform that rounds sums."""

LARGEST = 1 << 40
"""Bound on extents, loop bounds and coefficients; their products stay exact in int64 columns."""


@singledispatch
def check(op: TileOperation) -> None:
    """Raise VerifyException for an operation that is not as its kind must be."""


@check.register
def check_program(program: ProgramOp) -> None:
    """Dims are named once and positive; reduction dims come last; names are unique."""
    dims = cast("tuple[tuple[str, int], ...]", program.get("dims", ()))
    names = [str(name) for name, _ in dims]
    _unique(names, "the dim", "tile.program")
    for name, extent in dims:
        if not 0 < extent < LARGEST:
            raise VerifyException(f"tile.program: dim {name} has extent {extent}")
    reduction = program.reduction_dims
    if reduction and tuple(names[-len(reduction) :]) != reduction:
        raise VerifyException("tile.program: the reduction dims must be the last dims, in order")
    for shared in [] if program.shared is None else program.shared.data.split():
        if shared not in names or shared in reduction:
            raise VerifyException(f"tile.program: cores cannot share {shared!r}: no parallel dim")
    if program.groups is not None and program.groups.data not in GROUPINGS:
        raise VerifyException(
            f"tile.program: no rule {program.groups.data!r} groups commands; there are "
            f"{', '.join(sorted(GROUPINGS)) or 'none'}"
        )
    _check_header(program)
    symbols: dict[type[Operation], list[str]] = {TensorOp: [], BufferOp: []}
    for op in program.walk():
        if isinstance(op, (TensorOp, BufferOp)):
            symbols[type(op)].append(op.symbol.data)
    _unique(symbols[TensorOp], "the tensor", "tile.program")
    _unique(symbols[BufferOp], "the buffer", "tile.program")


def _check_header(program: ProgramOp) -> None:
    """``levels`` are memories; ``slots`` name an operand, how many, and perhaps a memory;
    ``exchanged`` names tensors, each with the cores of a mesh among which it goes round."""
    for level in program.get("levels", ()):
        if not isinstance(level, str):
            raise VerifyException(f"tile.program: the level {level!r} names no memory")
    for asked in program.get("slots", ()):
        kinds = [type(part) for part in asked] if isinstance(asked, tuple) else []
        if kinds not in ([str, int], [str, int, str]) or asked[1] < 1:
            raise VerifyException(
                f"tile.program: slots are an operand, how many, and perhaps a memory, not {asked!r}"
            )
    exchanged = program.get("exchanged", ())
    for pair in exchanged:
        if not isinstance(pair, tuple) or len(pair) != 2 or pair[1] not in get_args(Axis):
            raise VerifyException(f"tile.program: {pair!r} is no tensor and part of a mesh")
        if pair[0] not in program.tensors:
            raise VerifyException(f"tile.program: exchanges {pair[0]!r}, which is no tensor")
    _unique([name for name, _ in exchanged], "the exchanged tensor", "tile.program")


@check.register
def check_tensor(tensor: TensorOp) -> None:
    """Extents have bounds; a place in main memory is an offset and a stride for each axis there."""
    where, shape = f"tile.tensor {tensor.symbol.data}", tensor.result.type.get_shape()
    if not isinstance(tensor.parent_op(), ProgramOp):
        raise VerifyException("tile.tensor stands directly in a tile.program")
    if not all(0 < extent < LARGEST for extent in shape):
        raise VerifyException(f"{where}: extents are between 1 and {LARGEST}, not {shape}")
    offset, strides = tensor.get("offset", 0), tensor.get("strides", ())
    if type(offset) is not int or not 0 <= offset < LARGEST:
        raise VerifyException(f"{where}: an offset is a number of bytes, not {offset!r}")
    if tensor.strides is None:
        return
    axes = len(Layout.parse(layout_of(tensor.result), len(shape)).factors)
    whole = isinstance(strides, tuple) and all(type(n) is int and 0 <= n < LARGEST for n in strides)
    if not whole or len(strides) != axes:
        raise VerifyException(f"{where}: strides are {axes} numbers of elements, not {strides!r}")


@check.register
def check_loop(loop: LoopOp) -> None:
    """The dim is known, the bounds are sane and lie within the enclosing interval."""
    dim = loop.dim.data
    lower, upper, step = loop.lower_bound, loop.upper_bound, loop.step_size
    limit = _program(loop).extents.get(dim)
    if limit is None:
        raise VerifyException(f"tile.loop: the program has no dim {dim}")
    for outer in enclosing_loops(loop):
        if outer.dim.data == dim:
            limit = min(limit, outer.step_size)
    if step < 1 or not 0 <= lower < upper:
        raise VerifyException(f"tile.loop over {dim}: {lower} to {upper} step {step} is empty")
    if upper > limit:
        raise VerifyException(
            f"tile.loop over {dim}: {lower} to {upper} leaves the interval of size {limit}"
        )


@check.register
def check_domain(domain: DomainOp) -> None:
    """The dims are known, bound once, and to expressions of other dims."""
    extents, bound = _program(domain).extents, domain.bound
    where = f"tile.domain of {', '.join(bound)}"
    _unique([name.data for name in domain.dims.data], "the dim", "tile.domain")
    if len(domain.dims.data) != len(domain.window.data) or not bound:
        raise VerifyException("tile.domain: needs one expression for each of its dims")
    around = {loop.dim.data for loop in enclosing_loops(domain)}
    around |= {dim for scope in enclosing_scopes(domain) for dim in getattr(scope, "bound", {})}
    for dim in bound:
        if dim not in extents:
            raise VerifyException(f"{where}: the program has no dim {dim}")
        if dim in around:
            raise VerifyException(f"{where}: {dim} has an interval already")
        if any(dim in axis.dims for axis in bound.values()):
            raise VerifyException(f"{where}: {dim} depends on itself")
    for axis in bound.values():
        _check_axis(axis, extents, where)
    _check_sliding(domain, where)


def _check_sliding(domain: DomainOp, where: str) -> None:
    """Check that only the sliding dim moves between the runs that share data."""
    sliding = domain.sliding_dims
    if not sliding:
        return
    loops = enclosing_loops(domain)
    if len(sliding) > 1 or not loops:
        raise VerifyException(f"{where}: one dim may slide, along the loop around the domain")
    moving = {dim for dim, axis in domain.bound.items() if _moves(axis.dims, domain, loops[-1])}
    if moving != set(sliding):
        raise VerifyException(
            f"{where}: the loop over {loops[-1].dim.data} moves {', '.join(moving) or 'nothing'}, "
            f"not {', '.join(sliding)}"
        )


def _moves(dims: Iterable[str], op: Operation, loop: LoopOp) -> bool:
    """Return True if some dims around ``op`` change from one iteration of a loop to the next."""
    return loop.dim.data in all_dims(dims, op)


@check.register
def check_buffer(buffer: BufferOp) -> None:
    """The window spans a box of a tensor, or of a buffer in another memory; there is at least one
    slot."""
    where = f"tile.buffer {buffer.symbol.data}"
    outer = buffer.outer_buffer
    if outer is None and not isinstance(buffer.outer.owner, TensorOp):
        raise VerifyException(f"{where}: must be of a tile.tensor or a tile.buffer")
    if buffer.fill is not None and (buffer.gathers is None or not buffer.padding):
        raise VerifyException(f"{where}: a fill other than 0 is of windows that are gathered")
    if buffer.gathers is not None:
        _check_gathered(buffer, where)
    elif buffer.converts:
        _check_converted(buffer, where)
    if not all(isinstance(extent, int) and extent >= 0 for extent in buffer.get("shape", ())):
        raise VerifyException(f"{where}: a shape has no number below 0, not {buffer.get('shape')}")
    if outer is not None and outer.memory == buffer.memory:
        raise VerifyException(f"{where}: lies in the memory of the buffer that it is of")
    _check_operands(buffer, (buffer.outer,), where)
    _check_window(buffer.window, buffer.tensor_shape, _program(buffer), where)
    if buffer.circular_axis is not None:
        _check_circular(buffer, buffer.circular_axis, where)
    if buffer.stays is not None and (buffer.slot_count > 1 or enclosing_scopes(buffer)):
        raise VerifyException(f"{where}: what stays has one slot, and no loops around it")
    if not 1 <= buffer.slot_count <= 64:
        raise VerifyException(f"{where}: {buffer.slot_count} slots; 1 to 64 are possible")


def _check_converted(buffer: BufferOp, where: str) -> None:
    """Sums of the same tensor, which are rounded to 16-bit floats further out."""
    inner, outer = buffer.result.type.of, buffer.outer_type
    if (inner.get_shape(), inner.encoding) != (outer.get_shape(), outer.encoding):
        raise VerifyException(f"{where}: its type must name the tensor's type")
    sums, results = (ELEMENTS[element_name(kind.element_type)] for kind in (inner, outer))
    alike = sums.kind == results.kind and sums.kind in ("float", "fixed")
    if not alike or sums.bytes <= results.bytes:
        raise VerifyException(
            f"{where}: moves convert sums to shorter elements of the same kind, not "
            f"{inner.element_type} to {outer.element_type}"
        )
    if buffer.circular is not None:
        raise VerifyException(f"{where}: what is converted has no circular rows")
    uses = (use.operation for use in buffer.result.uses)
    if any(isinstance(use, (StageOp, BufferOp)) for use in uses):
        raise VerifyException(f"{where}: what is converted is read by a move alone")


def _check_gathered(buffer: BufferOp, where: str) -> None:
    """An axis for each dim of the image's window, as long as the dim, of the same elements."""
    program, outer = _program(buffer), buffer.outer_buffer
    assert buffer.gathers is not None
    _check_window(buffer.gathers, buffer.outer_shape, program, f"{where}, gathers")
    if outer is not None and outer.gathers is not None:
        raise VerifyException(f"{where}: gathers windows of what is gathered already")
    if buffer.circular is not None or buffer.accumulates is not None:
        raise VerifyException(f"{where}: what is gathered holds no sums and no circular rows")
    dims = [axis.terms for axis in buffer.window.data]
    alone = all(len(terms) == 1 and terms[0][1] == 1 for terms in dims)
    if not alone or any(axis.offset for axis in buffer.window.data):
        raise VerifyException(f"{where}: gathers, and {buffer.window} is not a dim for each axis")
    names = [terms[0][0] for terms in dims]
    if len(set(names)) != len(names) or frozenset(names) != buffer.gathers.dims:
        raise VerifyException(f"{where}: gathers {buffer.gathers}, of other dims than its axes")
    if any(program.extents[n] != e for n, e in zip(names, buffer.tensor_shape, strict=False)):
        raise VerifyException(f"{where}: an axis that gathers is as long as its dim")
    image = buffer.tensor_op.result.type.element_type
    if image != buffer.result.type.of.element_type:
        raise VerifyException(f"{where}: gathers elements of another type")
    uses = [use.operation for use in buffer.result.uses]
    fills = {stage.parameters.get("fill", 0) for stage in uses if isinstance(stage, StageOp)}
    if fills - {buffer.padding}:
        raise VerifyException(f"{where}: is filled with {buffer.padding}, and read with another")


def _check_circular(buffer: BufferOp, axis: int, where: str) -> None:
    """Check that only the axis along which a buffer is circular moves from visit to visit."""
    loops = enclosing_loops(buffer)
    if not 0 <= axis < len(buffer.window.data) or not loops:
        raise VerifyException(f"{where}: needs an axis to be circular along, and a loop around it")
    for number, expression in enumerate(buffer.window.data):
        if number != axis and _moves(expression.dims, buffer, loops[-1]):
            raise VerifyException(
                f"{where}: the loop over {loops[-1].dim.data} moves {expression}, too"
            )


@check.register
def check_move(move: MoveOp) -> None:
    """One end is a buffer, the other what that is of; it stands beside its buffer."""
    buffer = move.buffer
    where = f"tile.move of {buffer.symbol.data}"
    if move.outer != buffer.outer:
        raise VerifyException(f"{where}: the other end must be what the buffer is of")
    tensor = move.outer.owner
    if isinstance(tensor, TensorOp) and tensor.role.data == "internal":
        raise VerifyException(f"{where}: an internal tensor lies in no main memory")
    if move.parent_block() is not buffer.parent_block():
        raise VerifyException(f"{where}: must stand in the block of its buffer")
    _check_operands(move, (move.source, move.target), where)
    transform = "" if move.transform is None else move.transform.data
    if (transform == GATHER) != (buffer.gathers is not None) or (
        transform == GATHER and not move.loads
    ):
        raise VerifyException(f"{where}: loads with {GATHER!r} what gathers, and nothing else")
    if (transform == CONVERT) != buffer.converts or (transform == CONVERT and move.loads):
        raise VerifyException(f"{where}: stores with {CONVERT!r} what converts, and nothing else")
    if transform not in ("", GATHER, CONVERT):
        raise VerifyException(f"{where}: there is no transform {transform!r}")
    if transform and move.joined is not None:
        raise VerifyException(f"{where}: what is transformed on its way travels alone")
    _check_engine(move.engine.data, where)
    _check_waits(move.wait_list, move, where)
    if move.ahead is not None and (not move.loads or buffer.slot_count < 2 or not _has_loop(move)):
        raise VerifyException(
            f"{where}: only a load into two slots or more, before a loop or a compute, "
            "is issued ahead"
        )
    if move.joined is not None:
        leader = move.prev_op
        while isinstance(leader, BufferOp):
            leader = leader.prev_op
        if not (isinstance(leader, MoveOp) and leader.engine == move.engine):
            raise VerifyException(f"{where}: joins a move, but none of its engine is before it")


def _has_loop(move: MoveOp) -> bool:
    block = move.parent_block()
    return block is not None and any(isinstance(op, (LoopOp, ComputeOp)) for op in block.ops)


@check.register
def check_compute(compute: ComputeOp) -> None:
    """The stages lead to the last one, which ends in the output's type."""
    where = f"tile.compute {compute.primitive.data}"
    _check_engine(compute.engine.data, where)
    _check_waits(compute.wait_list, compute, where)
    _check_operands(compute, (compute.output,), where)
    stages = compute.stages
    if not stages:
        raise VerifyException(f"{where}: has no stage")
    if len(stages) != len(list(compute.body.block.ops)):
        raise VerifyException(f"{where}: holds stages only")
    program = _program(compute)
    kept = stages[0].windows.data[-1].dims
    reduced = [dim for dim in program.reduction_dims if dim not in kept]
    for dim, name in compute.dim_names.items():
        if name not in program.extents:
            raise VerifyException(f"{where}: {dim} is {name}, which the program lacks")
    for number, stage in enumerate(stages[1:], 1):
        before = stages[number - 1]
        # Mostly by the next one; a copy of a residual in other elements waits for the one after.
        if not any(before.result in later.inputs for later in stages[number:]):
            raise VerifyException(f"{where}: no later stage uses stage {before.operation.data}")
        if any(dim in window.dims for window in stage.windows.data for dim in reduced):
            raise VerifyException(
                f"{where}: stage {stage.operation.data} stands after the reduction "
                "and cannot depend on its dims"
            )
    output = compute.output
    of = output.type.of if isinstance(output.type, BufferType) else output.type
    if stages[-1].result.type != of:
        raise VerifyException(
            f"{where}: the last stage's type {stages[-1].result.type} is not "
            f"that of the output, {of}"
        )
    window = stages[-1].windows.data[-1]
    owner = output.owner
    if not isinstance(owner, BufferOp):
        return
    domains = [scope for scope in enclosing_scopes(compute) if isinstance(scope, DomainOp)]
    inner = [scope for scope in domains if scope.parent_block() is owner.parent_block()]
    slid = {dim for scope in inner for dim in scope.sliding_dims}
    axis = owner.circular_axis
    if slid != (set[str]() if axis is None else set(window.data[axis].dims)):
        raise VerifyException(
            f"{where}: dims slide if they are those of the axis along which buffer "
            f"{owner.symbol.data} is circular"
        )
    # A domain between the two says the same window in dims of its own.
    if unbound(window.data, compute) != unbound(owner.window.data, owner):
        raise VerifyException(
            f"{where}: the last stage's window {window} is not that of the "
            f"output's buffer, {owner.window}"
        )


@check.register
def check_event(event: EventOp) -> None:
    """Check an event: two engines, ids, and a buffer whose visits several of the ids follow."""
    where = event.name
    for engine in (event.source_engine, event.target_engine):
        _check_engine(engine, where)
    if event.source_engine == event.target_engine:
        raise VerifyException(f"{where}: {event.source_engine} needs no signal of its own")
    ids: tuple[PythonValue, ...] = event.get("ids", ())
    of = event.turns_of
    if not ids or not all(isinstance(number, int) and number >= 0 for number in ids):
        raise VerifyException(f"{where}: ids are one number from 0 or several")
    if (len(ids) > 1) != (of is not None):
        raise VerifyException(f"{where}: several ids, and one id alone not, are of a buffer")
    if of is not None:
        if not isinstance(of.owner, BufferOp):
            raise VerifyException(f"{where}: ids take turns with the slots of a buffer")
        _check_operands(event, (of,), where)
    _program(event)


@check.register
def check_stage(stage: StageOp) -> None:
    """One window per operand and one for the result, each of the right rank, of known dims."""
    where = f"tile.stage {stage.operation.data}"
    compute = stage.parent_op()
    if not isinstance(compute, ComputeOp):
        raise VerifyException(f"{where}: stands in a tile.compute")
    windows = stage.windows.data
    if len(windows) != len(stage.inputs) + 1:
        raise VerifyException(
            f"{where}: has {len(windows)} windows for {len(stage.inputs)} inputs and the result"
        )
    for name in ("kernel", "strides", "dilations", "pads"):
        value = stage.parameters.get(name, ())
        if not isinstance(value, tuple) or any(type(n) is not int for n in value):
            raise VerifyException(f"{where}: {name} are whole numbers, not {value!r}")
    program = _program(stage)
    _check_operands(stage, stage.inputs, where)
    for value, window in zip((*stage.inputs, stage.result), windows, strict=True):
        _check_window(window, _shape(value, where), program, where)
        producer = value.owner
        if isinstance(producer, StageOp) and producer is not stage:
            if producer.parent_op() is not compute:
                raise VerifyException(f"{where}: uses a stage of another compute")
            if producer.windows.data[-1] != window:
                raise VerifyException(
                    f"{where}: reads {window} of a stage that gives {producer.windows.data[-1]}"
                )


def _shape(value: SSAValue, where: str) -> Sequence[int]:
    kind = value.type
    if isinstance(kind, BufferType):
        return kind.shape
    if isinstance(kind, TensorType):
        return cast("Sequence[int]", kind.get_shape())
    raise VerifyException(f"{where}: {kind} is neither a tensor nor a buffer")


def _check_window(window: WindowAttr, shape: Sequence[int], program: ProgramOp, where: str) -> None:
    if len(window.data) != len(shape):
        raise VerifyException(
            f"{where}: window {window} has {len(window.data)} axes, the tensor {len(shape)}"
        )
    extents = program.extents
    for axis in window.data:
        _check_axis(axis, extents, where)


def _check_axis(axis: Affine, extents: Mapping[str, int], where: str) -> None:
    for name, c in axis.terms:
        if name not in extents:
            raise VerifyException(f"{where}: the program has no dim {name}")
        if abs(c) * extents[name] >= LARGEST:
            raise VerifyException(f"{where}: coefficient {c} is too large")
    if abs(axis.offset) >= LARGEST:
        raise VerifyException(f"{where}: offset {axis.offset} is too large")
    _unique([name for name, _ in axis.terms], "the dim", f"{where}, axis {axis}")


def _check_operands(op: Operation, values: Iterable[SSAValue], where: str) -> None:
    """Each operand is defined before ``op``, in its block or one around it."""
    for value in values:
        owner = value.owner
        if not isinstance(owner, Operation):
            raise VerifyException(f"{where}: operands must be tensors, buffers or stages")
        if isinstance(owner, StageOp) and not isinstance(op, StageOp):
            raise VerifyException(f"{where}: a stage's value is used outside its compute")
        inner: Operation | None = op
        while inner is not None and inner.parent_block() is not owner.parent_block():
            inner = inner.parent_op()
        if inner is None or inner is owner or not owner.is_before_in_block(inner):
            raise VerifyException(f"{where}: an operand is used outside its scope")


def _check_engine(engine: str, where: str) -> None:
    if not engine:
        raise VerifyException(f"{where}: no engine is named")


def _check_waits(waits: Iterable[object], op: Operation, where: str) -> None:
    program = _program(op)
    buffers = {other.symbol.data: other for other in program.walk() if isinstance(other, BufferOp)}
    for wait in waits:
        if not isinstance(wait, str):
            raise VerifyException(f"{where}: a wait is 'ready NAME' or 'free NAME', not {wait!r}")
        verb, by_rows, name = wait_parts(wait)
        if verb not in ("ready", "free"):
            raise VerifyException(f"{where}: a wait is 'ready NAME' or 'free NAME', not {wait!r}")
        if name not in buffers:
            raise VerifyException(f"{where}: waits for {name}, which is no buffer")
        if by_rows and op not in users_of(buffers[name]):
            raise VerifyException(f"{where}: waits for rows of {name}, which it does not use")


def _program(op: Operation) -> ProgramOp:
    program = program_of(op.parent_op())
    if program is None:
        raise VerifyException(f"{op.name}: stands outside of a tile.program")
    return program


def _unique(names: Sequence[str], subject: str, where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise VerifyException(f"{where}: {subject} {name} is named twice")
        seen.add(name)
