"""LAYER_slave.c: what each CPE runs for a kernel.

    parse the parameters
    for each part of the result that is this CPE's:
        for the tiles of the part:
            fetch what they need (the next tile's while this one is computed), compute, write

The loops, the buffers and their moves are the tile program's. A buffer that is loaded in loops with
two slots is fetched one visit ahead: ``next_DIM`` steps the index of the loop around it, and those
of the loops further out where it ends (swATOP, section 4.5.2). A result with two slots is waited
for when its slot is written again. Of what CPEs send in turns, each fetches every eighth tile
alone, as soon as it has sent the one before. All other moves are waited for where they stand."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tilewright.codegen.c.source import Writer, comment
from tilewright.errors import refuse
from tilewright.ir import Block, Operation, SSAValue
from tilewright.targets.sunway.emit.names import layer_names
from tilewright.targets.sunway.emit.nest import Loop, Nest
from tilewright.targets.sunway.emit.next_tile import write_first, write_steps
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
    LoopOp,
    MoveOp,
    ProgramOp,
    TensorOp,
    buffer_of,
)


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
    """Whether they are those of several core groups."""


@dataclass
class SlaveWriter:
    """Writes the text of one layer."""

    layer: Layer
    writer: Writer = field(default_factory=Writer)

    def __post_init__(self) -> None:
        self.program = self.layer.program
        self.nest = Nest(self.program)
        self.buffers = [op for op in self.program.walk() if isinstance(op, BufferOp)]
        self.names = layer_names(self.program)
        self.places = {op: place_of(self.nest, op, self.names) for op in self.buffers}
        self.moves = [op for op in self.program.walk() if isinstance(op, MoveOp)]
        self.loads = {op.buffer for op in self.moves if op.loads}
        self.computes = [op for op in self.program.walk() if isinstance(op, ComputeOp)]
        if len(self.computes) != 1:
            raise refuse("lower-program", f"{len(self.computes)} computes in one kernel")
        self.ahead = [
            buffer
            for buffer in self.buffers
            if buffer in self.loads and buffer.slot_count > 1 and self._own(buffer)
        ]
        self.line = self.writer.line
        self.turns = any(place.turns for place in self.places.values())

    def _own(self, buffer: BufferOp) -> list[Loop]:
        """The loops around a buffer that each CPE runs."""
        block = buffer.parent_block()
        assert block is not None
        return self.nest.own(block)

    def slots(self, buffer: BufferOp) -> int:
        """Slots of a buffer in C: one that is fetched once for a part needs no second."""
        fetched = buffer in self.loads and buffer not in self.ahead
        return 1 if fetched else buffer.slot_count

    def text(self) -> str:
        """The whole file."""
        name = self.layer.name
        line = self.line
        line(f"/* {comment(', '.join(self.layer.nodes) or name)}: the CPEs' part.")
        line(f"   {comment(self.layer.schedule)} */")
        line('#include "../slave/cpe.h"')
        if any(place.meets for place in self.places.values()):
            line('#include "../slave/mesh.h"')
        line('#include "../slave/scalars.h"')
        if self.computes[0].primitive.data in TILE_CODE:
            line(f'#include "../slave/{TILE_CODE[self.computes[0].primitive.data][1]}"')
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
        self._compute()
        self._function()
        return str(self.writer)

    def _tile(self) -> None:
        self.line("/* Where a tile lies: first index and extent along each dim that is cut. */")
        self.line("struct tile {")
        for loop in self.nest.loops.values():
            self.line(f"    long {loop.name}, {loop.name}_n;")
        if not self.nest.loops:
            self.line("    long whole; /* nothing is cut */")
        self.line("};")
        self.line()

    def _memory(self) -> None:
        """The addresses of the tiles, which the tile program has."""
        self.line("/* The tiles in LDM: the first byte of each buffer, and the bytes of a slot. */")
        for buffer in self.buffers:
            name, tensor = self.places[buffer].name, comment(buffer.tensor_op.symbol.data)
            address, size = buffer.get("address"), buffer.get("bytes")
            self.line(f"enum {{{name}_at = {address}, {name}_bytes = {size}}}; /* {tensor} */")
            end = f"{name}_at + {self.slots(buffer)} * {name}_bytes"
            self.line(f"typedef char {name}_fits[{end} <= LDM_BYTES ? 1 : -1];")
        self.line()

    def _steps(self) -> None:
        """The functions that step to the next tile of what is fetched ahead."""
        ahead = [self._own(buffer) for buffer in self.ahead]
        turns = {self._own(b)[-1].name for b in self.ahead if self.places[b].turns}
        write_steps(self.writer, list(self.nest.loops.values()), ahead, turns)

    # -------------------------------------------------------------- the compute

    def _operands(self) -> list[Place]:
        """The buffers of the compute, the result's last."""
        op = self.computes[0]
        places: dict[str, Place] = {}
        for stage in op.stages:
            for value in stage.inputs:
                buffer = buffer_of(value)
                if buffer is not None:
                    places.setdefault(self.places[buffer].name, self.places[buffer])
                elif isinstance(value.owner, TensorOp):
                    raise refuse("lower-operand", "an operand is in no tile")
        output = buffer_of(op.output)
        if output is None:
            raise refuse("lower-operand", "the result is in no tile")
        place = self.places[output]
        places.pop(place.name, None)
        return [*places.values(), place]

    def _split(self) -> list[str]:
        """The reduction dims that are cut."""
        cut = {loop.op.dim.data for loop in self.nest.loops.values()}
        return [dim for dim in self.program.reduction_dims if dim in cut]

    def _compute(self) -> None:
        op = self.computes[0]
        block = op.parent_block()
        output = buffer_of(op.output)
        assert block is not None and output is not None
        values: dict[SSAValue, Place] = {b.result: place for b, place in self.places.items()}
        rows = Rows(
            op.stages,
            values,
            self.places[output],
            self.nest.extents(block, "at->"),
            self.program.extents,
            self.program.reduction_dims,
            self.names.variables,
            bool(self._split()),
        )
        body = TILE_CODE.get(op.primitive.data, (Rows.write, ""))[0](rows)
        body = [*rows.steps(body), *body]
        operations = ", ".join(stage.operation.data for stage in op.stages)
        self.line(f"/* Computes a tile: {operations}. */")
        self.line("static void compute(const struct tile *at,")
        places = self._operands()
        parameters: list[str] = []
        for place in places:
            kind = "float" if place is places[-1] else "const float"
            parameters.append(f"const struct box *{place.name}_b, {kind} *{place.name}")
        if self._split():
            parameters.append("int first, int last")
        if self.turns:
            parameters.append("int turn")
        for number, parameter in enumerate(parameters):
            self.line(" " * 20 + parameter + ("," if number < len(parameters) - 1 else ")"))
        with self.writer.block():
            text = "\n".join(body)
            for name in ["at", *(f"{place.name}_b" for place in places)]:
                if f"{name}->" not in text:
                    self.line(f"(void){name};")
            for name in ["first", "last"] if self._split() else []:
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
            self._finish()

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
        for buffer in self.buffers:
            place, slots = self.places[buffer], self.slots(buffer)
            zeros = ", ".join("0" for _ in range(slots))
            name = place.name
            self.line(f"struct box {name}_b;")
            slot = f", {name}_slot = 0" if slots > 1 else ""
            self.line(f"volatile int {name}_reply[{slots}] = {{{zeros}}};")
            self.line(f"int {name}_count[{slots}] = {{{zeros}}}{slot};")
        if not self.nest.loops:
            self.line("(void)at;")

    def _slot(self, buffer: BufferOp) -> str:
        return f"{self.places[buffer].name}_slot" if self.slots(buffer) > 1 else "0"

    def _block(self, block: Block) -> None:
        """The operations of a block; loops that the CPEs share are one loop over parts."""
        ops = list(block.ops)
        if not self.nest.around(block) and not self.nest.shared:
            # There is one part: CPE 0's.
            self.line("if (athread_get_id(-1) != 0)")
            self.line("    return;")
        self._enter(block)
        for op in ops:
            if isinstance(op, LoopOp):
                self._loop(op)
            elif isinstance(op, ComputeOp):
                self._call(op)
            elif isinstance(op, MoveOp) and not op.loads:
                self._put(op)
        own = self._of(block)
        for buffer in own:
            if self.slots(buffer) > 1:
                slot, place = self._slot(buffer), self.places[buffer]
                if place.turns:
                    self.line(f"if (turn == lane_in({place.mesh_axis}))")
                after = f"{slot} = ({slot} + 1) % {self.slots(buffer)};"
                self.line(f"    {after}" if place.turns else after)
        if any(self.places[buffer].turns for buffer in own):
            self.line("turn = (turn + 1) % SIDE;")

    def _of(self, block: Block) -> list[BufferOp]:
        return [op for op in block.ops if isinstance(op, BufferOp)]

    def _enter(self, block: Block) -> None:
        """Start the block's loads, then wait for what its computes need."""
        waits: list[str] = []
        for buffer in self._of(block):
            place, slot = self.places[buffer], self._slot(buffer)
            name = place.name
            wait = f"dma_wait(&{name}_reply[{slot}], {name}_count[{slot}]);"
            if place.exchanged == "all" and buffer in self.loads:
                self._broadcast(block, buffer, wait)
                continue
            if place.turns:
                self.line(f"{name}_b = {name}_box(&at);")
                with self.writer.block(f"if (turn == lane_in({place.mesh_axis}))"):
                    self._fetch_ahead(buffer)
                    self.line(wait)
                continue
            if buffer in self.ahead:
                self.line(f"{name}_b = {name}_box(&at);")
                self._fetch_ahead(buffer)
            elif buffer in self.loads:
                self.line(f"{name}_b = {name}_box(&at);")
                self._get(buffer, f"&{name}_b", slot)
            else:
                self.line(f"{name}_b = {name}_box(&at);")
            waits.append(wait)
        for wait in waits:
            self.line(wait)
        for buffer in self._of(block):
            name = self.places[buffer].name
            if buffer in self.loads and self.places[buffer].meets:
                self.line(f"exchange_{name}(&{name}_b, TILE({name}, {self._slot(buffer)}));")

    def _fetch_ahead(self, buffer: BufferOp) -> None:
        """Start to fetch the next tile, if there is one, into the other slot."""
        name, slot = self.places[buffer].name, self._slot(buffer)
        self.line("next = at;")
        loop = self._own(buffer)[-1].name
        step = f"skip_{loop}(&next, SIDE)" if self.places[buffer].turns else f"next_{loop}(&next)"
        with self.writer.block(f"if ({step})"):
            self.line(f"const int other = ({slot} + 1) % {self.slots(buffer)};")
            self.line(f"box = {name}_box(&next);")
            self._get(buffer, "&box", "other")

    def _broadcast(self, block: Block, buffer: BufferOp, wait: str) -> None:
        """Get a tile that CPE 0 fetches for all.

        They meet before they read it; and before it comes, where the slot may be in use: that of
        the next tile is free once all have come to this one.
        """
        name = self.places[buffer].name
        meet = "athread_syn(ARRAY_SCOPE, 0xffff);"
        self.line(f"{name}_b = {name}_box(&at);")
        if buffer in self.ahead:
            self.line(wait)
            self.line(meet)
            self._fetch_ahead(buffer)
            return
        rounds = -(-self.nest.parts // self.layer.cores)
        if self.nest.own(block) or rounds > 1:
            self.line(meet)
        self._get(buffer, f"&{name}_b", self._slot(buffer))
        self.line(wait)
        self.line(meet)

    def _get(self, buffer: BufferOp, box: str, slot: str) -> None:
        place = self.places[buffer]
        name = place.name
        with self._unless_spare(not place.exchanged):
            self.line(f"{name}_count[{slot}] =")
            self.line(f"    get_{name}(&para, {box}, TILE({name}, {slot}), &{name}_reply[{slot}]);")

    @contextmanager
    def _unless_spare(self, own: bool = True) -> Generator[None]:
        """What a CPE does for its own part alone: spare ones leave it out.

        Not only in vain would they do it: what another reads of its part, and then writes over
        (results may lie where an operand did), must not be read by them meanwhile.
        """
        if not (own and self.nest.spare):
            yield
            return
        with self.writer.block("if (!spare)"):
            yield

    def _put(self, move: MoveOp) -> None:
        name, slot = self.places[move.buffer].name, self._slot(move.buffer)
        with self._unless_spare():
            self.line(f"{name}_count[{slot}] =")
            self.line(
                f"    put_{name}(&para, &{name}_b, TILE({name}, {slot}), &{name}_reply[{slot}]);"
            )

    def _call(self, op: ComputeOp) -> None:
        arguments = ["&at"]
        by_name = {self.places[buffer].name: buffer for buffer in self.buffers}
        for place in self._operands():
            slot = self._slot(by_name[place.name])
            arguments.append(f"&{place.name}_b, TILE({place.name}, {slot})")
        split = self._split()
        if split:
            names = {loop.op.dim.data: loop for loop in self.nest.loops.values()}
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
            self.line(f"compute({arguments[0]},")
            for number, argument in enumerate(arguments[1:], 1):
                self.line("        " + argument + (");" if number == len(arguments) - 1 else ","))

    def _loop(self, op: LoopOp) -> None:
        loop = self.nest.loops[op]
        if loop in self.nest.shared:
            self._shared(op, loop)
            return
        parent = op.parent_block()
        assert parent is not None
        if not self.nest.own(parent):
            self._first_tiles(op)
        at, name = "at.", loop.name
        ends = f"at.{name} = {loop.start(at)}; at.{name} < {loop.end(at)}"
        head = f"for ({ends}; at.{name} += {loop.step})"
        with self.writer.block(head):
            self.line(f"at.{name}_n = {loop.size(at)};")
            self._block(op.body.block)

    def _first_tiles(self, op: Operation) -> None:
        """Fetch the first tiles of what is fetched ahead in the loops within an operation."""
        inside = [buffer for buffer in self.ahead if buffer in list(op.walk())]
        for buffer in inside:
            name = self.places[buffer].name
            self.line(f"/* The first tile of {name}. */")
            self.line("next = at;")
            for loop in self._own(buffer):
                write_first(self.writer, loop, "next.")
            place = self.places[buffer]
            depth = self.writer.depth
            if place.turns:
                loop = self._own(buffer)[-1].name
                self.line(f"if (skip_{loop}(&next, lane_in({place.mesh_axis}))) {{")
                self.writer.depth += 1
            self.line(f"box = {name}_box(&next);")
            self._get(buffer, "&box", self._slot(buffer))
            if self.writer.depth > depth:
                self.writer.depth = depth
                self.line("}")

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
                index = "part" if inner == 1 else f"part / {inner}"
                index += f" % {places}" if number else ""
                if part.trips < places:
                    # Spare CPEs come to the last part's tiles, for what others need of them.
                    self.line(f"spare |= {index} >= {part.trips};")
                    index = f"MIN({index}, {part.trips - 1})"
                step = "" if part.step == 1 else f" * {part.step}"
                self.line(f"at.{part.name} = {index}{step};")
                self.line(f"at.{part.name}_n = {part.size('at.')};")
            self._block(op.body.block)

    def _finish(self) -> None:
        self.line()
        self.line("/* What is still being written. */")
        for buffer in self.buffers:
            if buffer in self.loads:
                continue
            name = self.places[buffer].name
            for slot in range(self.slots(buffer)):
                self.line(f"dma_wait(&{name}_reply[{slot}], {name}_count[{slot}]);")


def slave_text(layer: Layer) -> str:
    """LAYER_slave.c; refuses what the target cannot say."""
    return SlaveWriter(layer).text()
