"""A kernel of a network as a launch of a function, from its tile program.

Values lie in main memory in half precision, in the layouts that the network's tensors have. What no
kernel here computes is refused, with a reason, and falls to the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.codegen.program.interface import CompiledKernel
from tilewright.ir.types import Array
from tilewright.planning.chains.plans import kernels_of
from tilewright.planning.domain import Kernel
from tilewright.targets.ascend.elements import NORMAL, WALKED, ended
from tilewright.targets.ascend.kernels.folds import FOLD_OF
from tilewright.targets.ascend.lowering.cube import is_of_cube
from tilewright.targets.ascend.lowering.folded import folded
from tilewright.targets.ascend.lowering.launches import Device, Launches
from tilewright.targets.ascend.lowering.moved import moved
from tilewright.targets.ascend.lowering.normal import normal
from tilewright.targets.ascend.lowering.points import points
from tilewright.targets.ascend.lowering.products import product
from tilewright.targets.ascend.moves import MOVES
from tilewright.tile.dialect import programs_of

WALKS = {**dict.fromkeys(NORMAL, normal), **dict.fromkeys(FOLD_OF, folded)}
"""Anchor -> what lowers its tile program, where it is not elementwise."""


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
    ``original`` is the kernel with the dims of which ``free`` speaks, as the network has it; the
    same if none is given.

    Raises TilewrightError (``lower-operation`` and others) for what it cannot say, and adds
    nothing then.
    """
    assert compiled.program is not None
    (program,) = programs_of(compiled.program)
    original = original or compiled.kernel
    if numbers is None:
        numbers = {operand.name: place for place, operand in enumerate(original.inputs)}
    mine = device.continued()
    launches = Launches(mine, compiled.kernel, known, numbers, free)
    if is_of_cube([each.anchor.operation for each in kernels_of(compiled.kernel)]):
        product(launches, program)
    elif (anchor := compiled.kernel.anchor.operation) in WALKED:
        if free:
            longest = max(original.anchor.extents[dim] for dim in free)
            ends = ended(original, compiled.kernel, free)
            launches = replace(launches, ends=ends, longest=longest if ends else 0)
        if anchor in MOVES:
            moved(launches, program, original)
        else:
            WALKS.get(anchor, points)(launches, program)
    else:
        raise launches.refusal(f"there is no kernel for {anchor}")
    device.programs |= mine.programs
    device.commands |= mine.commands
    device.launches += mine.launches
    device.constants, device.functions = mine.constants, mine.functions
