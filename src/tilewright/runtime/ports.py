"""The inputs and outputs of a package's program beside those of its manifest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.errors import refuse

if TYPE_CHECKING:
    from tilewright.codegen.program.interface import Runner, TensorInfo
    from tilewright.runtime.manifest import Manifest, Tensor


def refuse_other_ports(manifest: Manifest, runner: Runner, directory: Path) -> None:
    """Refuse (``package-invalid``) a program whose inputs or outputs are not the manifest's."""
    pairs = ((runner.inputs, manifest.inputs), (runner.outputs, manifest.outputs))
    for program, stated in pairs:
        known = {info.name: info for info in program}
        if len(known) != len(stated) or not all(
            tensor.name in known and _agree(known[tensor.name], tensor) for tensor in stated
        ):
            reason = "its program has other inputs or outputs than its manifest"
            raise refuse("package-invalid", reason, str(directory))


def _agree(info: TensorInfo, tensor: Tensor) -> bool:
    """True if a program's tensor has the manifest's type and shape; free dims have any size."""
    return (
        info.dtype == tensor.dtype
        and len(info.shape) == len(tensor.shape)
        and all(
            isinstance(stated, str) or size == stated
            for size, stated in zip(info.shape, tensor.shape, strict=True)
        )
    )
