"""Packages, with the compiler that builds those of free dims for new shapes.

The compiler stands above packages and may not be imported by them, so it is handed down here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.runtime.executable import Executable, Progress, opened
from tilewright.runtime.manifest import Manifest
from tilewright.runtime.specialisers import specialise_by

if TYPE_CHECKING:
    from tilewright.graph.weights import Weights
    from tilewright.ir import ModuleOp
    from tilewright.runtime.dynamic import DynamicExecutable
    from tilewright.runtime.model_check import ModelSource


def _specialise(
    directory: Path, manifest: Manifest, sizes: Mapping[str, int], place: Path, progress: Progress
) -> None:
    from tilewright.compiler.build import specialise  # Only a new shape needs the whole compiler.

    specialise(directory, manifest, sizes, place, progress)


def _interpreted(
    directory: Path, manifest: Manifest, sizes: Mapping[str, int]
) -> tuple[ModuleOp, Weights]:
    from tilewright.compiler.plans import reference_of

    return reference_of(directory, manifest, sizes)


def _written(directory: Path, manifest: Manifest, sizes: Mapping[str, int]) -> ModelSource:
    from tilewright.compiler.build import shapes_at
    from tilewright.compiler.written import written

    assert manifest.open_model is not None
    file = directory / manifest.open_model.file
    return written(lambda: (file, shapes_at(manifest, sizes)))


specialise_by(_specialise, _interpreted, _written)

__all__ = ["DynamicExecutable", "Executable", "opened"]


def __getattr__(name: str) -> Any:
    """Packages with free dims are imported on first use: others need nothing of theirs."""
    if name != "DynamicExecutable":
        raise AttributeError(f"module 'tilewright.compiler.packages' has no attribute {name!r}")
    from tilewright.runtime.dynamic import DynamicExecutable

    return DynamicExecutable
