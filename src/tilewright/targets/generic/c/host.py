"""The machine's C functions for the host: records become structures of shim/families.h."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.c.source import Writer
from tilewright.errors import refuse
from tilewright.machine import Machine, Move, Primitive
from tilewright.numerics import tables
from tilewright.system.template import filled
from tilewright.targets.generic.c.records import (
    TEMPLATES,
    c_of,
    commands_of,
    function_of,
    names_of,
    result_of,
)
from tilewright.targets.generic.families.gather import IMAGE, POINTS
from tilewright.targets.generic.families.points import AXES as POINT_AXES
from tilewright.targets.generic.families.product import TAPS
from tilewright.targets.generic.functions import FUNCTIONS, TABLES
from tilewright.targets.generic.isa import Instruction, InstructionSet
from tilewright.targets.generic.operands import memory_of

COMPUTED = frozenset(
    {"transfer", "img2col", "convert", "product", "depthwise", "pool", "points", "softmax"}
)
"""Families that the host computes."""

_SIZES = {
    "product": ("n", "g", "co", "oh", "ow", "ci", "kh", "kw"),
    "depthwise": ("n", "c", "oh", "ow", "kh", "kw"),
    "pool": ("n", "c", "oh", "ow", "kh", "kw"),
}
_OUT = {
    "product": ("n", "g", "h", "w", "c"),
    "depthwise": ("n", "h", "w", "c"),
    "pool": ("n", "h", "w", "c"),
    "points": POINT_AXES,
    "softmax": (*POINT_AXES, "axis"),
}
_WEIGHT = {"product": ("g", "co", "kh", "kw", "ci"), "depthwise": ("c", "kh", "kw")}

POISON = 0xA5
"""The byte that memories begin with, unless who runs the C sets another one."""


def check_host(instructions: InstructionSet) -> None:
    """Refuse (``codegen-host``) a machine whose functions the host does not compute."""
    machine = instructions.machine
    if not machine.fixed_bits:
        raise refuse(
            "codegen-host",
            f"{machine.name} computes in {machine.element}; functions in C are for fixed point",
            "element",
            'element = "fixed16" or "fixed8", or no C functions',
        )
    for instruction in commands_of(instructions):
        if instruction.family.name not in COMPUTED:
            raise refuse(
                "codegen-host",
                f"the host does not compute {instruction.family.name} for {instruction.mnemonic}",
                f"primitive.{instruction.mnemonic}",
                f"leave {', '.join(instruction.operations)} out of its operations",
            )


def host_text(instructions: InstructionSet) -> str:
    """The C file of a machine's functions on the host."""
    machine = instructions.machine
    names = names_of(machine)
    memories = {name: _array(name) for name in _memories(machine)}
    keeping = [m.name for m in machine.memories if "results" in m.resident]
    return filled(
        TEMPLATES / "host.c.in",
        **names,
        memories="\n".join(
            f"static uint8_t {array}[{machine.memory(name).bytes}];"
            for name, array in memories.items()
        ),
        functions="\n".join(_function(i, machine) for i in commands_of(instructions)).rstrip("\n"),
        poison=f"{POISON:#04x}",
        engines=len(machine.engines),
        filled="\n".join(
            f"    memset({array}, {names['prefix']}_host_poison, sizeof {array});"
            for array in memories.values()
        ),
        kept="\n".join(
            f'    if (!strcmp(memory, "{name}"))\n        return {_array(name)};'
            for name in keeping
        ),
    )


def _memories(machine: Machine) -> list[str]:
    return [
        memory.name for memory in machine.memories if memory.name != machine.main and memory.bytes
    ]


def _array(memory: str) -> str:
    return "memory_" + memory.replace("-", "_")


def _function(instruction: Instruction, machine: Machine) -> str:
    """The function that starts a command, and the one that runs it."""
    writer = Writer()
    name, family = function_of(instruction), instruction.family.name
    result = result_of(c_of(machine))
    gives = "" if result == "void" else "return "
    with writer.block(f"static void run_{name}(const void *record)"):
        writer.line(f"const struct {name} *c = record;")
        writer.line(f"struct {family} p = {{0}};")
        _Conversion(writer, instruction, machine).write()
        writer.line(f"family_{family}(&p);")
    writer.text(f"""
{result} {name}(const struct {name} *command) {{
    {gives}queues_issue({instruction.engine}, run_{name}, command, sizeof *command);
}}""")
    return str(writer)


