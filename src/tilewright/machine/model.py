"""The description of a machine: memories, moves, engines, primitives.

All of it is data. Variants are made with ``with_values``, never by copying a description.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, Field, model_validator

from tilewright.machine.c_functions import CFunction, CInterface
from tilewright.machine.checks import check
from tilewright.machine.fusions import Fusion
from tilewright.machine.host import Host
from tilewright.machine.matrix_layouts import matrix_layout
from tilewright.machine.part import CLOSED, MAX_VALUE
from tilewright.machine.paths import move_between, paths_from
from tilewright.machine.records import (
    MachineRecord,
    MemoryRecord,
    MoveRecord,
    OperandRecord,
    OwnMachine,
    OwnMemory,
    OwnMove,
    OwnOperand,
    OwnPrimitive,
    PrimitiveRecord,
)
from tilewright.machine.synchronisation import Synchronisation
from tilewright.numerics.element_types import (
    ELEMENTS,
    Accumulator,
    Element,
    ElementType,
    MachineElement,
)
from tilewright.numerics.operators import named

MAX_WORD = 1 << 12
"""Bytes of the longest instruction word."""

MATRICES = "..."
"""The prefix of layouts of the last two axes, for tensors of any rank."""

MIN_RATE = 1e-6
"""Least bandwidth, in bytes per cycle."""

Figure = Annotated[float, Field(ge=0, le=MAX_VALUE)] | str
"""A figure of energy or area: a number, or an expression of a memory's ``bytes`` and ``banks``."""

_Named = TypeVar("_Named", "Memory", "Engine", "Primitive", "Fusion")


class _Part(BaseModel):
    model_config = CLOSED


class Memory(_Part):
    """A memory of the machine, in ``bytes``. Main memory may have no limit of ``bytes``."""

    name: str
    bytes: int | None = Field(default=None, gt=0, le=MAX_VALUE)
    banks: int = Field(default=1, gt=0, le=MAX_VALUE)
    granule: int = Field(default=1, gt=0, le=MAX_VALUE)
    """Bytes to which addresses of buffers are aligned."""
    bytes_per_cycle: float | None = Field(default=None, ge=MIN_RATE, le=MAX_VALUE)
    """Bandwidth that all moves touching this memory share; None is no limit of its own."""
    reserved: int = Field(default=0, ge=0, le=MAX_VALUE)
    """Bytes at its end that buffers leave alone, for what primitives keep there for themselves."""
    holds: tuple[Literal["weights"], ...] = ()
    """``weights`` if the network's constants lie in it, and not in main memory."""
    resident: tuple[Literal["inputs", "results", "constants"], ...] = ()
    """The tensors that may stay in it, whole, from one kernel to others: ``inputs`` that several
    kernels read, ``results`` that no other kernel needs in main memory, ``constants`` that are
    loaded before the first kernel. Tiles of what stays are any boxes of it, or one contiguous block
    where moves to it are (``MoveRecord.block_by_block``)."""
    read_pj: Figure | None = None
    """Picojoules to read a byte (machine/energy.py), as to write one, below; None is not known."""
    write_pj: Figure | None = None
    leakage_mw: Figure | None = None
    """Milliwatts that it takes at rest."""
    area_mm2: Figure | None = None
    component: str | None = Field(default=None, min_length=1, max_length=200, pattern=r"^\S")
    """The component of the package hwcomponents that gives the figures that are not stated
    (machine/components.py)."""
    own: OwnMemory = MemoryRecord()
    """The record of keys that one family of targets alone has for a memory (records.py)."""

    @property
    def room(self) -> int | None:
        """Bytes that buffers may take; None without a limit."""
        return None if self.bytes is None else self.bytes - self.reserved


