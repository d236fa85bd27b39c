"""Kernels of the cube, from their tile programs."""

from __future__ import annotations

from collections.abc import Callable, Collection

from tilewright.errors import refuse
from tilewright.targets.ascend.attention import WEIGHTS
from tilewright.targets.ascend.flags import proven_lengths
from tilewright.targets.ascend.lowering.depthwise import Depthwise
from tilewright.targets.ascend.lowering.images import Convolutions
from tilewright.targets.ascend.lowering.matrices import Products
from tilewright.targets.ascend.lowering.nest import Spans
from tilewright.targets.ascend.lowering.pooled import Pools
from tilewright.targets.ascend.lowering.walk import Forms, Home, Homes, Walk
from tilewright.targets.ascend.lowering.weights import Weights
from tilewright.targets.ascend.machine import DaVinci, machine_of
from tilewright.targets.ascend.program import LENGTH, Buffer, Loop, Program, Statement, Tensor
from tilewright.tile.dialect import BufferOp, ComputeOp, ProgramOp, TensorOp
from tilewright.tile.handovers import remove
from tilewright.tile.passes import AssignEvents, Synchronise

PARAMETERS = {
    "input": "a",
    "weight": "b",
    "bias": "bias",
    "residual": "d",
    "output": "c",
    "internal": "t",
}
"""Names of parameters by the roles of tensors, and of what stays on the chip."""

Makes = Callable[[ProgramOp, ComputeOp, DaVinci, Homes], Forms]
"""The forms of a compute of a program."""

FORMS: dict[str, Makes] = {
    "matmul": Products,
    "conv": Convolutions,
    "depthwise_conv": Depthwise,
}
"""Operation of the cube -> the forms of its operands."""

READERS: dict[str, Makes] = {"max_pool": Pools, WEIGHTS: Weights}
"""The same of what reads the results of others on the chip alone."""


class Chain:
    """The forms of a program's computes: those of an operand follow from the compute that reads or
    writes it, those of what one leaves to another from the one that reads it; see ``Forms``."""

    def __init__(self, program: ProgramOp, core: DaVinci, homes: Homes) -> None:
        self.computes: dict[ComputeOp, Forms] = {}
        self.buffers: dict[BufferOp, Forms] = {}
        self.tensors: dict[str, Forms] = {}
        """By name; of what stays on the chip, none."""
        for op in program.walk():
            if isinstance(op, ComputeOp):
                self.computes[op] = _forms(program, op, core, homes)
        for op, forms in self.computes.items():
            read = [value for stage in op.stages for value in stage.inputs]
            for value in (op.output, *read):  # A reader's forms last.
                buffer = value.owner if isinstance(value.owner, BufferOp) else None
                while buffer is not None:
                    self.buffers[buffer] = forms
                    self.tensors[buffer.tensor_op.symbol.data] = forms
                    buffer = buffer.outer_buffer

    @property
    def all(self) -> list[Forms]:
        """The forms of all computes, in the program's order."""
        return list(self.computes.values())

    @property
    def before(self) -> list[Statement]:
        """Statements in front of all loops."""
        return [statement for forms in self.all for statement in forms.before]

    @property
    def work(self) -> list[Buffer]:
        """Buffers of UB behind the program's."""
        return [buffer for forms in self.all for buffer in forms.work]

    def extents(self) -> dict[str, int]:
        """Extents of all dims; those of blocks of two kinds are whole blocks of both."""
        extents: dict[str, int] = {}
        for forms in self.all:
            for dim, extent in forms.extents().items():
                extents[dim] = max(extent, extents.get(dim, 0))
        return extents

    def block_of(self, dim: str) -> int:
        """Indices of a block along a dim."""
        return max(forms.block_of(dim) for forms in self.all)

    def element(self, op: BufferOp) -> str:
        """The element type of a buffer."""
        return self.buffers[op].element(op)

    def bytes(self, op: BufferOp, spans: Spans) -> int:
        """Bytes of one slot of a buffer."""
        return self.buffers[op].bytes(op, spans)

    def main_bytes(self, op: TensorOp) -> int:
        """Bytes of a tensor in main memory."""
        return self.tensors[op.symbol.data].main_bytes(op)

    def load(self, home: Home, outer: Home | Tensor) -> list[Statement]:
        """Return the statements that fill a buffer."""
        return self.buffers[home.op].load(home, outer)

    def store(self, home: Home, outer: Home | Tensor) -> list[Statement]:
        """Return the statements that store a result from a buffer."""
        return self.buffers[home.op].store(home, outer)

    def compute(self, op: ComputeOp, spans: Spans, loops: list[Loop]) -> list[Statement]:
        """The product of tiles."""
        return self.computes[op].compute(op, spans, loops)


