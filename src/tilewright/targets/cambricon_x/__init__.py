"""The Cambricon-X accelerator, simulated, in its three sizes."""

from tilewright.targets.cambricon_x.isa import OPCODES
from tilewright.targets.cambricon_x.machine import CONFIGURATIONS
from tilewright.targets.cambricon_x.machine import machine as _machine
from tilewright.targets.generic.target import BuiltTarget

TARGET, MEDIUM, LARGE = (
    BuiltTarget(
        _machine(size),
        f"Cambricon-X, {size.side} x {size.side} multipliers, 16-bit fixed point, simulated",
        OPCODES,
    )
    for size in CONFIGURATIONS
)
"""The targets of the entry points ``cambricon-x``, ``cambricon-x-m`` and ``cambricon-x-l``."""

__all__ = ["LARGE", "MEDIUM", "TARGET"]