class Move(_Part):
    """A path along which an engine copies blocks from one memory to another."""

    name: str
    source: str
    target: str
    engine: str
    bytes_per_cycle: float = Field(ge=MIN_RATE, le=MAX_VALUE)
    latency: int = Field(default=0, ge=0, le=MAX_VALUE)
    """Cycles from the start of a transfer to its first byte."""
    in_flight: int = Field(default=1, gt=0, le=MAX_VALUE)
    """Transfers whose latencies may overlap; 1 makes every transfer wait for the one before."""
    transaction: int = Field(default=1, gt=0, le=MAX_VALUE)
    """Bytes to which both ends of every contiguous block are rounded."""
    efficiency: tuple[tuple[int, float], ...] = ()
    """(bytes of a contiguous block, fraction of the bandwidth), ascending; interpolated."""
    curves: dict[str, tuple[tuple[int, float], ...]] = {}
    """Efficiencies by name, where measurements differ; ``curve`` says which holds."""
    curve: str = ""
    transforms: tuple[Literal["img2col", "convert"], ...] = ()
    """Further work that the move does while it copies: ``img2col`` gathers the windows of an image;
    ``convert`` rounds sums to the machine's elements. A block counts as the bytes that arrive."""
    byte_pj: float | None = Field(default=None, ge=0, le=MAX_VALUE)
    """Picojoules to carry a byte from one memory to the other, beside reading and writing it."""
    c: CFunction | None = None
    """The C function of the move."""
    own: OwnMove = MoveRecord()
    """The record of keys that one family of targets alone has for a move (records.py)."""

    @model_validator(mode="after")
    def _chosen(self) -> Self:
        if self.curve in self.curves:
            # The only place that writes to a frozen part: its own efficiency follows the name.
            object.__setattr__(self, "efficiency", self.curves[self.curve])
        return self

    @property
    def prices_blocks(self) -> bool:
        """True if a box costs more the more contiguous blocks it has."""
        return self.transaction > 1 or bool(self.efficiency) or self.own.block_by_block()


class Engine(_Part):
    """An in-order queue of commands that runs beside the other engines."""

    name: str
    queue: int = Field(default=4, gt=0, le=MAX_VALUE)
    """Commands that wait or run in the engine at a time."""
    leakage_mw: float | None = Field(default=None, ge=0, le=MAX_VALUE)
    """Milliwatts that it takes at rest."""
    area_mm2: float | None = Field(default=None, ge=0, le=MAX_VALUE)


class Storage(_Part):
    """The memory of a primitive's operand, and how the machine rounds extents there."""

    memory: str
    multiples: dict[str, int] = {}
    """Dim -> granule to which the operand's extent along it is rounded up in this memory; times the
    dim's step where it has one: rows of an image that a stride of 2 reads come by twice as many."""
    element_bytes: int | None = Field(default=None, gt=0, le=MAX_WORD)
    """Bytes that an element takes on the chip, if they are not its own type's: a weight that comes
    as the diagonal of a block takes a row of it. Costs of moves do not count it."""
    padded: bool = False
    """True if elements lie apart as extents rounded up to ``multiples`` do; else side by side."""
    joined: str | None = None
    """Name of another role in whose move this one travels (one latency for both)."""
    layout: str = ""
    """Layout in main memory that the primitive takes of this operand (planning/layout.py): one of
    its rank (``NCHW16c``), else row-major; ``any`` for whatever the tensor has (all operands so
    marked share one); "" for what ``Machine.layout_of`` says of the role. Letters are logical axes:
    N C H W of images, O I H W of weights of rank 4, O I of a matrix product's ([co, ci],
    ``transpose_b``), N C of its rows, O of a bias. ``...NM16m16n`` is one of the last two axes of
    tensors of any rank from 2 on."""
    turned: bool = False
    """True if matrices (``...NM16m16n``) may also be stored with rows and columns exchanged."""
    elements: tuple[str, ...] = ()
    """Element types that the primitive takes of this operand, or writes, if not any."""
    gathered: bool = False
    """True if windows arrive gathered, an element for each position and tap
    (planning/space/windows.py)."""
    converted: bool = False
    """For the output: True if results are written in the accumulator's type, as sums are, and the
    first move after it rounds them (planning/space/conversions.py)."""
    fills: bool = False
    """True if instructions state the value of an image's padding, where that is another value than
    the operation's own (0 before a product)."""
    circular: bool = False
    """True if rows of the operand's images may be stored in a circular buffer (line buffer)."""
    at_store: bool = False
    """True if the first move of the result on its way out reads the operand, not the primitive: the
    engine of that move computes what follows a sum."""
    alternatives: tuple[str, ...] = ()
    """Memories in which the operand may lie instead, in kernels of several computes."""
    along: tuple[str, ...] = ()
    """Dims of which one must run along the elements that are contiguous in main memory; none is
    asked for where they all have one index."""
    own: OwnOperand = OperandRecord()
    """The record of keys that one family of targets alone has for an operand (records.py)."""

    @property
    def places(self) -> tuple[str, ...]:
        """The memories in which the operand may lie, the usual one first."""
        return (self.memory, *self.alternatives)