class _Conversion:
    """The lines that fill a family's structure from a record."""

    def __init__(self, writer: Writer, instruction: Instruction, machine: Machine) -> None:
        self.line = writer.line
        self.instruction = instruction
        self.machine = machine
        self.known = instruction.format.by_name

    def write(self) -> None:
        """Write the C statements for one instruction, by its family."""
        family, move = self.instruction.family.name, self.instruction.move
        if move is not None:
            self._move(move, family)
            return
        primitive = self.instruction.primitive
        assert primitive is not None
        self._copies(*_SIZES.get(family, ()))
        if family in ("points", "softmax"):
            self._list("size", POINT_AXES)
        if "row" in self.known:
            self._window()
        elif family == "product":
            self.line("p.gathered = 1;")
        if family == "pool":
            self.line("p.average = c->function == 1;")
            self._copies("window_h", "window_w", "window_row", "window_column")
            self._copies(*(f"count_{name}" for name in ("top", "bottom", "left", "right")))
        if family == "softmax":
            self._copies("axis", "point_in", "point_out")
        self._operands(primitive, family)
        self._copies(*(name for name in ("first", "last") if name in self.known))
        if family == "points":
            mine = [name for name in primitive.operations if name in FUNCTIONS]
            self._step("p.function", "function", mine)
        self._steps(primitive, _OUT[family])

    def _copies(self, *names: str) -> None:
        """Members that both structures have."""
        for name in names:
            self.line(f"p.{name} = c->{name};")

    def _list(self, member: str, names: Sequence[str]) -> None:
        """A member that is an array of the record's."""
        for number, name in enumerate(names):
            self.line(f"p.{member}[{number}] = c->{name};")

    def _window(self) -> None:
        members = [f"{name}_{axis}" for axis in "hw" for name in ("stride", "dilation")]
        for name in (*members, "row", "rows", "column", "columns"):
            self.line(f"p.window.{name} = c->{name};")

    def _move(self, move: Move, family: str) -> None:
        """A transfer, a conversion of results, or a gather of windows."""
        axes = {end: [f"_stride{axis}" for axis in range(4)] for end in ("source", "target")}
        bits = {"source": 8, "target": 8}
        if family == "img2col":
            self._copies(*POINTS)
            axes = {
                end: [f"_{axis}" for axis in names]
                for end, names in (("source", IMAGE), ("target", POINTS))
            }
        else:
            self._list("size", [f"size{axis}" for axis in range(4)])
        if family == "convert":
            self._copies("shift")
            bits = {"source": 32, "target": self.machine.fixed_bits}
        else:
            self._copies("element")
        if family == "transfer":
            self._copies("extra_bytes")
        elif family == "img2col":
            self._window()
        for end, memory in (("source", move.source), ("target", move.target)):
            strides = [f"c->{end}{axis}" for axis in axes[end]]
            self._operand(f"p.{end}", memory, f"c->{end}_address", strides, str(bits[end]))
            if family == "transfer":
                self._operand(f"p.extra_{end}", memory, f"c->extra_{end}", (), "8")

    def _operands(self, primitive: Primitive, family: str) -> None:
        out = _OUT[family]
        taps = family == "product" and primitive.operands["input"].gathered
        self._named("input", memory_of(primitive, "input"), TAPS if taps else out)
        if family in _WEIGHT:
            self._named("weight", memory_of(primitive, "weight"), _WEIGHT[family])
        if "bias" in self.known:
            self.line("p.has_bias = c->bias;")
            axes = out if family == "product" else ("c",)
            self._named("bias", memory_of(primitive, "bias"), axes, "32")
        if "other.address" in self.known:
            self._named("other", memory_of(primitive, "input"), out)
        self._named("output", memory_of(primitive, "output"), out)

    def _named(self, name: str, memory: str, axes: Sequence[str], bits: str = "") -> None:
        strides = [f"c->{name}_{axis}" for axis in axes]
        bits = bits or self._bits(name)
        circle = "0, 0, 0"
        if f"{name}.circle" in self.known:
            circle = f"c->{name}_circle, c->{name}_turn, {list(axes).index('h')}"
        self._operand(f"p.{name}", memory, f"c->{name}_address", strides, bits, circle)

    def _bits(self, name: str) -> str:
        narrow = self.machine.fixed_bits
        return f"c->{name}_wide ? 32 : {narrow}" if f"{name}.wide" in self.known else str(narrow)

    def _operand(
        self,
        place: str,
        memory: str,
        address: str,
        strides: Sequence[str],
        bits: str,
        circle: str = "0, 0, 0",
    ) -> None:
        size = self.machine.memory(memory).bytes
        array = "0, 0" if memory == self.machine.main else f"{_array(memory)}, {size}"
        listed = ", ".join(strides) or "0"
        value = f'"{memory}", {array}, {address}, {{{listed}}}, {bits}, {circle}'
        self.line(f"{place} = (struct operand){{{value}}};")

    def _steps(self, primitive: Primitive, axes: Sequence[str]) -> None:
        self.line(f"p.steps.narrow = {self.machine.fixed_bits};")
        self.line(f"p.steps.count = {len(primitive.epilogue)};")
        for number, group in enumerate(primitive.epilogue):
            self._step(f"p.steps.step[{number}]", f"then{number + 1}", ("none", *group))
        if "residual.address" in self.known:
            strides = [f"c->residual_{axis}" for axis in axes]
            memory = memory_of(primitive, "residual")
            bits = self._bits("residual")
            self._operand("p.steps.residual", memory, "c->residual_address", strides, bits)

    def _step(self, place: str, name: str, choices: Sequence[str]) -> None:
        """A selector's function and its parameters."""
        listed = ", ".join(
            "FUNCTION_TABLE" if function in tables.FUNCTIONS else f"FUNCTION_{function.upper()}"
            # What fixed point lacks no instruction asks for.
            for function in (c if c == "none" or FUNCTIONS[c].on_fixed else "none" for c in choices)
        )
        array = name + "s"
        self.line(f"static const enum function {array}[] = {{{listed}}};")
        self.line(f"{place}.function = {array}[c->{name}];")
        for letter in "xy":
            if f"{name}.{letter}" in self.known:
                self.line(f"{place}.{letter} = c->{name}_{letter};")
        if f"{name}.table" in self.known:
            self._operand(f"{place}.table", TABLES, f"c->{name}_table", ("2",), "16")
