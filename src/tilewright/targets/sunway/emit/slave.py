"""LAYER_slave.c: what each CPE runs for a kernel.

    parse the parameters
    for each part of the result that is this CPE's:
        for the tiles of the part:
            fetch what they need (the next tile's while this one is computed), compute, write

All of it is the tile program's: loops and boxes, addresses and slots, the order in which transfers
are given (tile/issue_order.py), the reply words that they count up and where these are waited for.
What is given ahead is of the next run of its block: ``next_DIM`` steps the index of the loop around
it, and those of the loops further out where it ends (swATOP, section 4.5.2). Of what CPEs send in
turns, each fetches every eighth tile alone, as soon as it has sent the one before."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

from tilewright.codegen.c.source import Writer, comment
from tilewright.codegen.nest.nest import Loop
from tilewright.codegen.nest.value import least, variable
from tilewright.errors import refuse
from tilewright.ir import Block, SSAValue
from tilewright.targets.sunway.emit.names import layer_names
from tilewright.targets.sunway.emit.nest import PartNest
from tilewright.targets.sunway.emit.next_tile import first_tile, write_steps
from tilewright.targets.sunway.emit.rows import Rows
from tilewright.targets.sunway.emit.tile_code import TILE_CODE
from tilewright.targets.sunway.emit.transfers import (
    Place,
    box_function,
    exchange_function,
    place_of,
    transfer_function,
)
from tilewright.targets.sunway.machine import CPES
from tilewright.tile.dialect import (
    BufferOp,
    ComputeOp,
    DomainOp,
    LoopOp,
    MoveOp,
    ProgramOp,
    SignalOp,
    TensorOp,
    WaitOp,
    buffer_of,
    enclosing_loops,
)
from tilewright.tile.issue_order import signal_of, steps_of
from tilewright.tile.iteration import own_extents, reduced_dims

MEET = "athread_syn(ARRAY_SCOPE, 0xffff);"
"""All CPEs come here before one goes on."""


@dataclass(frozen=True)
class Layer:
    """A kernel's part of the package."""

    name: str
    nodes: tuple[str, ...]
    program: ProgramOp
    schedule: str
    cores: int
    """CPEs that work on it."""
    grouped: bool = False
    """True if the CPEs are those of several core groups."""