Operations = Annotated[tuple[str, ...], AfterValidator(named)]
"""Names of operations; a trait stands for all that have it."""


class Primitive(_Part):
    """An operation that the machine computes on one tile."""

    name: str
    operations: Operations
    """Anchor operations of the graph that it computes (``conv``, ``max_pool``)."""
    engine: str
    element: MachineElement | None = None
    """The type of the elements that it computes on. None: the machine's element (numbers.py)."""
    operands: dict[str, Storage]
    """Role (input, weight, bias, residual, output) -> storage. Main memory means: in place."""
    epilogue: tuple[Operations, ...] = ()
    """Map operations that it applies as it writes results, in order; of each group at most one."""
    epilogue_any: bool = False
    """Any chain of map operations can follow, in any order (a generated C loop)."""
    cycles: str
    """Expression of the tile's dims: cycles to compute one tile, machine rounding included."""
    peak: str
    """Expression of the dims: cycles at peak, without rounding; the physical bound."""
    issue: str = "0"
    """Expression of the tile's dims: cycles to issue a tile; planning counts it, bounds do not."""
    tile_pj: str | None = None
    """Expression of the tile's dims: picojoules to compute one tile, what it reads and writes of
    its operands' memories included."""
    reserved: dict[str, int] = {}
    """Memory -> bytes at its end that it keeps for itself, in place of what the memory reserves."""
    approximate: bool = False
    """True if it rounds otherwise than by the order of its sums (Winograd, pieces of bfloat16)."""
    limits: dict[str, int] = {}
    """Dim -> largest tile."""
    multiples: dict[str, int] = {}
    """Dim -> granule that compute is rounded to; tile sizes worth trying are its multiples."""
    blocks: tuple[str, ...] = ()
    """Dims of which each tile begins at a whole granule of ``multiples``: no sizes between granules
    are tried, nor any below the first."""
    whole: tuple[str, ...] = ()
    """Dims that a tile always covers whole."""
    c: CFunction | None = None
    """The C function of the primitive; the prefix of its functions where it has several
    instructions."""
    sums: bool = False
    """True if a result's buffer holds sums of the accumulator's width wherever a reduction has
    several steps; otherwise only where they are cut into several tiles."""
    sizes: Literal["run time", "fixed"] = "run time"
    """``run time`` if one instance takes all sizes; ``fixed`` if tiles at the edge need others."""
    extents: dict[str, tuple[int, int]] = {}
    """Dim -> least and greatest extent of the whole operation that the primitive serves.

    So a machine can have one primitive for first layers (``{"ci": (1, 4)}``, input ``NCHW``) and
    another for the rest. Of the primitives that serve an operation the first in the machine's
    order decides the layouts (assign-layouts); planners take those whose layouts agree.
    """
    parameters: dict[str, dict[str, tuple[float, ...]]] = {}
    """Operation, or step of the epilogue -> attribute -> the numbers that it may have; else any."""
    own: OwnPrimitive = PrimitiveRecord()
    """The record of keys that one family of targets alone has for a primitive (records.py)."""

    def serves(self, operation: str, extents: Mapping[str, int]) -> bool:
        """Return True if it computes the anchor operation when the dims have these extents."""
        return operation in self.operations and all(
            least <= extents.get(dim, 1) <= greatest
            for dim, (least, greatest) in self.extents.items()
        )

    def accepts(self, names: Sequence[str]) -> bool:
        """Return True if it applies these elementwise operations, in this order, to its results."""
        if self.epilogue_any:
            return True
        group = 0
        for name in names:
            later = [i for i, g in enumerate(self.epilogue) if i >= group and name in g]
            if not later:
                return False
            group = later[0] + 1
        return True

    def takes(self, role: str, element: str) -> bool:
        """Return True if it takes an operand of that role with elements of that type."""
        storage = self.operands.get(role)
        if storage is None:
            return True
        known = storage.elements
        if not known and self.element is not None:
            known = (self.element, ELEMENTS[self.element].accumulator or "")
        return not known or element in known


