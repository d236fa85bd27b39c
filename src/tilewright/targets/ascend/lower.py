"""A kernel of a network as launches: products with what follows them, then stage by stage.

Values lie in main memory as float32, row by row. A product converts its operand to half precision
and to Nz, multiplies, and converts its result back (the thesis' casts, 6.1, and formats, 6.4.2);
constant weights are converted when the package is written. What no kernel here computes is refused,
with a reason, and falls to the host.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ir.types import Array
from tilewright.planning.domain import Kernel
from tilewright.planning.schedule import Schedule
from tilewright.targets.ascend.lowering.launches import Device, Launches, Value
from tilewright.targets.ascend.lowering.products import product
from tilewright.targets.ascend.lowering.stages import STAGES


def lower_kernel(
    device: Device, kernel: Kernel, schedule: Schedule, known: Mapping[str, Array]
) -> None:
    """Add a kernel's launches; ``known`` has its operands that are constant.

    Raises TilewrightError (``lower-operation`` and others) for what it cannot say, and adds
    nothing then.
    """
    mine = Device(device.core, constants=device.constants[:])
    _lower(Launches(mine, kernel, schedule, known))
    device.texts |= mine.texts
    device.launches += mine.launches
    device.constants = mine.constants


def _lower(launches: Launches) -> None:
    kernel = launches.kernel
    values: dict[str, Value] = {}
    stages = kernel.stages
    if kernel.anchor.operation == "matmul":
        result, taken = product(launches)
        values[stages[taken - 1].output.name] = result
        stages = stages[taken:]
    for stage in stages:
        lower = STAGES.get(stage.operation)
        if lower is None:
            raise launches.refusal(f"there is no kernel for {stage.operation}")
        operands = [values.get(one.name) or launches.operand(one) for one in stage.inputs]
        target = launches.result() if stage is kernel.stages[-1] else None
        values[stage.output.name] = lower(launches, stage, operands, target)
