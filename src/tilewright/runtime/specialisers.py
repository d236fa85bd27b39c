"""The compiler of packages with free dims for a shape, which stands above packages.

It says so when it is imported (compiler/packages.py), also where no package has free dims: this
module is apart from them, and takes no time to import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.runtime.executable import Progress
from tilewright.runtime.manifest import Manifest

if TYPE_CHECKING:
    from tilewright.graph.weights import Weights
    from tilewright.ir import ModuleOp
    from tilewright.runtime.model_check import ModelSource

Specialiser = Callable[[Path, Manifest, Mapping[str, int], Path, Progress], None]
"""Compiles a package's model for sizes of its free dims into an empty directory."""

Interpreted = Callable[[Path, Manifest, Mapping[str, int]], "tuple[ModuleOp, Weights]"]
"""The graph of a package's model at sizes of its free dims, for checks, and its constants."""

Written = Callable[[Path, Manifest, Mapping[str, int]], "ModelSource"]
"""Returns a package's model as it was written, at sizes of its free dims."""

specialisers: list[tuple[Specialiser, Interpreted, Written]] = []
"""The known specialisers; the last one is asked."""


def specialise_by(specialiser: Specialiser, interpreted: Interpreted, written: Written) -> None:
    """Say what compiles packages for new shapes."""
    specialisers.append((specialiser, interpreted, written))
