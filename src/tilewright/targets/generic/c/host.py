"""The machine's C functions for the host: records become structures of shim/families.h."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files

from tilewright.codegen.c.source import Writer
from tilewright.machine import Machine, Move, Primitive
from tilewright.numerics import tables
from tilewright.numerics.element_types import Kind
from tilewright.system.template import filled
from tilewright.targets.generic.c.called import called, called_text
from tilewright.targets.generic.c.records import (
    TEMPLATES,
    c_of,
    commands_of,
    function_of,
    members,
    names_of,
    result_of,
)
from tilewright.targets.generic.families.gather import IMAGE, POINTS
from tilewright.targets.generic.families.points import AXES as POINT_AXES
from tilewright.targets.generic.families.product import TAPS
from tilewright.targets.generic.families.sparse import lanes_of
from tilewright.targets.generic.functions import FUNCTIONS, MOVING, TABLES
from tilewright.targets.generic.isa import Instruction, InstructionSet
from tilewright.targets.generic.operands import CODES, memory_of

_SIZES = {
    "product": ("n", "g", "co", "oh", "ow", "ci", "kh", "kw"),
    "depthwise": ("n", "c", "oh", "ow", "kh", "kw"),
    "pool": ("n", "c", "oh", "ow", "kh", "kw"),
    "sparse": ("n", "co", "oh", "ow", "ci", "kh", "kw", "blocks", "segments", "words"),
    "softmax": ("axis", "point_in", "point_out"),
    "layer_norm": ("axis", "epsilon", "centred", "others"),
    "lrn": ("n", "c", "h", "w", "j", "point_in", "point_out"),
}
"""Members of a structure that are those of the record."""

_LINES = (*POINT_AXES, "axis")
_OUT = {
    "product": ("n", "g", "h", "w", "c"),
    "depthwise": ("n", "h", "w", "c"),
    "pool": ("n", "h", "w", "c"),
    "sparse": ("n", "h", "w", "c"),
    "points": POINT_AXES,
    "softmax": _LINES,
    "layer_norm": _LINES,
    "lrn": ("n", "c", "h", "w"),
}
_WEIGHT = {
    "product": ("g", "co", "kh", "kw", "ci"),
    "depthwise": ("c", "kh", "kw"),
    "sparse": ("block", "segment"),
    "layer_norm": ("axis",),
}
_BIAS = {"product": _OUT["product"], "layer_norm": ("axis",)}
"""Axes of the bias where they are not the channels alone."""

_ELEMENTS: Mapping[str, str] = {
    "fixed8": "INT8",
    "int8": "INT8",
    "fixed16": "INT16",
    "int16": "INT16",
    "fixed32": "INT32",
    "int32": "INT32",
    "float16": "FLOAT16",
    "bfloat16": "BFLOAT16",
    "float32": "FLOAT32",
}

_REAL_PARAMETERS = {"minimum": "low", "maximum": "high"}
"""Members of a step for parameters of floats, where integers have others of the name."""

POISON = 0xA5
"""The byte that memories begin with, unless who runs the C sets another one."""


def shim_texts(instructions: InstructionSet) -> dict[str, str]:
    """The files of a machine's functions on the host, by their names."""
    texts = {f"{c_of(instructions.machine).prefix}_host.c": host_text(instructions)}
    for package in ("tilewright.codegen.c", "tilewright.targets.generic.c"):
        for file in sorted(files(package).joinpath("shim").iterdir(), key=lambda path: path.name):
            if file.name.endswith((".c", ".h")):
                texts[file.name] = file.read_text()
    return texts


