"""Kernels of the cube, from their tile programs."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.errors import refuse
from tilewright.targets.ascend.lowering.depthwise import Depthwise
from tilewright.targets.ascend.lowering.images import Convolutions
from tilewright.targets.ascend.lowering.matrices import Products
from tilewright.targets.ascend.lowering.walk import Forms, Homes, Walk
from tilewright.targets.ascend.machine import DaVinci
from tilewright.targets.ascend.program import LENGTH, Program, Tensor
from tilewright.tile.dialect import ComputeOp, ProgramOp

PARAMETERS = {"input": "a", "weight": "b", "bias": "bias", "residual": "d", "output": "c"}
"""Names of parameters by the roles of tensors."""

FORMS: dict[str, Callable[[ProgramOp, DaVinci, Homes], Forms]] = {
    "matmul": Products,
    "conv": Convolutions,
    "depthwise_conv": Depthwise,
}
"""Anchor -> the forms of its operands."""


def cube_kernel(
    program: ProgramOp, core: DaVinci, name: str, *, free: frozenset[str] = frozenset()
) -> Program:
    """The kernel of a tile program whose anchor is a product or a convolution, without flags.

    Parameters are the program's tensors, in its order; see ``PARAMETERS``. Of the dims ``free`` a
    launch has a length of its own; convolutions compute as many as the program has. Raises
    TilewrightError (``plan-capacity``, ``lower-operation``, ``lower-field``).
    """
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
    # Matrices of a batch are computed whole: each is of itself.
    products = isinstance(forms, Products)
    lengths = frozenset(dim for dim in free if products and forms.blocked(dim))
    walk = Walk(program, forms, tensors, homes, lengths)
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
