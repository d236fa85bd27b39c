"""The producer of each blob, and the blobs that no layer reads: the network's outputs."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.errors import Problem
from tilewright.frontends.caffe.inputs import DATA, SOURCES
from tilewright.frontends.caffe.net import Layer
from tilewright.frontends.caffe.operators import NOT_IN_PLACE
from tilewright.frontends.limits import shown


def outputs_of(
    layers: Sequence[Layer], dropped: Sequence[Layer], problems: list[Problem]
) -> list[str]:
    """The blobs that no layer reads, in the order in which they are made.

    Layers run in the file's order. A top with the name of a blob that there is replaces it, which
    is allowed where the layer reads that blob at the same position (in place). Blobs of inputs
    are no outputs. What is wrong is added to ``problems``.
    """
    known: set[str] = set()
    free: dict[str, None] = {}
    gone = {top: layer for layer in dropped for top in layer.tops}
    for layer in layers:
        for name in dict.fromkeys(layer.bottoms):
            free.pop(name, None)
            if name not in known:
                why = ""
                if name in gone:
                    why = f"{gone[name].where} is left out of a deployed network"
                reason = f"it reads the blob {shown(name)}, which no layer before it makes"
                problems.append(Problem("caffe-missing-blob", reason, layer.where, why))
        for index, name in enumerate(layer.tops):
            in_place = layer.bottoms[index : index + 1] == (name,)
            if name in known and not in_place and layer.type not in SOURCES:
                reason = f"it makes the blob {shown(name)}, which is made before it"
                problems.append(Problem("caffe-duplicate-name", reason, layer.where))
            elif in_place and layer.type in NOT_IN_PLACE:
                reason = f"a {layer.type} layer cannot work in place"
                problems.append(Problem("caffe-parameter", reason, layer.where))
            if layer.type not in DATA or any(name in other.bottoms for other in layers):
                known.add(name)
            if layer.type not in SOURCES:
                free[name] = None
    if not free:
        reason = "no layer makes a blob that is left over"
        problems.append(Problem("caffe-no-output", reason))
    return list(free)
