"""Outputs whose sizes a run computes: they end where an output of the program says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.errors import refuse

if TYPE_CHECKING:
    from tilewright.graph.run_sizes import OutputEnd
    from tilewright.ir.types import Array
    from tilewright.runtime.manifest import Manifest, OutputSize


def cut_to_sizes(
    sizes: Sequence[OutputEnd | OutputSize], outputs: Mapping[str, Array]
) -> dict[str, Array]:
    """The outputs that a caller sees: ended, and without those that say where.

    Raises TilewrightError (``output-room``) where a run has more than there is room for.
    """
    cut = dict(outputs)
    for end in sizes:
        size = int(outputs[end.size])
        if size > end.room:
            axis, where = f"its axis {end.axis} has {size} indices", f"output {end.output!r}"
            if not end.output:
                axis, where = f"data give it a size of {size}", f"value {end.name!r}"
            raise refuse(
                "output-room",
                f"{axis} in this run, and there is room for {end.room}",
                where,
                f"compile with more: --shape {end.name}=0..{size}",
            )
        if end.output:
            cut[end.output] = cut[end.output][(slice(None),) * end.axis + (slice(0, max(0, size)),)]
    hidden = {end.size for end in sizes}
    return {name: array for name, array in cut.items() if name not in hidden}


def returned(manifest: Manifest, outputs: dict[str, Array]) -> dict[str, Any]:
    """The outputs of a package's program as its caller sees them: ended, with those that have no
    elements, and sequences as lists."""
    if manifest.empty_outputs or manifest.output_sizes or manifest.lists.outputs:
        outputs = cut_to_sizes(manifest.output_sizes, outputs)
        outputs |= {tensor.name: tensor.empty() for tensor in manifest.empty_outputs}
        return manifest.lists.returned(outputs)
    return outputs
