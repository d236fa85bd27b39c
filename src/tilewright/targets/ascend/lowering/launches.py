"""Launches of functions, to which kernels of a network are lowered, and their collection for a
package.

``Device`` collects functions, launches and constants of a whole package; ``Launches`` those of one
kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from tilewright.codegen.nest.value import Value as Count
from tilewright.errors import TilewrightError, refuse
from tilewright.ir.types import Array
from tilewright.planning.domain import Kernel, Operand
from tilewright.planning.layout import Layout
from tilewright.targets.ascend.command_tables import key_of, table_of
from tilewright.targets.ascend.emit import kernel_text, uses_length
from tilewright.targets.ascend.flags import synchronised
from tilewright.targets.ascend.isa import ELEMENTS, INDEX_ELEMENTS, WIDTHS
from tilewright.targets.ascend.machine import DaVinci
from tilewright.targets.ascend.program import Program
from tilewright.targets.ascend.sharing import simulate_blocks
from tilewright.targets.ascend.timing import Timed, Timing

SLACK = 32
"""Bytes after a tensor that kernels may touch."""

MOST_BLOCKS = 65_535
"""Blocks of a launch."""


class Argument(BaseModel):
    """The argument for a kernel's parameter."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    kind: Literal["operand", "constant", "result"]
    number: int = Field(ge=0)
    """The number among the kernel's operands; a constant's offset in ``constants.bin``."""
    bytes: int = Field(ge=0)
    """The bytes of the whole value, and those after it that kernels may touch."""


class Launch(Timing):
    """One launch of a function."""

    function: str
    arguments: tuple[Argument, ...]
    shorter: dict[int, Timing] = Field(default_factory=dict[int, Timing])
    """The cost at some lengths below the longest."""
    longest: int = Field(default=0, ge=0)
    """The most that the length is which follows the arguments; 0 where none does."""
    blocks: int = Field(default=1, ge=1, le=MOST_BLOCKS)
    """The number of blocks that run at once, each on a core of its own as far as there are
    cores."""

    def at(self, length: int) -> Timing:
        """Return the cost of a launch, at most: that at the next length that was simulated."""
        return self.shorter.get(self.simulated(length), self)

    def simulated(self, length: int) -> int:
        """The next length that was simulated; 0 for the longest, or where there is none."""
        known = [most for most in self.shorter if most >= length]
        return min(known) if known and self.longest else 0


class Length(BaseModel):
    """A size that every run has anew: the extent of some axes of the inputs and outputs."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    longest: int = Field(ge=1)
    """The size that the network was compiled for, and the most that a run may have."""
    inputs: dict[str, tuple[int, ...]]
    """The axes of each input."""
    outputs: dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Value:
    """A value in main memory."""

    argument: Argument
    element: str
    """``float`` or ``half``, as in C."""


@dataclass
class Device:
    """The functions, launches and constants that a package collects for the core."""

    core: DaVinci
    programs: dict[str, Program] = field(default_factory=dict[str, Program])
    """The program of each function."""
    launches: list[Launch] = field(default_factory=list[Launch])
    constants: bytearray = field(default_factory=bytearray)
    commands: dict[str, Array] = field(default_factory=dict[str, Array])
    """The timed commands of each function's first block (command_tables.py)."""
    functions: dict[str, Launch] = field(default_factory=dict[str, Launch])
    """Launches without arguments, by the functions' C without flags, under one name: kernels alike
    share a function."""

    def continued(self) -> Device:
        """A device with the same constants and functions, for further launches."""
        constants, functions = self.constants[:], dict(self.functions)
        return Device(self.core, constants=constants, functions=functions)


