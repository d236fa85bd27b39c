"""Kernels of the cube, from their tile programs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from tilewright.codegen.nest.value import Value
from tilewright.errors import refuse
from tilewright.targets.ascend.attention import WEIGHTS
from tilewright.targets.ascend.flags import proven_lengths
from tilewright.targets.ascend.lowering.depthwise import Depthwise
from tilewright.targets.ascend.lowering.images import Convolutions
from tilewright.targets.ascend.lowering.matrices import Products
from tilewright.targets.ascend.lowering.nest import padded_length
from tilewright.targets.ascend.lowering.pooled import Pools
from tilewright.targets.ascend.lowering.walk import PARAMETERS, Chain, Forms, Homes, Walk
from tilewright.targets.ascend.lowering.weights import Weights
from tilewright.targets.ascend.machine import DaVinci, machine_of
from tilewright.targets.ascend.program import LENGTH, Program, Tensor, at_length
from tilewright.tile.dialect import ComputeOp, ProgramOp
from tilewright.tile.handovers import remove
from tilewright.tile.passes import AssignEvents, Synchronise

Makes = Callable[[ProgramOp, ComputeOp, DaVinci, Homes], Forms]
"""The forms of a compute of a program."""

FORMS: dict[str, Makes] = {
    "matmul": Products,
    "conv": Convolutions,
    "depthwise_conv": Depthwise,
    "max_pool": Pools,
    "average_pool": Pools,
}
"""Operation of the cube, or on images -> the forms of its operands."""

READERS: dict[str, Makes] = {WEIGHTS: Weights}
"""Operation that reads the results of others on the chip alone -> the forms of its operands."""


def is_of_cube(anchors: Collection[str]) -> bool:
    """Return True if a kernel with these anchors has a product, a convolution or a pool."""
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

    def formed(compute: ComputeOp) -> Forms:
        operation = compute.stages[0].operation.data
        if (makes := (FORMS | READERS).get(operation)) is not None:
            return makes(program, compute, core, homes)
        raise refuse("lower-operation", f"no kernel of the cube computes {operation}")

    forms = Chain(program, formed)
    # Matrices of a batch are computed whole: each is of itself; so are chains with images.
    lengths: frozenset[str] = frozenset()
    products = [each for each in forms.all if isinstance(each, Products)]
    if len(products) == len(forms.all):
        lengths = frozenset(dim for dim in free if forms.block_of(dim) > 1)
        for product in products:
            product.exact |= dict.fromkeys(lengths.intersection(product.exact), LENGTH)
    ends = {dim: padded_length() if forms.block_of(dim) > 1 else LENGTH for dim in lengths}
    longest = max((program.extents[dim] for dim in lengths), default=0)
    return walked(program, forms, homes, core, name, ends, longest)


def walked(
    program: ProgramOp,
    forms: Chain,
    homes: Homes,
    core: DaVinci,
    name: str,
    ends: Mapping[str, Value],
    longest: int,
) -> Program:
    """The kernel of a tile program in some forms; ``ends`` says how many indices a launch has of
    some dims, by ``LENGTH``, which is ``longest`` at most."""
    tensors: dict[str, Tensor] = {}
    for symbol, op in program.tensors.items():
        role = op.role.data
        if role not in PARAMETERS:
            raise refuse("lower-operation", f"no kernel has {symbol}, {role}")
        # Loops are named like dims, of which one of channels is c, too.
        names = [*program.extents, *(tensor.name for tensor in tensors.values())]
        of = forms.tensors[symbol]
        plain, element = of.parameter(op)
        others = (plain, *(f"{plain}{number}" for number in range(2, len(names) + 3)))
        free_name = next(candidate for candidate in others if candidate not in names)
        written = role == "output"
        size = 0 if role == "internal" else of.main_bytes(op)
        tensors[symbol] = Tensor(free_name, size, element, written=written)
    if ends:
        _order_lengths(program, ends, longest, core)
    walk = Walk(program, forms, tensors, homes, ends, longest)
    nodes = ", ".join(str(node) for node in program.get("nodes", ()))
    order = tuple(name for name, op in program.tensors.items() if op.role.data != "internal")
    return walk.kernel(name, order, nodes)


def _order_lengths(
    program: ProgramOp, ends: Mapping[str, Value], longest: int, core: DaVinci
) -> None:
    """Give a program the signals and waits that it needs at every length."""
    machine = machine_of(core)
    remove(program)
    Synchronise(fewest=False, every=True).run(program, machine)
    shorter = tuple(
        {dim: min(at_length(end, length), program.extents[dim]) for dim, end in ends.items()}
        for length in proven_lengths(longest)
    )
    AssignEvents(shorter).run(program, machine)
