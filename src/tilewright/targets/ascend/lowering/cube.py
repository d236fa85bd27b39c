"""Kernels of the cube, from their tile programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from tilewright.errors import TilewrightError, refuse
from tilewright.targets.ascend.lowering.depthwise import Depthwise
from tilewright.targets.ascend.lowering.images import Convolutions
from tilewright.targets.ascend.lowering.matrices import Products
from tilewright.targets.ascend.lowering.walk import Forms, Homes, Walk, shared_loops
from tilewright.targets.ascend.machine import DaVinci
from tilewright.targets.ascend.program import LENGTH, Program, Tensor
from tilewright.tile.dialect import BufferOp, ComputeOp, ProgramOp, enclosing_loops
from tilewright.tile.implied import visits

PARAMETERS = {"input": "a", "weight": "b", "bias": "bias", "residual": "d", "output": "c"}
"""Names of parameters by the roles of tensors."""

FORMS: dict[str, Callable[[ProgramOp, DaVinci, Homes], Forms]] = {
    "matmul": Products,
    "conv": Convolutions,
    "depthwise_conv": Depthwise,
}
"""Anchor -> the forms of its operands."""

SLOTS: tuple[dict[str, int], ...] = tuple(
    {"cbuf": l1, "ca": 2, "cb": 2, "cc": cc, "ub": ub}
    for l1, cc, ub in ((3, 2, 2), (2, 2, 2), (2, 1, 2), (2, 1, 1), (1, 1, 1))
)
"""The greatest number of slots of a memory's buffers: block padding of tiles may leave less room
than the planner has counted on."""


def slots_of(program: ProgramOp, most: Mapping[str, int], events: int) -> dict[str, int]:
    """The slots of each buffer by its name, at most so many in a memory (``most``).

    A slot that is filled again from main memory takes an event, of which a pipe has few to hand
    slots back to MTE2. What is small may have more: loads behind it wait for its slots, too.
    """
    ops = [op for op in program.walk() if isinstance(op, BufferOp)]
    shared = set(shared_loops(program))

    def fills(op: BufferOp) -> int:
        """Return how often a block fills a buffer."""
        around = [loop for loop in enclosing_loops(op) if loop in shared]
        return visits(op) // prod(-(-loop.upper_bound // loop.step_size) for loop in around)

    slots = {op.symbol.data: min(op.slot_count, most.get(op.memory, op.slot_count)) for op in ops}
    loaded = [op for op in ops if op.get("role") != "output" and op.memory in ("cbuf", "ub")]
    if most.get("ub", 1) > 1:
        slots |= {op.symbol.data: op.slot_count for op in loaded if op.memory == "ub"}
    for memory in ("cbuf", "ub") if most else ():
        again = [op for op in loaded if op.memory == memory]
        while True:
            taken = [op for op in again if fills(op) > slots[op.symbol.data]]
            if sum(slots[op.symbol.data] for op in taken) <= events:
                break
            largest = max(taken, key=lambda op: slots[op.symbol.data])
            slots[largest.symbol.data] -= 1
    return slots


def cube_kernel(
    program: ProgramOp,
    core: DaVinci,
    name: str,
    *,
    slots: Sequence[Mapping[str, int]] = SLOTS,
    free: frozenset[str] = frozenset(),
) -> Program:
    """The kernel of a tile program whose anchor is a product or a convolution, without flags.

    Parameters are the program's tensors, in its order; see ``PARAMETERS``. Of ``slots`` the first
    that fits is taken. Of the dims ``free`` a launch has a length of its own; convolutions compute
    as many as the program has. Raises TilewrightError (``plan-capacity``, ``lower-operation``,
    ``lower-field``).
    """
    failed: TilewrightError | None = None
    for most in slots:
        try:
            return _kernel(program, core, name, most, free)
        except TilewrightError as error:
            if error.problems[0].code != "plan-capacity":
                raise
            failed = failed or error
    assert failed is not None
    raise failed


def _kernel(
    program: ProgramOp, core: DaVinci, name: str, most: Mapping[str, int], free: frozenset[str]
) -> Program:
    homes: Homes = {}
    tensors: dict[str, Tensor] = {}
    forms = _forms(program, core, homes)
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
        tensors[symbol] = Tensor(free_name, forms.main_bytes(op), written=written)
    slots = slots_of(program, most, core.events)
    # Matrices of a batch are computed whole: each is of itself.
    products = isinstance(forms, Products)
    lengths = frozenset(dim for dim in free if products and forms.blocked(dim))
    walk = Walk(program, core, forms, tensors, homes, slots, lengths)
    if isinstance(forms, Products) and forms.summed in lengths:
        forms.exact[forms.summed] = LENGTH
    nodes = ", ".join(str(node) for node in program.get("nodes", ()))
    return walk.kernel(name, tuple(tensors), nodes)


def _forms(program: ProgramOp, core: DaVinci, homes: Homes) -> Forms:
    computes = [op for op in program.walk() if isinstance(op, ComputeOp)]
    operation = computes[0].stages[0].operation.data
    if len(computes) == 1 and operation in FORMS:
        return FORMS[operation](program, core, homes)
    raise refuse("lower-operation", f"no kernel of the cube computes {operation}")
