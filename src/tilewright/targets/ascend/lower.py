"""A kernel of a network as launches: a product or a convolution from its tile program, other
operations stage by stage.

Values lie in main memory in half precision, in the layouts that the network's tensors have. What no
kernel here computes is refused, with a reason, and falls to the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod

from tilewright.codegen.program.interface import CompiledKernel
from tilewright.errors import TilewrightError
from tilewright.ir.types import Array
from tilewright.planning.chains.plans import kernels_of
from tilewright.planning.domain import Kernel, Stage
from tilewright.targets.ascend.elements import NORMAL, WALKED, ended
from tilewright.targets.ascend.kernels.folds import FOLD_OF
from tilewright.targets.ascend.lowering.cube import is_of_cube
from tilewright.targets.ascend.lowering.folded import folded
from tilewright.targets.ascend.lowering.launches import Device, Launches, Value
from tilewright.targets.ascend.lowering.moves import move, pad, relay
from tilewright.targets.ascend.lowering.normal import normal
from tilewright.targets.ascend.lowering.points import points, rows_by_index
from tilewright.targets.ascend.lowering.products import product
from tilewright.targets.ascend.lowering.quantised import quantised
from tilewright.tile.dialect import programs_of, shared_loops

StageLowering = Callable[[Launches, Stage, Sequence[Value], Value | None], Value]
"""Adds a stage's launches, from its operands in order (what an earlier stage left, or an operand of
the kernel) to where the result is to go, of any shape, element and layout; raises
``launches.refusal(reason)`` for what it has no kernel for. Where the target is None it takes a
buffer of its choice, and says with its result what that is."""

STAGES: dict[str, StageLowering] = {
    **dict.fromkeys(("quantise_linear", "dequantise_linear"), quantised),
    **dict.fromkeys(("transpose", "slice"), move),
    "pad": pad,
    "convert_layout": relay,
    "gather": rows_by_index,
}
"""Operation -> what lowers it. Products (products.py) are anchors with stages of their own."""


WALKS = {**dict.fromkeys(NORMAL, normal), **dict.fromkeys(FOLD_OF, folded)}
"""Anchor -> what lowers its tile program, where it is not elementwise."""

PARTS = 4
"""The number of parts into which UB goes for the tiles of several cores."""


def lower_kernel(
    device: Device,
    compiled: CompiledKernel,
    known: Mapping[str, Array],
    free: frozenset[str] = frozenset(),
    numbers: Mapping[str, int] | None = None,
    original: Kernel | None = None,
) -> None:
    """Add a kernel's launches; ``known`` has its operands that are constant, ``free`` the dims of
    which a launch has a length of its own (see ``Launches.free``), ``numbers`` the places of
    operands among the network's values that the kernel is given: by default their own order.
    ``original`` is the kernel with the dims of which ``free`` speaks.

    Raises TilewrightError (``lower-operation`` and others) for what it cannot say, and adds
    nothing then.
    """
    assert compiled.schedule is not None
    assert compiled.program is not None
    (program,) = programs_of(compiled.program)
    grid = {loop.dim.data: loop.step_size for loop in shared_loops(program)}
    if numbers is None:
        numbers = {operand.name: place for place, operand in enumerate(compiled.kernel.inputs)}
    mine = device.continued()
    launches = Launches(mine, compiled.kernel, compiled.schedule, known, numbers, free, grid=grid)
    if is_of_cube([each.anchor.operation for each in kernels_of(compiled.kernel)]):
        product(launches, program)
    elif compiled.kernel.anchor.operation in WALKED:
        if free:
            assert original is not None
            longest = max(original.anchor.extents[dim] for dim in free)
            ends = ended(original, compiled.kernel, free)
            launches = replace(launches, ends=ends, longest=longest if ends else 0)
        WALKS.get(compiled.kernel.anchor.operation, points)(launches, program)
        _check_grid(launches)
    else:
        launches = _staged(launches, device)
        mine = launches.device
        _check_grid(launches)
    device.texts |= mine.texts
    device.programs |= mine.programs
    device.launches += mine.launches
    device.constants, device.functions = mine.constants, mine.functions


def _check_grid(launches: Launches) -> None:
    """Refuse a grid that the last launch does not have, whose results are the kernel's; without
    one, launches may have grids of their own."""
    if not launches.grid:
        return
    extents = launches.kernel.anchor.extents
    parts = prod(-(-extents[dim] // part) for dim, part in launches.grid.items())
    blocks = launches.device.launches[-1].blocks
    if blocks != parts:
        reason = f"the schedule's grid has {parts} parts, and its kernels {blocks} blocks"
        raise launches.refusal(reason)


def _staged(launches: Launches, device: Device) -> Launches:
    """The launches of a kernel's stages: the tiles of several cores fill a part of UB, if they have
    room there, so that there are more of them."""
    if device.core.cores > 1:
        small = replace(launches, device=device.continued(PARTS))
        with suppress(TilewrightError):
            _stages(small)
            return small
    _stages(launches)
    return launches


def _stages(launches: Launches) -> None:
    kernel = launches.kernel
    values: dict[str, Value] = {}
    stages = list(kernel.stages)
    if len(stages) > 1 and stages[-1].operation == "cast":
        # What stages compute here is of half precision already.
        stages.pop()
    for stage in stages:
        lower = STAGES.get(stage.operation)
        if lower is None:
            raise launches.refusal(f"there is no kernel for {stage.operation}")
        operands = [
            values.get(operand.name)
            # Indices of look-ups are integers.
            or launches.operand(operand, indices=stage.operation == "gather" and number == 1)
            for number, operand in enumerate(stage.inputs)
        ]
        target = launches.result() if stage is stages[-1] else None
        values[stage.output.name] = lower(launches, stage, operands, target)
