"""The machines that HLAL is for: ACC-C's configurations by name, with values of ``--set``."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.errors import refuse
from tilewright.machine import Machine
from tilewright.targets.cambricon.machine import CONFIGURATIONS, machine

NAMES = tuple(size.name for size in CONFIGURATIONS)
"""The targets' names, the published one first."""


def machine_named(name: str, values: Mapping[str, float] | None = None) -> Machine:
    """A configuration by its target's name; raises TilewrightError (``hlal-target``)."""
    for size in CONFIGURATIONS:
        if size.name == name:
            described = machine(size)
            return described.with_values(values) if values else described
    raise refuse("hlal-target", f"HLAL is not for target {name!r}", help=", ".join(NAMES))
