"""Kernels of the cube, from their tile programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilewright.errors import TilewrightError, refuse
from tilewright.targets.ascend.lowering.depthwise import Depthwise
from tilewright.targets.ascend.lowering.images import Convolutions
from tilewright.targets.ascend.lowering.matrices import Products
from tilewright.targets.ascend.lowering.walk import Forms, Homes, Walk
from tilewright.targets.ascend.machine import DaVinci
from tilewright.targets.ascend.program import Program, Tensor
from tilewright.tile.dialect import ComputeOp, ProgramOp

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
    for l1, cc, ub in ((2, 2, 2), (2, 1, 2), (2, 1, 1), (1, 1, 1))
)
"""How many slots buffers of a memory have at most: each takes an event of its pipes, of which there
are few, and what blocks add to tiles may leave less room than the planner has counted on."""


def cube_kernel(
    program: ProgramOp, core: DaVinci, name: str, *, slots: Sequence[Mapping[str, int]] = SLOTS
) -> Program:
    """The kernel of a tile program whose anchor is a product or a convolution, without flags.

    Parameters are the program's tensors, in its order; see ``PARAMETERS``. Of ``slots`` the first
    that fits is taken. Raises TilewrightError (``plan-capacity``, ``lower-operation``,
    ``lower-field``).
    """
    failed: TilewrightError | None = None
    for most in slots:
        try:
            return _kernel(program, core, name, most)
        except TilewrightError as error:
            if error.problems[0].code != "plan-capacity":
                raise
            failed = failed or error
    assert failed is not None
    raise failed


def _kernel(program: ProgramOp, core: DaVinci, name: str, most: Mapping[str, int]) -> Program:
    homes: Homes = {}
    tensors: dict[str, Tensor] = {}
    forms = _forms(program, core, homes)
    for symbol, op in program.tensors.items():
        role = op.role.data
        if role not in PARAMETERS:
            raise refuse("lower-operation", f"no kernel has {symbol}, {role}")
        names = [tensor.name for tensor in tensors.values()]
        plain = PARAMETERS[role]
        free = (plain, *(f"{plain}{number}" for number in range(2, len(names) + 3)))
        free_name = next(one for one in free if one not in names)
        written = role == "output"
        tensors[symbol] = Tensor(free_name, forms.main_bytes(op), written=written)
    walk = Walk(program, core, forms, tensors, homes, most)
    nodes = ", ".join(str(node) for node in program.get("nodes", ()))
    return walk.kernel(name, tuple(tensors), nodes)


def _forms(program: ProgramOp, core: DaVinci, homes: Homes) -> Forms:
    computes = [op for op in program.walk() if isinstance(op, ComputeOp)]
    operation = computes[0].stages[0].operation.data
    if len(computes) == 1 and operation in FORMS:
        return FORMS[operation](program, core, homes)
    raise refuse("lower-operation", f"no kernel of the cube computes {operation}")