class Machine(_Part):
    """A processor, as planning, tile passes and simulation need to know it."""

    name: str
    description: str = ""
    clock_hz: float = Field(ge=1, le=MAX_VALUE)
    memories: tuple[Memory, ...]
    moves: tuple[Move, ...] = ()
    engines: tuple[Engine, ...]
    primitives: tuple[Primitive, ...]
    fusions: tuple[Fusion, ...] = ()
    main: str = "dram"
    """Name of the main memory."""
    element: MachineElement = "float32"
    """The type of the elements that primitives read, and write where a sum is complete."""
    accumulator: Accumulator = "float32"
    """The type of sums; the rest of a primitive's chain computes on it, too."""
    overflow: Literal["infinity", "saturate"] = "infinity"
    """The result of 16-bit floats beyond the largest of them."""
    synchronisation: Synchronisation = Synchronisation()
    """The means by which engines wait for one another."""
    cores: int = Field(default=1, gt=0, le=MAX_VALUE)
    """The number of cores. Where software manages the memories, each core has its own of each but
    the main memory, whose moves share the bandwidths of the description
    (planning/planners/cores.py)."""
    issue_cycles: int = Field(default=1, ge=0, le=MAX_VALUE)
    """Cycles to issue one command."""
    temporary_space: bool = False
    """True if the temporaries of one layer lie after all tensors between layers, in a space that
    layers share, and not among them (plan-memory)."""
    instruction_bytes: int = Field(default=64, ge=0, le=MAX_WORD)
    memory_growth: float = Field(default=1.15, ge=1, le=1e6)
    """Times the least memory of a network (its weights, and the most activations that live at once)
    that a run may take, where methods trade memory for time (choose-methods)."""
    leakage_mw: float | None = Field(default=None, ge=0, le=MAX_VALUE)
    """Milliwatts that the rest of it takes at rest, beside its memories and engines."""
    area_mm2: float | None = Field(default=None, ge=0, le=MAX_VALUE)
    """Square millimetres of the machine without its memories and engines."""
    figures_source: str = Field(default="", max_length=1000)
    """The source of its figures of energy and area, in words."""
    host: Host | None = None
    """The processor beside it. None: the host's time is measured where a simulation runs."""
    c: CInterface | None = None
    """The machine's C functions, if packages hold C that calls them; else None."""
    layouts: dict[str, str] = {}
    """Default layouts in main memory: ``activation`` (input, residual, output) and ``weight``.

    They hold for operands of their own rank (``NHWC`` for images) where a primitive's storage
    names no layout; other tensors are row-major.
    """
    own: OwnMachine = MachineRecord()
    """The record of keys that one family of targets alone has for a machine (records.py)."""

    @property
    def number(self) -> Element:
        """The element type that it computes on."""
        return ELEMENTS[self.element]

    @property
    def sum(self) -> Element:
        """The element type of its accumulators."""
        return ELEMENTS[self.accumulator]

    @property
    def fixed_bits(self) -> int:
        """Bits of the fixed-point values that it computes on; 0 where it computes on others."""
        return self.number.bits if self.number.kind == "fixed" else 0

    def element_of(self, element: ElementType, role: str) -> ElementType:
        """The element that an operand has once the machine's numbers are chosen."""
        if self.computes_as_given or not ELEMENTS[element].is_plain:
            return element
        return self.accumulator if role == "bias" else self.element

    @property
    def computes_as_given(self) -> bool:
        """True if it takes the model's own float32, so that a network needs no other number
        format."""
        return self.number.is_plain

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check(self)
        return self

    def with_values(self, values: Mapping[str, Any]) -> Machine:
        """Return a variant: ``{"memory.sb.bytes": 65536, "clock_hz": 1e9}``.

        Keys are a field of the machine, or KIND.NAME.FIELD, KIND ``memory``, ``move``, ``engine``
        or ``primitive`` (or ``.limits.DIM``, ``.multiples.DIM``). Text that reads as a number
        counts as one. Raises TilewrightError for an unknown key (``machine-key``, with the nearest)
        or an impossible value.
        """
        from tilewright.machine.values import with_values

        return with_values(self, values)

    def to_json(self) -> dict[str, Any]:
        """A JSON object that ``from_json`` reads."""
        return self.model_dump(mode="json")

    @staticmethod
    def from_json(value: dict[str, Any]) -> Machine:
        """Read what ``to_json`` wrote; raises TilewrightError on anything else."""
        from tilewright.machine.forms import machine_of

        return machine_of(value)

    def exact(self) -> Machine:
        """The machine without its approximate primitives."""
        kept = tuple(p for p in self.primitives if not p.approximate)
        return self.model_copy(update={"primitives": kept})

    def home(self, *, constant: bool) -> str:
        """Name of the memory that holds a network's constants, or its other values."""
        homes = (memory.name for memory in self.memories if constant and memory.holds)
        return next(homes, self.main)

    @property
    def homes(self) -> tuple[str, ...]:
        """The memories that hold a network's values, main memory first."""
        return tuple(dict.fromkeys((self.main, self.home(constant=True))))

    @property
    def caches(self) -> tuple[Memory, ...]:
        """The memories that hardware manages, as caches and registers: no move touches them."""
        moved = {self.main, *(end for move in self.moves for end in (move.source, move.target))}
        return tuple(memory for memory in self.memories if memory.name not in moved)

    def memory(self, name: str) -> Memory:
        """The memory of that name; raises KeyError."""
        return _named(self.memories, name)

    def engine(self, name: str) -> Engine:
        """The engine of that name; raises KeyError."""
        return _named(self.engines, name)

    def primitive(self, name: str) -> Primitive:
        """The primitive of that name; raises KeyError."""
        return _named(self.primitives, name)

    def fusion(self, name: str) -> Fusion:
        """The pattern of fusion of that name; raises KeyError."""
        return _named(self.fusions, name)

    def move(self, source: str, target: str) -> Move:
        """The move between two memories; raises KeyError."""
        return move_between(self.moves, source, target, self.name)

    def path(self, source: str, target: str) -> tuple[Move, ...]:
        """The moves that lead from one memory to another: the fewest, of as many the first in the
        machine's order; none for a memory and itself. Raises KeyError."""
        reached = paths_from(source, self.moves)
        if target not in reached:
            raise KeyError(f"{self.name} has no moves that lead from {source} to {target}")
        return reached[target]

    def layout_of(self, primitive: Primitive, role: str, rank: int) -> str:
        """Layout of a primitive's operand in main memory: a layout, ``any``, or "" (row-major).

        ``rank`` is that of the operand; letters of a layout count one axis each.
        """
        storage = primitive.operands.get(role)
        layout = storage.layout if storage is not None else ""
        if not layout and role != "bias":
            layout = self.layouts.get("weight" if role == "weight" else "activation", "")
        if layout.startswith(MATRICES):
            return matrix_layout(layout.removeprefix(MATRICES), rank)
        if layout != "any" and sum(letter.isupper() for letter in layout) != rank:
            return ""
        return layout

    def turned_layout(self, primitive: Primitive, role: str, rank: int) -> str:
        """The layout of a primitive's operand with rows and columns exchanged, where it takes that,
        too; "" otherwise."""
        storage = primitive.operands.get(role)
        if storage is None or not storage.turned or not storage.layout.startswith(MATRICES):
            return ""
        turn = str.maketrans("MNmn", "NMnm")
        return matrix_layout(storage.layout.removeprefix(MATRICES).translate(turn), rank)

    def memory_beside(self, primitive: Primitive, name: str) -> Memory:
        """A memory as a primitive leaves it to buffers; raises KeyError."""
        memory, kept_free = self.memory(name), primitive.reserved.get(name)
        return memory if kept_free is None else memory.model_copy(update={"reserved": kept_free})

    def primitives_for(self, operation: str) -> tuple[Primitive, ...]:
        """The primitives that compute an anchor operation."""
        return tuple(p for p in self.primitives if operation in p.operations)


def _named(parts: tuple[_Named, ...], name: str) -> _Named:
    for part in parts:
        if part.name == name:
            return part
    raise KeyError(name)
