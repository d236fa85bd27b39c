"""Packages, with the compiler that builds those of free dims for new shapes.

The compiler stands above packages and may not be imported by them, so it is handed down here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tilewright.runtime import DynamicExecutable, Executable
from tilewright.runtime.dynamic import specialise_by
from tilewright.runtime.executable import Progress, opened
from tilewright.runtime.manifest import Manifest


def _specialise(
    directory: Path, manifest: Manifest, sizes: Mapping[str, int], place: Path, progress: Progress
) -> None:
    from tilewright.compiler.build import specialise  # Only a new shape needs the whole compiler.

    specialise(directory, manifest, sizes, place, progress)


specialise_by(_specialise)

__all__ = ["DynamicExecutable", "Executable", "opened"]
