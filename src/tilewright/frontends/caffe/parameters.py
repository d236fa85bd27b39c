"""A layer's parameters: from the caffemodel, from the prototxt, or made up from a seed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np

from tilewright.errors import Problem, refuse
from tilewright.frontends.caffe.limits import MAX_SEEDED_ELEMENTS
from tilewright.frontends.caffe.net import Layer
from tilewright.frontends.caffe.stored import Stored
from tilewright.frontends.limits import MAX_ELEMENTS, shown
from tilewright.ir.types import Array

_RANGES = {
    "bias": (-0.05, 0.05),
    "mean": (-0.1, 0.1),
    "variance": (0.8, 1.25),
    "factor": (1.0, 1.0),
    "scale": (0.3, 0.7),
    "slope": (0.1, 0.4),
}
"""The ranges of made-up parameters other than weights: values stay sane through deep networks."""


class Parameters:
    """The parameters of one network."""

    def __init__(self, stored: Stored | None, own: Stored) -> None:
        self._stored = stored
        """The parameters of the caffemodel, if there is one."""
        self._own = own
        """The parameters in the prototxt itself, which rarely has any."""
        self._seeded = 0

    @property
    def made_up(self) -> bool:
        """True if any parameter came from a seed."""
        return self._seeded > 0

    def take(
        self, layer: Layer, index: int, shape: Sequence[int], kind: str, fan_in: int = 1
    ) -> Array:
        """Parameter ``index`` of a layer, in float32; raises TilewrightError.

        ``kind`` is weight, or one of the others that are made up in their own range; weights are
        normal with variance 2 / ``fan_in`` (He et al. 2015).
        """
        size, wanted = math.prod(shape), tuple(shape)
        if size > MAX_ELEMENTS:
            raise refuse(
                "caffe-too-large",
                f"its parameter of shape {list(shape)} takes {size} elements; "
                f"the limit is {MAX_ELEMENTS}",
                where=layer.where,
            )
        blobs = self._own.get(layer.name) if self._stored is None else None
        if self._stored is not None:
            blobs = self._stored.get(layer.name, ())
            if not blobs:
                raise refuse(
                    "caffe-weights", "the caffemodel has no weights for it", where=layer.where
                )
        if blobs is None:
            return self._seed(layer, index, wanted, kind, fan_in)
        if index >= len(blobs):
            raise refuse(
                "caffe-weights",
                f"it has {len(blobs)} parameters stored; more are needed",
                where=layer.where,
            )
        if not blobs[index].fits(wanted):
            raise refuse(
                "caffe-weights",
                f"its parameter {index} is stored with shape {list(blobs[index].shape)}, "
                f"where {list(shape)} is needed",
                where=layer.where,
            )
        return blobs[index].array.reshape(wanted)

    def left_over(self, layer: Layer, taken: int) -> list[Problem]:
        """A problem if more parameters are stored than the layer takes."""
        blobs = (self._own if self._stored is None else self._stored).get(layer.name, ())
        if len(blobs) <= taken:
            return []
        reason = f"{len(blobs)} parameters are stored for it, which takes {taken}"
        return [Problem("caffe-weights", reason, layer.where)]

    def _seed(
        self, layer: Layer, index: int, shape: tuple[int, ...], kind: str, fan_in: int
    ) -> Array:
        self._seeded += math.prod(shape)
        if self._seeded > MAX_SEEDED_ELEMENTS:
            raise refuse(
                "caffe-too-large",
                f"the network has more than {MAX_SEEDED_ELEMENTS} weights, "
                "which are not made up without a caffemodel",
                where=layer.where,
            )
        # Parameters that layers share have one name, and so one seed.
        name = layer.shared[index] if index < len(layer.shared) else ""
        key = f"shared {name}" if name else f"layer {layer.name} {index}"
        digest = hashlib.sha256(key.encode("utf-8", "replace")).digest()
        random = np.random.default_rng(int.from_bytes(digest[:8], "little"))
        if kind == "weight":
            scale = np.float32(math.sqrt(2 / max(fan_in, 1)))
            return random.standard_normal(shape, np.float32) * scale
        low, high = _RANGES[kind]
        return (low + (high - low) * random.random(shape, np.float32)).astype(np.float32)


def unused(stored: Stored, layers: Sequence[Layer]) -> str:
    """A note on the caffemodel's layers that the network does not have; empty if there are none."""
    known = {layer.name for layer in layers}
    names = [name for name in stored if name not in known]
    if not names:
        return ""
    listed = ", ".join(shown(name) for name in names[:5]) + (", ..." if len(names) > 5 else "")
    return f"the caffemodel holds weights of layers that the network does not have: {listed}"