def host_text(instructions: InstructionSet) -> str:
    """The C file of a machine's functions on the host."""
    machine = instructions.machine
    names = names_of(machine)
    memories = {name: _array(name) for name in _memories(machine)}
    keeping = [m.name for m in machine.memories if "results" in m.resident]
    commands = commands_of(instructions)
    functions = [_function(i, machine, instructions.machines[i.opcode]) for i in commands]
    return filled(
        TEMPLATES / "host.c.in",
        **names,
        memories="\n".join(
            f"static uint8_t {array}[{machine.memory(name).bytes}];"
            for name, array in memories.items()
        ),
        coded=f"static const enum element coded[] = {{{coded_elements()}}};\n"
        if any(name.endswith(".element") for i in commands for name in i.format.by_name)
        else "",
        called=called_text(
            name
            for i in commands
            if instructions.machines[i.opcode].number.kind == "float"
            for field in i.format.fields
            for name in field.choices
            if name in tables.FUNCTIONS
        ),
        functions="\n".join(functions).rstrip("\n"),
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


def _function(instruction: Instruction, machine: Machine, seen: Machine) -> str:
    """The function that starts a command, and the one that runs it."""
    writer = Writer()
    name, family = function_of(instruction), instruction.family.name
    result = result_of(c_of(machine))
    gives = "" if result == "void" else "return "
    with writer.block(f"static void run_{name}(const void *record)"):
        writer.line(f"const struct {name} *c = record;")
        writer.line(f"struct {family} p = {{0}};")
        _Conversion(writer, instruction, seen).write()
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
        """The machine with the number formats of the instruction's primitive."""
        self.known = instruction.format.by_name
        self.kind: Kind = machine.number.kind
        self.narrow, self.sum = _element(machine.element), _element(machine.accumulator)

    def write(self) -> None:
        """Write the C statements for one instruction, by its family."""
        family, move = self.instruction.family.name, self.instruction.move
        if move is not None:
            self._move(move, family)
            return
        primitive = self.instruction.primitive
        assert primitive is not None
        self._copies(*_SIZES.get(family, ()))
        if family in ("points", "softmax", "layer_norm"):
            self._list("size", POINT_AXES)
        if "row" in self.known:
            self._window()
        elif family == "product":
            self.line("p.gathered = 1;")
        if family == "pool":
            self.line("p.average = c->function == 1;")
            self._copies("window_h", "window_w", "window_row", "window_column")
            self._copies(*(f"count_{name}" for name in ("top", "bottom", "left", "right")))
        if family == "lrn":
            self._power()
        if family == "sparse":
            self.line(f"p.lanes = {lanes_of(primitive)};")
        self._operands(primitive, family)
        self._copies(*(name for name in ("first", "last") if name in self.known))
        if family == "points":
            self._step("p.function", "function")
        self._steps(primitive, _OUT[family])

    def _copies(self, *names: str) -> None:
        """Members that both structures have."""
        known = {name.replace(".", "_") for name in self.known}
        for name in names:
            if name in known:
                self.line(f"p.{name} = c->{name};")

    def _list(self, member: str, names: Sequence[str]) -> None:
        """A member that is an array of the record's."""
        for number, name in enumerate(names):
            self.line(f"p.{member}[{number}] = c->{name};")

    def _window(self) -> None:
        members = [f"{name}_{axis}" for axis in "hw" for name in ("stride", "dilation")]
        fill = ("fill",) if "fill" in self.known else ()
        for name in (*members, "row", "rows", "column", "columns", *fill):
            self.line(f"p.window.{name} = c->{name};")

    def _power(self) -> None:
        """The parameters of a local response normalisation."""
        if self.kind == "fixed":
            self._copies("alpha", "bias")
            self._operand("p.table", TABLES, "c->table", (), "ELEMENT_INT16")
            return
        for name in ("alpha", "bias"):
            self.line(f"p.real_{name} = c->{name};")
        self._copies("beta")

    def _move(self, move: Move, family: str) -> None:
        """A transfer, a conversion of results, or a gather of windows."""
        axes = {end: [f"_stride{axis}" for axis in range(4)] for end in ("source", "target")}
        kinds = {"source": "ELEMENT_INT8", "target": "ELEMENT_INT8"}
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
            self._numbers("p.numbers")
            kinds = {"source": self.sum, "target": self.narrow}
        else:
            self._copies("element")
        if family == "transfer":
            self._copies("extra_bytes")
        elif family == "img2col":
            self._window()
        for end, memory in (("source", move.source), ("target", move.target)):
            strides = [f"c->{end}{axis}" for axis in axes[end]]
            self._operand(f"p.{end}", memory, f"c->{end}_address", strides, kinds[end])
            if family == "transfer":
                self._operand(f"p.extra_{end}", memory, f"c->extra_{end}", (), kinds[end])

    def _numbers(self, place: str) -> None:
        saturate = int(self.machine.overflow == "saturate")
        listed = f"KIND_{self.kind.upper()}, {self.narrow}, {self.sum}, {saturate}"
        self.line(f"{place} = (struct numbers){{{listed}}};")

    def _operands(self, primitive: Primitive, family: str) -> None:
        out = _OUT[family]
        taps = family == "product" and primitive.operands["input"].gathered
        self._named("input", memory_of(primitive, "input"), TAPS if taps else out)
        if family in _WEIGHT and "weight.address" in self.known:
            self._named("weight", memory_of(primitive, "weight"), _WEIGHT[family])
        if "bias.address" in self.known:
            if "bias" in self.known:
                self.line("p.has_bias = c->bias;")
            element = self.narrow if family == "layer_norm" else self.sum
            axes = _BIAS.get(family, ("c",))
            self._named("bias", memory_of(primitive, "bias"), axes, element)
        if "other.address" in self.known:
            self._named("other", memory_of(primitive, "input"), out)
        self._named("output", memory_of(primitive, "output"), out)

    def _named(self, name: str, memory: str, axes: Sequence[str], element: str = "") -> None:
        strides = [f"c->{name}_{axis}" for axis in axes]
        circle = "0, 0, 0"
        if f"{name}.circle" in self.known:
            circle = f"c->{name}_circle, c->{name}_turn, {list(axes).index('h')}"
        element = element or self._element_of(name)
        self._operand(f"p.{name}", memory, f"c->{name}_address", strides, element, circle)

    def _element_of(self, name: str) -> str:
        """An expression of an operand's element type."""
        if f"{name}.element" in self.known:
            return f"coded[c->{name}_element]"
        return f"c->{name}_wide ? {self.sum} : {self.narrow}" if self._widens(name) else self.narrow

    def _widens(self, name: str) -> bool:
        return f"{name}.wide" in self.known

    def _operand(
        self,
        place: str,
        memory: str,
        address: str,
        strides: Sequence[str],
        element: str,
        circle: str = "0, 0, 0",
    ) -> None:
        size = self.machine.memory(memory).bytes
        array = "0, 0" if memory == self.machine.main else f"{_array(memory)}, {size}"
        listed = ", ".join(strides) or "0"
        value = f'"{memory}", {array}, {address}, {{{listed}}}, {element}, {circle}'
        self.line(f"{place} = (struct operand){{{value}}};")

    def _steps(self, primitive: Primitive, axes: Sequence[str]) -> None:
        self._numbers("p.steps.numbers")
        coded = "output.element" in self.known
        self.line(f"p.steps.to = {'coded[c->output_element]' if coded else self.narrow};")
        self.line(f"p.steps.count = {len(primitive.epilogue)};")
        for number in range(len(primitive.epilogue)):
            self._step(f"p.steps.step[{number}]", f"then{number + 1}")
        if "residual.address" in self.known:
            strides = [f"c->residual_{axis}" for axis in axes]
            memory, element = memory_of(primitive, "residual"), self._element_of("residual")
            self._operand("p.steps.residual", memory, "c->residual_address", strides, element)

    def _step(self, place: str, name: str) -> None:
        """A selector's function and its parameters."""
        choices = self.known[name].choices
        listed = ", ".join(self._constant(choice) for choice in choices)
        self.line(f"static const enum function {name}s[] = {{{listed}}};")
        self.line(f"{place}.function = {name}s[c->{name}];")
        if "FUNCTION_CALLED" in listed:
            calls = ", ".join(
                called(choice) if self._constant(choice) == "FUNCTION_CALLED" else "0"
                for choice in choices
            )
            head = f"static float (*const {name}_calls[])(float, float, float)"
            self.line(f"{head} = {{{calls}}};")
            self.line(f"{place}.call = {name}_calls[c->{name}];")
        if self.kind == "fixed":
            for letter in "xy":
                if f"{name}.{letter}" in self.known:
                    self.line(f"{place}.{letter} = c->{name}_{letter};")
        for member in members(self.instruction, self.kind):
            if member.selector == name:
                parameter = member.parameter
                if choices[member.choice] == "clip":
                    parameter = _REAL_PARAMETERS[parameter]
                chosen = f"if (c->{name} == {member.choice})"
                self.line(f"{chosen} {place}.{parameter} = c->{member.name};")
        if f"{name}.table" in self.known:
            element = "ELEMENT_INT16" if self.kind == "fixed" else self.narrow
            self._operand(f"{place}.table", TABLES, f"c->{name}_table", ("2",), element)

    def _constant(self, function: str) -> str:
        """The constant for a function; NONE for those that no instruction asks for."""
        if function == "none":
            return "FUNCTION_NONE"
        if function in MOVING:
            return "FUNCTION_TRANSPOSE"
        if function in tables.FUNCTIONS:
            kinds = {"fixed": "FUNCTION_TABLE", "float": "FUNCTION_CALLED"}
            return kinds.get(self.kind, "FUNCTION_NONE")
        if self.kind == "fixed" and not FUNCTIONS[function].on_fixed:
            return "FUNCTION_NONE"
        return f"FUNCTION_{function.upper()}"


def _element(name: str) -> str:
    """The constant of an element type."""
    return f"ELEMENT_{_ELEMENTS[name]}"


def coded_elements() -> str:
    """The element types by the numbers that fields have for them."""
    return ", ".join(f"ELEMENT_{_ELEMENTS.get(name, 'NONE')}" for name in CODES)
