"""The ShiDianNao accelerator, simulated, in its three sizes."""

from tilewright.targets.generic.target import BuiltTarget
from tilewright.targets.shidiannao.isa import OPCODES
from tilewright.targets.shidiannao.machine import CONFIGURATIONS
from tilewright.targets.shidiannao.machine import machine as _machine

SMALL, TARGET, LARGE = (
    BuiltTarget(
        _machine(size),
        f"ShiDianNao, an array of {size.side} x {size.side}, 16-bit fixed point, simulated",
        OPCODES,
    )
    for size in CONFIGURATIONS
)
"""The targets of the entry points ``shidiannao-s``, ``shidiannao`` and ``shidiannao-l``."""

__all__ = ["LARGE", "SMALL", "TARGET"]
