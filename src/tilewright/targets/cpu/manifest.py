"""The manifest of a program of the cpu target: what its C is called, and what it works in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from tilewright.codegen.host.library import LARGEST_ARENA
from tilewright.codegen.host.ports import Port
from tilewright.codegen.program.interface import MANIFEST
from tilewright.errors import refuse
from tilewright.system.typed_json import JsonError, from_json
from tilewright.targets.cpu.builds import BUILDS

ArenaBytes = Annotated[int, Meta(ge=0, le=LARGEST_ARENA)]


class StepRow(Struct, frozen=True):
    """A step of a run: its kernel's symbol, and the model's nodes."""

    symbol: str
    nodes: tuple[str, ...]


class CpuManifest(Struct, frozen=True, kw_only=True):
    """The contents of a program's ``program.json``."""

    format: Literal[1]
    prefix: Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_]*\Z")]
    """The beginning of the names of its functions and files."""
    lanes: int
    """Floats of a vector."""
    processor: str
    """The processor whose flags it is built with, of ``BUILDS``."""
    tiles: bool = False
    """True if kernels multiply on matrix tiles."""
    weights: Annotated[str, Meta(pattern=r"^(file|array)\Z")]
    """A file of their own, or constant arrays in C."""
    bare: bool
    weight_bytes: ArenaBytes
    workspace_bytes: ArenaBytes
    scratch_bytes: ArenaBytes
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    sizes: tuple[str, ...] = ()
    """Names of the sizes that a run has."""
    steps: tuple[StepRow, ...]


def _check_sizes(manifest: CpuManifest) -> None:
    """Raise ``JsonError`` for axes that end at a size which is not the run's, or is another axis's
    of another extent, and for sizes that no input tells."""
    most: dict[str, int] = {}
    for ports in (manifest.inputs, manifest.outputs):
        for port in ports:
            for axis, size in port.ended:
                extent = port.shape[axis] if axis < len(port.shape) else 0
                told = ports is manifest.inputs or size in most
                if (
                    size not in manifest.sizes
                    or not told
                    or most.setdefault(size, extent) != extent
                ):
                    raise JsonError(f"axis {axis} of {port.name[:80]!r} ends at no size")
    if len(most) < len(manifest.sizes):
        raise JsonError("a size is no input's")


def read_manifest(program: Path) -> CpuManifest:
    """The manifest; refuses (``package-invalid``) a damaged one."""
    path = program / MANIFEST
    try:
        manifest = from_json(CpuManifest, path.read_bytes())
        if manifest.processor not in BUILDS:
            raise JsonError(f"{manifest.processor[:80]!r} is no processor")
        _check_sizes(manifest)
    except (OSError, JsonError) as error:
        raise refuse("package-invalid", f"the manifest is damaged: {error}", str(path)) from error
    return manifest
