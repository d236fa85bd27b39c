"""The ShiDianNao accelerator, simulated, in its three sizes."""

from tilewright.targets.shidiannao.machine import LARGE as _LARGE
from tilewright.targets.shidiannao.machine import SMALL as _SMALL
from tilewright.targets.shidiannao.target import ShiDianNaoTarget

TARGET = ShiDianNaoTarget()
"""What the entry point ``shidiannao`` names."""
SMALL = ShiDianNaoTarget(_SMALL)
LARGE = ShiDianNaoTarget(_LARGE)

__all__ = ["LARGE", "SMALL", "TARGET", "ShiDianNaoTarget"]
