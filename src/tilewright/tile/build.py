"""From a kernel and its schedule to a tile program.

``build`` states the schedule as loops and puts every buffer and its move right around the compute;
the passes then hoist, double, peel, place and order them. The program means the kernel from here
on, after each pass.

Loops: those of ``levels[0].order`` outermost, then those of ``levels[1].order`` within, and so on.
A loop that would run once is left out. An operand that the primitive keeps in main memory is used
in place; any other gets a buffer in the memory that the primitive names for its role, and one in
each memory on the way there (``Machine.path``), each of the one further out. The buffer next to the
primitive has the operand's name, those on the way ``NAME.MEMORY``::

    %x_l1 = tile.buffer "x.l1" of %x [m, ci] in "l1" slots 2
    tile.move %x to %x_l1 on "mte2"
    %x_l0a = tile.buffer "x" of %x_l1 [m, ci] in "l0a" slots 2
    tile.move %x_l1 to %x_l0a on "mte1"

What producers (``Kernel.producers``) make is computed within the loops that change what is read of
it, in a domain of its own (dialect.py), into a buffer in a memory that both primitives use, or one
on the way between theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewright.errors import refuse
from tilewright.ir import (
    ArrayAttr,
    Attribute,
    Block,
    ModuleOp,
    Operation,
    Region,
    SSAValue,
    StringAttr,
    UnitAttr,
    to_attribute,
)
from tilewright.ir.arenas import WEIGHTS
from tilewright.machine import Machine, Move, Primitive
from tilewright.planning.chains.links import Link, links_of, renamed_axes, waiting_memory
from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Stage
from tilewright.planning.schedule import Resident, Schedule
from tilewright.planning.space.conversions import computed_stages
from tilewright.planning.space.footprint import keeps_sums
from tilewright.planning.space.windows import beside
from tilewright.tile.accumulators import hold_sums
from tilewright.tile.attributes import WindowAttr
from tilewright.tile.circular import keep_rows
from tilewright.tile.loops import TileLoop, level_memories, tile_loops
from tilewright.tile.operations import (
    BufferOp,
    ComputeOp,
    DomainOp,
    LoopOp,
    MoveOp,
    ProgramOp,
    StageOp,
    TensorOp,
)
from tilewright.tile.residents import stay
from tilewright.tile.tensors import Placement, holding_memory, tensor_of, type_of, value_name
from tilewright.tile.verify import CONVERT, GATHER


def build(
    kernel: Kernel,
    schedule: Schedule,
    machine: Machine,
    placements: Mapping[str, Placement] | None = None,
) -> ModuleOp:
    """A module with one ``tile.program`` that runs ``kernel`` as ``schedule`` says.

    ``placements`` gives, by operand name, where the tensors lie in main memory. Raises
    TilewrightError (``schedule-invalid``) if the schedule does not fit the kernel.
    """
    return ModuleOp([build_program(kernel, schedule, machine, placements)])


def build_program(
    kernel: Kernel,
    schedule: Schedule,
    machine: Machine,
    placements: Mapping[str, Placement] | None = None,
) -> ProgramOp:
    """The program alone; see ``build``."""
    stays = {resident.operand: resident for resident in schedule.stays}
    shared = _Shared(machine, placements or {}, stays=stays)
    return _Nest(kernel, schedule, shared).program()


@dataclass(frozen=True)
class _Shared:
    """The state that the loop nests of one program share."""

    machine: Machine
    placements: Mapping[str, Placement]
    values: dict[str, SSAValue] = field(default_factory=dict[str, SSAValue])
    """The values that stages read and write, by operand: tensors, buffers of internal ones, stages'
    values."""
    buffers: dict[tuple[str, WindowAttr, str], BufferOp] = field(
        default_factory=dict[tuple[str, WindowAttr, str], BufferOp]
    )
    """The buffers next to primitives, by operand, window and role."""
    dims: dict[str, Dim] = field(default_factory=dict[str, Dim])
    """The program's dims by name."""
    nests: list[_Nest] = field(default_factory=list["_Nest"])
    """The nests of all kernels."""
    kept: list[tuple[BufferOp, DomainOp | None, str]] = field(
        default_factory=list[tuple[BufferOp, "DomainOp | None", str]]
    )
    """The buffers whose rows the schedule keeps, the domains that fill them, and the dims of the
    rows that tiles compute ahead."""
    stays: Mapping[str, Resident] = field(default_factory=dict[str, Resident])
    """The operands that stay on the chip between kernels, by name."""
    top: list[Operation] = field(default_factory=list[Operation])
    """The buffers and loads of the operands that stay on the chip for other kernels."""