@dataclass
class SlaveWriter:
    """Writes the text of one layer."""

    layer: Layer
    writer: Writer = field(default_factory=Writer)

    def __post_init__(self) -> None:
        self.program = self.layer.program
        self.nest = PartNest(self.program)
        self.buffers = [op for op in self.program.walk() if isinstance(op, BufferOp)]
        self.names = layer_names(self.program)
        self.places = {op: place_of(self.nest, op, self.names) for op in self.buffers}
        self.moves = [op for op in self.program.walk() if isinstance(op, MoveOp)]
        self.words = {
            number: move.buffer
            for move in self.moves
            if (signal := signal_of(move)) is not None
            for number in signal.id_list
        }
        """The buffers whose transfers count up each reply word."""
        self.computes = [op for op in self.program.walk() if isinstance(op, ComputeOp)]
        self.ahead = [move.buffer for move in self.moves if move.ahead is not None]
        self.line = self.writer.line
        self.turns = any(place.turns for place in self.places.values())

    def text(self) -> str:
        """Return the text of the whole file."""
        name = self.layer.name
        line = self.line
        line(f"/* {comment(', '.join(self.layer.nodes) or name)}: the CPEs' part.")
        line(f"   {comment(self.layer.schedule)} */")
        line('#include "../slave/cpe.h"')
        if any(place.meets for place in self.places.values()):
            line('#include "../slave/mesh.h"')
        line('#include "../slave/scalars.h"')
        primitives = dict.fromkeys(op.primitive.data for op in self.computes)
        for header in dict.fromkeys(TILE_CODE[n][1] for n in primitives if n in TILE_CODE):
            line(f'#include "../slave/{header}"')
        line(f'#include "{name}_para.h"')
        line()
        self._tile()
        self._memory()
        for buffer in self.buffers:
            self.writer.lines += box_function(self.places[buffer]).splitlines()
            line()
        for move in self.moves:
            place = self.places[move.buffer]
            self.writer.lines += transfer_function(place, name, get=move.loads).splitlines()
            line()
            if place.meets and move.loads:
                self.writer.lines += exchange_function(place).splitlines()
                line()
        self._steps()
        for op in self.computes:
            self._compute(op)
        self._function()
        return str(self.writer)

    def _tile(self) -> None:
        self.line("/* Where a tile lies: first index and extent along each dim that is cut. */")
        self.line("struct tile {")
        for name in self.nest.members:
            self.line(f"    long {name}, {name}_n;")
        if not self.nest.members:
            self.line("    long whole; /* nothing is cut */")
        self.line("};")
        self.line()

    def _memory(self) -> None:
        """The addresses and reply words of the tiles, which the tile program has."""
        self.line(
            "/* The tiles in LDM: first byte, bytes of a slot, reply word of the first one. */"
        )
        for buffer in self.buffers:
            name, tensor = self.places[buffer].name, comment(buffer.tensor_op.symbol.data)
            address, size = buffer.get("address"), buffer.get("bytes")
            words = [number for number, owner in self.words.items() if owner is buffer]
            word = f", {name}_word = {min(words)}" if words else ""
            lies = f"{name}_at = {address}, {name}_bytes = {size}"
            self.line(f"enum {{{lies}{word}}}; /* {tensor} */")
            end = f"{name}_at + {buffer.slot_count} * {name}_bytes"
            self.line(f"typedef char {name}_fits[{end} <= LDM_BYTES ? 1 : -1];")
        self.line()

    def _steps(self) -> None:
        """The functions that step to the next tile of what is fetched ahead."""
        ahead = [self.nest.own(buffer) for buffer in self.ahead]
        turns = {self.nest.own(b)[-1].name for b in self.ahead if self.places[b].turns}
        write_steps(self.writer, self.nest, ahead, turns)

    # -------------------------------------------------------------- the compute

    def _operands(self, op: ComputeOp) -> list[Place]:
        """The buffers of a compute, the result's last."""
        places: dict[str, Place] = {}
        for stage in op.stages:
            for value in stage.inputs:
                buffer = buffer_of(value)
                if buffer is not None:
                    places.setdefault(self.places[buffer].name, self.places[buffer])
                elif isinstance(value.owner, TensorOp):
                    raise refuse("lower-operand", "an operand is not in a tile")
        output = buffer_of(op.output)
        if output is None:
            raise refuse("lower-operand", "the result is not in a tile")
        place = self.places[output]
        places.pop(place.name, None)
        return [*places.values(), place]

    def _split(self, op: ComputeOp) -> list[str]:
        """The dims over which a compute reduces that are cut."""
        cut = {loop.dim.data for loop in enclosing_loops(op)}
        return [dim for dim in reduced_dims(op, self.program) if dim in cut]

    def _function_of(self, op: ComputeOp) -> str:
        """C of the name of the function that computes a tile."""
        return "compute" if len(self.computes) == 1 else f"compute_{self.computes.index(op)}"

    def _compute(self, op: ComputeOp) -> None:
        block = op.parent_block()
        output = buffer_of(op.output)
        assert block is not None and output is not None
        values: dict[SSAValue, Place] = {b.result: place for b, place in self.places.items()}
        spans, whole = self.nest.spans(block, "at->"), own_extents(op, self.program)
        names, renamed = op.dim_names, op.primitive_names
        split = self._split(op)
        rows = Rows(
            op.stages,
            values,
            self.places[output],
            {dim: spans[names.get(dim, dim)] for dim in whole},
            whole,
            [renamed.get(dim, dim) for dim in reduced_dims(op, self.program)],
            {dim: variable(self.names.variables[names.get(dim, dim)]) for dim in whole},
            renamed,
            bool(split),
        )
        body = TILE_CODE.get(op.primitive.data, (Rows.write, ""))[0](rows)
        body = [*rows.steps(body), *body]
        operations = ", ".join(stage.operation.data for stage in op.stages)
        self.line(f"/* Computes a tile: {operations}. */")
        head = f"static void {self._function_of(op)}("
        self.line(f"{head}const struct tile *at,")
        places = self._operands(op)
        parameters: list[str] = []
        for place in places:
            kind = "float" if place is places[-1] else "const float"
            parameters.append(f"const struct box *{place.name}_b, {kind} *{place.name}")
        if split:
            parameters.append("int first, int last")
        if self.turns:
            parameters.append("int turn")
        for number, parameter in enumerate(parameters):
            self.line(" " * len(head) + parameter + ("," if number < len(parameters) - 1 else ")"))
        with self.writer.block():
            text = "\n".join(body)
            for name in ["at", *(f"{place.name}_b" for place in places)]:
                if f"{name}->" not in text:
                    self.line(f"(void){name};")
            for name in ["first", "last"] if split else []:
                if f"if ({name})" not in text:
                    self.line(f"(void){name};")
            self.writer.lines += body
        self.line()

    # -------------------------------------------------------------- the CPE's function

    def _function(self) -> None:
        name = self.layer.name
        with self.writer.block(f"void {name}_slave(void *argument)"):
            self._declare()
            self.line()
            self.line("/* The parameters. */")
            self.line(
                "athread_get(PE_MODE, argument, &para, sizeof para, (void *)&reply, 0, 0, 0);"
            )
            self.line("dma_wait(&reply, 1);")
            self.line()
            self._block(self.program.body.block)

    def _declare(self) -> None:
        self.line(f"struct {self.layer.name}_para para;")
        self.line("struct tile at;")
        if self.ahead:
            self.line("struct tile next;")
            self.line("struct box box;")
        if self.nest.spare:
            self.line("int spare = 0; /* Whether the part is another CPE's, which computes it. */")
        if self.turns:
            self.line("int turn = 0; /* The CPEs of which column and row send. */")
        self.line("volatile int reply = 0;")
        if self.words:
            count = max(self.words) + 1
            self.line(
                f"volatile int replies[{count}] = {{0}}; /* What transfers count up when done. */"
            )
            self.line(f"int counts[{count}] = {{0}}; /* What they come to then. */")
        for buffer in self.buffers:
            name = self.places[buffer].name
            self.line(f"struct box {name}_b;")
            if buffer.slot_count > 1:
                self.line(f"int {name}_slot = 0;")
        if not self.nest.members:
            self.line("(void)at;")

    def _slot(self, buffer: BufferOp) -> str:
        return f"{self.places[buffer].name}_slot" if buffer.slot_count > 1 else "0"

    def _block(self, block: Block) -> None:
        """The operations of a block as a CPE comes to them; loops that the CPEs share are one loop
        over parts."""
        if block is self.program.body.block and not self.nest.shared:
            # There is one part: CPE 0's.
            self.line("if (athread_get_id(-1) != 0)")
            self.line("    return;")
        arrived: list[BufferOp] = []
        for step in steps_of(self.program, block):
            op = step.op
            if not isinstance(op, WaitOp):
                for buffer in arrived:
                    name = self.places[buffer].name
                    tile = f"TILE({name}, {self._slot(buffer)})"
                    self.line(f"exchange_{name}(&{name}_b, {tile});")
                arrived = []
            match op:
                case BufferOp():
                    name = self.places[op].name
                    self.line(f"{name}_b = {name}_box(&at);")
                case MoveOp() if step.run == "first":
                    self._first(op.buffer)
                case MoveOp() if step.run == "next":
                    self._next(op.buffer)
                case MoveOp():
                    self._get(op) if op.loads else self._put(op)
                case WaitOp():
                    arrived += self._wait(op)
                case LoopOp():
                    self._loop(op)
                case DomainOp():
                    with self.writer.block(f"if (enter_{self.nest.domains[op].name}(&at))"):
                        self._block(op.body.block)
                case ComputeOp():
                    self._call(op)
                case SignalOp() | TensorOp():
                    pass  # The words of a transfer, which it is given with; those not in use yet.
                case _:
                    raise refuse("lower-program", f"sunway has no {op.name}")
        self._turn([op for op in block.ops if isinstance(op, BufferOp)])

    def _turn(self, buffers: Sequence[BufferOp]) -> None:
        """Turn to the next slots at the end of a block."""
        for buffer in buffers:
            if buffer.slot_count > 1:
                slot, place = self._slot(buffer), self.places[buffer]
                if place.turns:
                    self.line(f"if (turn == lane_in({place.mesh_axis}))")
                after = f"{slot} = ({slot} + 1) % {buffer.slot_count};"
                self.line(f"    {after}" if place.turns else after)
        if any(self.places[buffer].turns for buffer in buffers):
            self.line("turn = (turn + 1) % SIDE;")

    def _word(self, buffer: BufferOp, slot: str) -> str:
        """C of the number of the reply word of a buffer's slot."""
        name = self.places[buffer].name
        return f"{name}_word" if slot == "0" else f"{name}_word + {slot}"

    def _wait(self, op: WaitOp) -> list[BufferOp]:
        """Wait for transfers; the buffers whose tiles CPEs then exchange."""
        buffer = self.words[op.id_list[0]]
        place = self.places[buffer]
        first = min(number for number, owner in self.words.items() if owner is buffer)
        slot = self._slot(buffer) if op.turns_of is not None else str(op.id_list[0] - first)
        word = self._word(buffer, slot)
        if place.turns:
            self.line(f"if (turn == lane_in({place.mesh_axis}))")
        self.line(f"{'    ' * place.turns}dma_wait(&replies[{word}], counts[{word}]);")
        if op.source_engine == "put":
            return []
        if place.exchanged == "all":
            self.line(MEET)
        return [buffer] if place.meets else []

    def _first(self, buffer: BufferOp) -> None:
        """Fetch the first tile of a part."""
        place = self.places[buffer]
        self.line(f"/* The first tile of {place.name}. */")
        self.line("next = at;")
        scopes = self.nest.own(buffer)
        opened = first_tile(self.writer, scopes, "next")
        head = f"if (skip_{scopes[-1].name}(&next, lane_in({place.mesh_axis})))"
        with self.writer.block(head) if place.turns else nullcontext():
            self.line(f"box = {place.name}_box(&next);")
            self._fetch(buffer, "&box", self._slot(buffer))
        for _ in range(opened):
            self.writer.depth -= 1
            self.line("}")

    def _next(self, buffer: BufferOp) -> None:
        """Fetch the next tile of a part, if there is one, into the next slot."""
        place, slot = self.places[buffer], self._slot(buffer)
        loop = self.nest.own(buffer)[-1].name
        step = f"skip_{loop}(&next, SIDE)" if place.turns else f"next_{loop}(&next)"
        mine = f"turn == lane_in({place.mesh_axis}) && " if place.turns else ""
        self.line("next = at;")
        with self.writer.block(f"if ({mine}{step})"):
            self.line(f"const int other = ({slot} + 1) % {buffer.slot_count};")
            self.line(f"box = {place.name}_box(&next);")
            self._fetch(buffer, "&box", "other")

    def _get(self, move: MoveOp) -> None:
        buffer, block = move.buffer, move.parent_block()
        assert block is not None
        rounds = -(-self.nest.parts // self.layer.cores)
        if self.places[buffer].exchanged == "all" and (self.nest.own(buffer) or rounds > 1):
            # It must not come while another CPE still reads what its slot had before.
            self.line(MEET)
        self._fetch(buffer, f"&{self.places[buffer].name}_b", self._slot(buffer))

    def _fetch(self, buffer: BufferOp, box: str, slot: str) -> None:
        place, word = self.places[buffer], self._word(buffer, slot)
        name = place.name
        with self._unless_spare(not place.exchanged):
            self.line(f"counts[{word}] =")
            self.line(f"    get_{name}(&para, {box}, TILE({name}, {slot}), &replies[{word}]);")

    @contextmanager
    def _unless_spare(self, private: bool = True) -> Generator[None]:
        """Emit code within that a CPE runs for its own part alone: spare ones skip it.

        Not only in vain would they do it: what another reads of its part, and then writes over
        (results may lie where an operand did), must not be read by them meanwhile.
        """
        if not (private and self.nest.spare):
            yield
            return
        with self.writer.block("if (!spare)"):
            yield

    def _put(self, move: MoveOp) -> None:
        name, slot = self.places[move.buffer].name, self._slot(move.buffer)
        word = self._word(move.buffer, slot)
        with self._unless_spare():
            self.line(f"counts[{word}] =")
            self.line(f"    put_{name}(&para, &{name}_b, TILE({name}, {slot}), &replies[{word}]);")

    def _call(self, op: ComputeOp) -> None:
        arguments = ["&at"]
        by_name = {self.places[buffer].name: buffer for buffer in self.buffers}
        for place in self._operands(op):
            slot = self._slot(by_name[place.name])
            arguments.append(f"&{place.name}_b, TILE({place.name}, {slot})")
        split = self._split(op)
        if split:
            loops = (self.nest.loops[loop] for loop in enclosing_loops(op))
            names = {loop.op.dim.data: loop for loop in loops}
            first = " && ".join(f"at.{names[dim].name} == 0" for dim in split)
            last = " && ".join(
                f"at.{names[dim].name} + at.{names[dim].name}_n == {self.program.extents[dim]}"
                for dim in split
            )
            arguments.append(f"{first}, {last}")
        if self.turns:
            arguments.append("turn")
        # Of tiles in turns none are spare: all take part in the product.
        with self._unless_spare():
            head = f"{self._function_of(op)}("
            self.line(f"{head}{arguments[0]},")
            for number, argument in enumerate(arguments[1:], 1):
                end = ");" if number == len(arguments) - 1 else ","
                self.line(" " * len(head) + argument + end)

    def _loop(self, op: LoopOp) -> None:
        loop = self.nest.loops[op]
        if loop in self.nest.shared:
            self._shared(op, loop)
            return
        at, name = "at.", loop.name
        ends = f"at.{name} = {loop.start(at)}; at.{name} < {loop.end(at)}"
        head = f"for ({ends}; at.{name} += {loop.step})"
        with self.writer.block(head):
            self.line(f"at.{name}_n = {loop.size(at)};")
            self._block(op.body.block)

    def _shared(self, op: LoopOp, loop: Loop) -> None:
        shared = self.nest.shared
        if loop is not shared[0]:
            self._block(op.body.block)
            return
        parts = self.nest.parts
        each = -(-parts // self.layer.cores)
        idle = self.layer.cores - -(-parts // each)
        self.line(
            f"/* {parts} parts, {each} for each CPE{f'; {idle} stay idle' if idle else ''}. */"
        )
        cpe = "athread_get_id(-1)"
        if self.layer.grouped:
            cpe = f"(para.group * {CPES} + {cpe})"
        self.line(f"const long begin = {cpe} * {each};")
        self.line(f"const long end = MIN(begin + {each}, {parts});")
        with self.writer.block("for (long part = begin; part < end; part++)"):
            inner = parts
            for number, (part, places) in enumerate(zip(shared, self.nest.places, strict=True)):
                inner //= places
                index = variable("part") // inner
                if number:
                    index = index % places
                if part.trips < places:
                    # Spare CPEs come to the last part's tiles, for what others need of them.
                    self.line(f"spare |= {index} >= {part.trips};")
                    index = least(index, part.trips - 1)
                self.line(f"at.{part.name} = {index * part.step};")
                self.line(f"at.{part.name}_n = {part.size('at.')};")
            self._block(op.body.block)


def slave_text(layer: Layer) -> str:
    """LAYER_slave.c; refuses what the target cannot say."""
    return SlaveWriter(layer).text()