@dataclass
class Launches:
    """The launch of one kernel: its operands and its result."""

    device: Device
    kernel: Kernel
    known: Mapping[str, Array]
    """Operands that are constant."""
    numbers: Mapping[str, int]
    """The places of operands among the values that the kernel is given."""
    free: frozenset[str] = frozenset()
    """Dims of the kernel of which a launch has ``LENGTH`` indices, the first ones; what lies after
    them is of no value, and may be computed or not."""
    ends: Mapping[str, Count] = field(default_factory=dict[str, Count])
    """Number of indices that a launch has of each dim of an elementwise kernel (elements.py)."""
    longest: int = 0
    """The most that ``LENGTH`` is; 0 where a launch has none."""

    @property
    def core(self) -> DaVinci:
        """The core that runs them."""
        return self.device.core

    def refusal(self, reason: str, help: str = "") -> TilewrightError:
        """A refusal (``lower-operation``) of the kernel, to be raised; the host takes it then."""
        node = ", ".join(self.kernel.nodes) or self.kernel.symbol
        return refuse("lower-operation", reason, node, help)

    def operand(self, operand: Operand, *, indices: bool = False) -> Value:
        """An operand of the kernel, in main memory; ``indices`` are integers."""
        known = INDEX_ELEMENTS if indices else ELEMENTS
        return self._value(operand, "operand", self.numbers[operand.name], known)

    def result(self) -> Value:
        """Return the value of the kernel's result."""
        return self._value(self.kernel.output, "result", 0)

    def _value(
        self,
        operand: Operand,
        kind: Literal["operand", "result"],
        number: int,
        elements: Mapping[str, str] = ELEMENTS,
    ) -> Value:
        element = elements.get(operand.element)
        if element is None:
            raise self.refusal(f"{operand.name} has elements of {operand.element}")
        layout = Layout.parse(operand.layout, len(operand.shape))
        size = prod(layout.physical_shape(operand.shape)) * WIDTHS[element]
        argument = Argument(name=operand.name, kind=kind, number=number, bytes=size + SLACK)
        return Value(argument, element)

    def constant(self, data: Array) -> Value:
        """Bytes in the package."""
        at = len(self.device.constants)
        self.device.constants += data.tobytes() + bytes(SLACK + -(data.nbytes + SLACK) % 512)
        argument = Argument(name="", kind="constant", number=at, bytes=data.nbytes + SLACK)
        return Value(argument, ELEMENTS[data.dtype.name])

    def name(self, what: str) -> str:
        """A name for the next launch's function, unique in the package."""
        return f"{self.kernel.symbol}_{len(self.device.launches)}_{what}"

    def launch(self, program: Program, *values: Value) -> None:
        """Add a launch of a program without flags, whose tensors are these values, in order."""
        if program.longest and not uses_length(program):
            program = replace(program, longest=0)
        arguments = [
            value.argument.model_copy(update={"name": tensor.name})
            for tensor, value in zip(program.tensors, values, strict=True)
        ]
        launch = self._function(program).model_copy(update={"arguments": tuple(arguments)})
        self.device.launches.append(launch)

    def _function(self, program: Program) -> Launch:
        """A launch of the program with flags, without arguments: of a function that is there
        already where another kernel has the same."""
        known = self.device.functions
        key = _anonymous(program)
        if key not in known:
            whole = synchronised(program, events=self.device.core.events)
            self.device.programs[program.name] = whole
            shorter = {
                size: self._timed(whole, size)
                for part in (1, 2, 3)
                if (size := program.longest * part // 4)
            }
            known[key] = Launch(
                function=program.name,
                arguments=(),
                **dict(self._timed(whole)),
                shorter=shorter,
                longest=program.longest,
                blocks=program.blocks,
            )
        return known[key]

    def _timed(self, program: Program, length: int = 0) -> Timing:
        """The times of a program with flags, whose commands the device keeps; at a length, if it
        is not the longest."""
        commands: list[Timed] = []
        core, size = self.device.core, length or None
        timing = simulate_blocks(program, core, length=size, commands=commands)
        self.device.commands[key_of(program.name, length)] = table_of(commands)
        return timing


def _anonymous(program: Program) -> str:
    """The C of a program under a name that all have."""
    return kernel_text(replace(program, name="kernel", about=""))