def is_of_cube(anchors: Collection[str]) -> bool:
    """Return True if a kernel with these anchors comes from its tile program: the cube computes a
    product or a convolution of it."""
    return not FORMS.keys().isdisjoint(anchors)


def cube_kernel(
    program: ProgramOp, core: DaVinci, name: str, *, free: frozenset[str] = frozenset()
) -> Program:
    """The kernel of a tile program of products and convolutions, without flags.

    Parameters are the program's tensors, in its order; see ``PARAMETERS``. Of the dims ``free`` a
    launch has a length of its own; convolutions compute as many as the program has. Raises
    TilewrightError (``plan-capacity``, ``lower-operation``, ``lower-field``).
    """
    if free:
        program = program.clone()
    homes: Homes = {}
    tensors: dict[str, Tensor] = {}
    forms = Chain(program, core, homes)
    for symbol, op in program.tensors.items():
        role = op.role.data
        if role not in PARAMETERS:
            raise refuse("lower-operation", f"no kernel has {symbol}, {role}")
        # Loops are named like dims, of which one of channels is c, too.
        names = [*program.extents, *(tensor.name for tensor in tensors.values())]
        plain = PARAMETERS[role]
        others = (plain, *(f"{plain}{number}" for number in range(2, len(names) + 3)))
        free_name = next(candidate for candidate in others if candidate not in names)
        written = role == "output"
        size = 0 if role == "internal" else forms.main_bytes(op)
        tensors[symbol] = Tensor(free_name, size, written=written)
    # Matrices of a batch are computed whole: each is of itself; so are chains with images.
    lengths: frozenset[str] = frozenset()
    products = [each for each in forms.all if isinstance(each, Products)]
    if len(products) == len(forms.all):
        lengths = frozenset(dim for dim in free if forms.block_of(dim) > 1)
        for product in products:
            product.exact |= dict.fromkeys(lengths.intersection(product.exact), LENGTH)
    if lengths:
        _order_lengths(program, lengths, core)
    walk = Walk(program, forms, tensors, homes, lengths)
    nodes = ", ".join(str(node) for node in program.get("nodes", ()))
    order = tuple(name for name, op in program.tensors.items() if op.role.data != "internal")
    return walk.kernel(name, order, nodes)


def _order_lengths(program: ProgramOp, dims: frozenset[str], core: DaVinci) -> None:
    """Give a program the signals and waits that it needs at every length of some dims."""
    machine = machine_of(core)
    longest = max(program.extents[dim] for dim in dims)
    remove(program)
    Synchronise(fewest=False, every=True).run(program, machine)
    shorter = tuple(dict.fromkeys(dims, length) for length in proven_lengths(longest))
    AssignEvents(shorter).run(program, machine)


def _forms(program: ProgramOp, compute: ComputeOp, core: DaVinci, homes: Homes) -> Forms:
    operation = compute.stages[0].operation.data
    if (makes := (FORMS | READERS).get(operation)) is not None:
        return makes(program, compute, core, homes)
    raise refuse("lower-operation", f"no kernel of the cube computes {operation}")