class _Nest:
    """The loops of one kernel of a program: of the program's own, or of a producer."""

    def __init__(
        self,
        kernel: Kernel,
        schedule: Schedule,
        shared: _Shared,
        names: Mapping[str, str] | None = None,
        producers: int = 0,
        around: Mapping[str, int] | None = None,
    ) -> None:
        self.kernel = kernel
        self.schedule = schedule
        self.shared = shared
        self.machine = shared.machine
        self.values = shared.values
        self.buffers = shared.buffers
        self.names = names or {}
        """The program's names of the kernel's dims, where they differ."""
        self.around = around or {}
        """By these names, the sizes that loops around the nest leave of dims."""
        self.links = links_of(kernel, producers)
        self.primitive: Primitive = self._primitive()
        if len(schedule.producers) != len(self.links):
            raise self._refuse(
                f"{len(schedule.producers)} schedules for {len(self.links)} producers"
            )

    def _primitive(self) -> Primitive:
        for primitive in self.machine.primitives:
            if primitive.name == self.schedule.primitive:
                return primitive
        raise self._refuse(f"the machine has no primitive {self.schedule.primitive}")

    def _refuse(self, reason: str) -> Exception:
        return refuse("schedule-invalid", reason, self.kernel.symbol)

    def program(self) -> ProgramOp:
        """Return the whole tile program of the kernel."""
        kernel = self.kernel
        tensors = [
            *kernel.operands,
            *(replace(result, role="internal") for result in kernel.produced),
        ]
        top: list[Operation] = [self._tensor(operand) for operand in tensors]
        body = self.nest()
        # In its block first: an outermost reduction loop's surroundings are the program's own.
        block = Block([*top, *self.shared.top, *body])
        for nest in self.shared.nests:
            nest.place_output()
        for home, domain, ahead in self.shared.kept:
            keep_rows(home, domain, self.kernel.symbol, ahead)
        slots = self._slots()
        ordered = sorted(self.shared.dims.values(), key=lambda dim: dim.kind == "reduction")
        memories = level_memories(self.schedule, self.machine.main)
        issuer = self.machine.synchronisation.issuer
        exchanged, rooms = self.schedule.exchanged, self.schedule.rooms
        return ProgramOp.build(
            properties={
                "symbol": StringAttr(kernel.symbol),
                "machine": StringAttr(self.machine.name),
                "dims": to_attribute(tuple((dim.name, dim.extent) for dim in ordered)),
                "reduction": to_attribute([dim.name for dim in ordered if dim.kind == "reduction"]),
                "nodes": to_attribute(kernel.nodes),
                "levels": to_attribute(memories) if len(memories) > 1 else None,
                "slots": to_attribute(tuple(slots)) if slots else None,
                "shared": StringAttr(self.schedule.shared) if self.schedule.shared else None,
                "exchanged": to_attribute(exchanged) if exchanged else None,
                "rooms": to_attribute(rooms) if rooms else None,
                "issuer": StringAttr(issuer) if issuer else None,
            },
            regions=[Region(block)],
        )

    def nest(self) -> list[Operation]:
        """The kernel's loops, with what its producers make within them, around its compute."""
        for dim in self.kernel.anchor.dims:
            name = self.names.get(dim.name, dim.name)
            self.shared.dims.setdefault(name, replace(dim, name=name))
        self.shared.nests.append(self)
        loops = self._loops()
        parts = [
            self._produced(link, schedule, loops)
            for link, schedule in zip(self.links, self.schedule.producers, strict=True)
        ]
        body: list[Operation] = self._body()
        for number in reversed(range(len(loops) + 1)):
            if number < len(loops):
                dim, upper, step, memory = loops[number]
                name = self.names.get(dim, dim)
                body = [LoopOp.of(name, 0, upper, step, Block(body), memory)]
            for link, ops in zip(self.links, parts, strict=True):
                if number == self._depth(link, loops):
                    body = [*ops, *body]
        return body

    def _slots(self) -> list[tuple[str | int, ...]]:
        """Return the slot counts of the buffers that have other than one, with those of the
        producers' operands."""
        schedule = self.schedule
        counts: list[tuple[str | int, ...]] = []
        for level in (schedule, *schedule.inner):
            counts += [pair for pair in level.buffers if pair[1] != 1]
            counts += [(name, n, memory) for name, memory, n in level.staged if n != 1]
        return counts

    def _produced(
        self, link: Link, schedule: Schedule, loops: Sequence[TileLoop]
    ) -> list[Operation]:
        """The buffer of a producer's result, and the domain that fills it."""
        operand = link.operand
        names = {dim: self.names.get(name, name) for dim, name in link.names.items()}
        outer = loops[: self._depth(link, loops)]
        around = {**self.around, **{self.names.get(dim, dim): step for dim, _, step, _ in outer}}
        nest = _Nest(link.producer, schedule, self.shared, names, link.number, around)
        memory = self._home(nest, operand)
        inner = {nest.memory_of(operand.name, "output"), self.memory_of(operand.name, operand.role)}
        name = operand.name if inner == {memory} else f"{operand.name}.{memory}"
        home = BufferOp.of(
            name, self.values[operand.name], self._window(operand), memory, operand.role
        )
        home.result.name_hint = value_name(f"{operand.name}_{memory}")
        self.values[operand.name] = home.result
        body = nest.nest()
        bound = {dim: self._axes((axis,))[0] for dim, axis in link.bound.items()}
        domain = DomainOp.of(bound, Block(body)) if bound else None
        ahead = dict(self.schedule.kept).get(operand.name)
        if ahead is not None:
            dim = f"ahead_{link.number}" if ahead else ""
            self.shared.kept.append((home, domain, dim))
            if ahead:
                self.shared.dims[dim] = Dim(dim, ahead + 1, "parallel")
        return [home, *body] if domain is None else [home, domain]

    def _loops(self) -> list[TileLoop]:
        """Dim, end, step and memory of every loop, outermost first."""
        size = {
            dim: self.around.get(self.names.get(dim, dim), extent)
            for dim, extent in self.kernel.anchor.extents.items()
        }
        return tile_loops(self.schedule, size, self.kernel.symbol)

    def _depth(self, link: Link, loops: Sequence[TileLoop]) -> int:
        """The number of loops, outermost first, within which a producer's result is made: those of
        the grid of parts and of the outermost level within it, up to the last that changes what is
        read of it."""
        levels = [level.memory for level in self.schedule.levels]
        further = [memory for memory in levels if memory != self.machine.main][1:]
        changing = (loop[0] in link.operand.dims and loop[3] not in further for loop in loops)
        return max((number for number, changes in enumerate(changing, 1) if changes), default=0)

    def _home_of(self, operand: Operand) -> str:
        """The memory that holds an operand between kernels."""
        return self.machine.home(constant=operand.is_constant)

    def _tensor(self, operand: Operand) -> TensorOp:
        if operand.name in self.values:
            raise self._refuse(f"two operands are named {operand.name}")
        placement, home = self.shared.placements.get(operand.name), self._home_of(operand)
        op = tensor_of(operand, placement)
        if home != self.machine.main:
            op.memory = StringAttr(home)
        elif placement is not None and placement[0] == WEIGHTS and len(self.machine.homes) > 1:
            raise self._refuse(f"{operand.name} is a view of a constant, which lies elsewhere")
        self.values[operand.name] = op.result
        return op

    def _stages(self, stages: Sequence[Stage], ops: list[Operation]) -> list[StageOp]:
        """The stages of one compute; adds buffers and moves to ``ops``."""
        stage_ops: list[StageOp] = []
        for stage in stages:
            if stage is self.kernel.anchor:
                near = [beside(operand, stage, self.primitive) for operand in stage.inputs]
                stage = replace(stage, inputs=tuple(near))
            inputs = [self._input(operand, ops) for operand in stage.inputs]
            stage_ops.append(self._stage(stage, inputs))
            if stage.output is not stages[-1].output:
                self.values[stage.output.name] = stage_ops[-1].result
        return stage_ops

    def _body(self) -> list[Operation]:
        """Buffers, moves in, the compute of the tile, the move out."""
        ops: list[Operation] = []
        output = self.kernel.output
        target, path = self.values[output.name], self._path(output, "output")
        parts = computed_stages(self.kernel, self.primitive, path)
        stages = self._stages(parts, ops)
        buffers = self._place(output, "output", target, type_of(parts[-1].output))
        if buffers:
            self.buffers[self._key(output, "output")] = buffers[-1]
            target = buffers[-1].result
        options = self.schedule.options
        compute = ComputeOp.of(
            self.primitive.name,
            self.primitive.engine,
            stages,
            target,
            to_attribute(options) if options else None,
        )
        renamed = {dim: name for dim, name in self.names.items() if dim != name}
        if renamed:
            compute.set("names", tuple(renamed.items()))
        self.compute = compute
        if output.name in self.shared.stays:
            stay(buffers, self.shared.stays[output.name], self.kernel.symbol)
            self.shared.top.extend(buffers)
            return [*ops, compute]
        stores = [
            MoveOp.of(buffer.result, buffer.outer, move.engine, CONVERT if buffer.converts else "")
            for buffer, move in zip(reversed(buffers), path, strict=True)
        ]
        return [*ops, *buffers, compute, *stores]

    def _axes(self, axes: tuple[Affine, ...]) -> tuple[Affine, ...]:
        """Expressions over the kernel's dims, by the program's names."""
        return renamed_axes(axes, self.names) if self.names else axes

    def _window(self, operand: Operand) -> WindowAttr:
        return WindowAttr(self._axes(operand.access))

    def _key(self, operand: Operand, role: str) -> tuple[str, WindowAttr, str]:
        return operand.name, self._window(operand), role

    def _stage(self, stage: Stage, inputs: Sequence[SSAValue]) -> StageOp:
        windows = [self._window(operand) for operand in (*stage.inputs, stage.output)]
        return StageOp.build(
            operands=[inputs],
            result_types=[type_of(stage.output)],
            properties={
                "operation": StringAttr(stage.operation),
                "windows": ArrayAttr(windows),
                "parameters": to_attribute(stage.attributes) if stage.attributes else None,
                "node": StringAttr(stage.node) if stage.node else None,
            },
        )

    def _input(self, operand: Operand, ops: list[Operation]) -> SSAValue:
        """The value that a stage reads; adds a buffer and a move to ``ops`` if it needs them."""
        if isinstance(self.values[operand.name].owner, StageOp):
            return self.values[operand.name]
        key = self._key(operand, operand.role)
        if key in self.buffers:
            return self.buffers[key].result
        buffers = self._place(operand, operand.role, self.values[operand.name])
        if not buffers:
            return self.values[operand.name]
        self.buffers[key] = buffers[-1]
        if (resident := self.shared.stays.get(operand.name)) is not None:
            ops = self.shared.top
            stay(buffers, resident, self.kernel.symbol)
            if resident.live_in:
                ops.extend(buffers)
                return buffers[-1].result
        for buffer, path in zip(buffers, self._path(operand, operand.role), strict=True):
            transform = "" if buffer.gathers is None else GATHER
            if transform and transform not in path.transforms:
                raise self._refuse(f"{path.name} gathers no windows for {operand.name}")
            move = MoveOp.of(buffer.outer, buffer.result, path.engine, transform)
            partner = self._partner(operand.role, buffer, ops)
            if partner is None:
                ops += [buffer, move]
            else:
                move.joined = UnitAttr()
                at = ops.index(partner) + 1
                ops[at:at] = [buffer, move]
        return buffers[-1].result

    def _partner(self, role: str, buffer: BufferOp, ops: Sequence[Operation]) -> MoveOp | None:
        """The move with which this role's travels, if the primitive joins them."""
        joined = self.primitive.operands[role].joined
        for op in [op for op in ops if isinstance(op, MoveOp) and op.joined is None]:
            if op.buffer.get("role") != joined or op.buffer.memory != buffer.memory:
                continue
            tensors = op.buffer.tensor_op, buffer.tensor_op
            if len({holding_memory(tensor, self.machine) for tensor in tensors}) == 1:
                return op
        return None

    def _place(
        self, operand: Operand, role: str, value: SSAValue, kind: Attribute | None = None
    ) -> list[BufferOp]:
        """The buffers of an operand of ``value``, outermost first: one in each memory on the way to
        the primitive's, and there, of type ``kind`` if given; none if it is used in place."""
        path = self._path(operand, role)
        if not path:
            return []
        names = [buffer.symbol.data for buffer in self.buffers.values()]
        name, number = operand.name, 2
        while name in names:
            name, number = f"{operand.name}.{number}", number + 1
        outputs = role == "output"
        memories = [move.source for move in reversed(path)] if outputs else [m.target for m in path]
        buffers: list[BufferOp] = []
        for number, memory in enumerate(memories, 1):
            label, moved, gathers = f"{name}.{memory}", operand.image or operand, None
            last = number == len(memories)
            if last:
                label, moved = name, operand
                if operand.image is not None:
                    gathers = self._window(operand.image), type_of(operand)
            window = self._window(moved)
            fill = self.kernel.anchor.attribute("fill") if gathers else 0
            assert isinstance(fill, int)
            near = kind if last else None
            buffers.append(BufferOp.of(label, value, window, memory, role, gathers, fill, near))
            if last and self.primitive.operands[role].at_store:
                buffers[-1].at_store = UnitAttr()
            value = buffers[-1].result
            value.name_hint = value_name(f"{name}_{memory}")
        return buffers

    def _path(self, operand: Operand, role: str) -> tuple[Move, ...]:
        """The moves between main memory, or the memory of an internal tensor's buffer, and the
        primitive's memory, in the order in which data takes them."""
        owner = self.values[operand.name].owner
        outer = holding_memory(owner, self.machine)
        ends = (outer, self.memory_of(operand.name, role))
        return self._between(*(ends[::-1] if role == "output" else ends))

    def _between(self, source: str, target: str) -> tuple[Move, ...]:
        try:
            return self.machine.path(source, target)
        except KeyError as error:
            raise refuse("machine-no-move", str(error.args[0]), self.kernel.symbol) from None

    def memory_of(self, operand: str, role: str) -> str:
        """The memory in which the primitive has an operand."""
        storage, title = self.primitive.operands.get(role), f"{operand} ({role})"
        if storage is None:
            raise self._refuse(f"primitive {self.primitive.name} has no place for {title}")
        memory = dict(self.schedule.homes).get(operand, storage.memory)
        if memory not in storage.places:
            raise self._refuse(f"{self.primitive.name} does not take {title} in {memory}")
        return memory

    def _home(self, nest: _Nest, operand: Operand) -> str:
        """The memory in which a producer's result waits to be read: the one that both use, or one
        on the way between them."""
        source = nest.memory_of(operand.name, "output")
        target = self.memory_of(operand.name, operand.role)
        path = self._between(source, target)
        if self.machine.main in {move.target for move in path}:
            raise self._refuse(f"no moves on the chip lead from {source} to where it is read")
        return waiting_memory(self.machine, path, target) if path else source

    def place_output(self) -> None:
        """Let the output's buffers live through all of the reduction."""
        reduced = {self.names.get(dim, dim) for dim in self.kernel.anchor.reduction}
        hold_sums(self.compute, reduced, always=keeps_sums(self.kernel, self.primitive))
