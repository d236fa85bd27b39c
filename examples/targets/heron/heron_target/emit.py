"""Tile programs as C that calls the vendor's API: loops, slots and waits are the program's."""

import re
from collections.abc import Mapping
from typing import Any

from heron_target.machine import MACHINE
from tilewright.codegen.c.loops import Call, KernelWriter, Value
from tilewright.codegen.c.source import Writer, comment
from tilewright.codegen.c.values import Tables
from tilewright.codegen.program.commands import Commands
from tilewright.codegen.program.nests import nest_fields
from tilewright.machine.c_functions import CInterface
from tilewright.tile.dialect import ComputeOp, MoveOp, ProgramOp

INTERFACE = CInterface(prefix="heron", wait="heron_wait", finish="heron_finish")
LOOPS = {"oh": 0, "ow": 1, "kh": 2, "kw": 3, "n": 4, "co": 5, "ci": 6, "g": 7}
LOOPS |= {"b0": 0, "b1": 1, "m": 4, "c": 5, **{f"d{n}": n for n in range(6)}, "axis": 7}
"""The loop of each dim; loops 0 to 3 are a window's, and softmax runs along loop 7."""
KINDS = tuple(primitive.name for primitive in MACHINE.primitives)
FUNCTIONS = ("none", "relu", "clip", "add", "sub", "mul", "requantise")
ARENAS = {"weights": 0, "activations": 0}
"""Addresses in main memory count from the start of their arena, whose place C is given."""


def kernel_text(program: ProgramOp, name: str) -> str:
    """The function of a kernel."""
    commands = Commands(program, MACHINE, ARENAS)
    calls = {op: _call(commands, op) for op in commands.all}
    writer = Writer()
    writer.line(f"/* {comment(', '.join(program.get('nodes')))} */")
    with writer.block(f"static void {name}(const struct memory *memory)"):
        writer.lines += KernelWriter(commands.order, calls, [], INTERFACE, Tables(name)).write()
        writer.line("(void)memory;")
    return str(writer)


def _call(commands: Commands, op: MoveOp | ComputeOp) -> Call:
    if isinstance(op, MoveOp):
        engine, main = commands.move(op).engine, "source" if op.loads else "target"
        tensor = op.buffer.tensor_op.arena
        bases = {} if tensor is None else {f"{main}.address": f"memory->{tensor.data}"}
        fields = {"out": int(not op.loads), **commands.moved(op)}
        return Call("heron_copy_async", engine, _values(fields, bases))
    kind = op.primitive.data
    reduces = kind in ("mac", "max")
    fields, steps = nest_fields(commands.computed(op), LOOPS, reduces=reduces)
    fields |= {"kind": KINDS.index(kind), "window": int("rows" in fields)}
    for number, step in enumerate(steps):
        if step.operation != "softmax":
            fields[f"steps[{number}].function"] = FUNCTIONS.index(step.operation)
        fields[f"steps[{number}].first"] = step.first
        fields[f"steps[{number}].second"] = step.second
    return Call("heron_nest", "core", _values(dict(sorted(fields.items())), {}))


def _values(fields: Mapping[str, Any], bases: Mapping[str, str]) -> list[Value]:
    """Members of a record: ``size0`` is ``size[0]``, and ``x.0`` is ``x.step[0]``."""
    values: list[Value] = []
    for name, column in fields.items():
        member = re.sub(r"^([xwbry])\.(\d)$", r"\1.step[\2]", name)
        member = re.sub(r"^(n|size|.*\.stride)(\d)$", r"\1[\2]", member)
        names = _NAMES.get(name.rpartition(".")[2], ())
        slots, group = name.endswith(".address"), re.split(r"[.\d]", name)[0]
        values.append(Value(member, column, bases.get(name, ""), names, slots, group))
    return values


_NAMES = {
    "kind": tuple(f"HERON_{kind.upper()}" for kind in KINDS),
    "function": tuple(f"HERON_{function.upper()}" for function in FUNCTIONS),
}
