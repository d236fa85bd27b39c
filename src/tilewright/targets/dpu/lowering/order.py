"""The order in which a kernel's instructions stand in the program."""

from __future__ import annotations

from tilewright.codegen.words import Statement
from tilewright.targets.dpu.build import Builder


def interleaved(build: Builder) -> list[Statement]:
    """The statements of a kernel."""
    return build.statements
