"""Kernels as cases, by name, and the layouts that they are in."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.targets.cpu.kernel_harness import Maker

from tilewright.ir import SSAValue

B = "NCHWLc"
W = "OIHWLiLo"

Cases = Mapping[str, Callable[[Maker], SSAValue]]
