"""DaVinci cores (Ascend): machines, kernels in CCE C, and a host core on which they run."""

from tilewright.targets.ascend.hivm.target import Ascend910bTarget
from tilewright.targets.ascend.machine import ASCEND_310 as _ASCEND_310
from tilewright.targets.ascend.target import AscendTarget

TARGET = AscendTarget()
"""The target that the entry point ``ascend910`` names."""
SMALL = AscendTarget(_ASCEND_310)
"""The target that the entry point ``ascend310`` names."""
TEXT = Ascend910bTarget()
"""The target that the entry point ``ascend910b`` names."""

__all__ = ["SMALL", "TARGET", "TEXT", "Ascend910bTarget", "AscendTarget"]
