"""Small Caffe models for tests: text, weights as a caffemodel, and their interpretation."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tilewright.frontends.caffe import import_caffe
from tilewright.frontends.caffe.schema import message_class
from tilewright.frontends.imported import Imported
from tilewright.graph.interpreter import interpret

Blobs = Mapping[str, Sequence[np.ndarray]]


def input_of(name: str, shape: Sequence[int]) -> str:
    """An Input layer's text."""
    dims = " ".join(f"dim: {size}" for size in shape)
    return (
        f'layer {{ name: "{name}" type: "Input" top: "{name}" '
        f"input_param {{ shape {{ {dims} }} }} }}\n"
    )


def layer(
    kind: str,
    settings: str = "",
    bottoms: Sequence[str] = ("x",),
    tops: Sequence[str] = ("y",),
    name: str = "it",
) -> str:
    """A layer's text."""
    ends = " ".join([f'bottom: "{b}"' for b in bottoms] + [f'top: "{t}"' for t in tops])
    return f'layer {{ name: "{name}" type: "{kind}" {ends} {settings} }}\n'


def noise(*shape: int, seed: int = 0, low: float = -2, high: float = 2) -> np.ndarray:
    """Seeded uniform float32 numbers."""
    return np.random.default_rng((seed, *shape)).uniform(low, high, shape).astype(np.float32)


def caffemodel(
    blobs: Blobs, *, old: bool = False, legacy: bool = False, doubles: bool = False
) -> bytes:
    """A caffemodel: of the older form, with four extents, or with doubles, as asked."""
    net = message_class("NetParameter")(name="stored")
    for name, arrays in blobs.items():
        stored = (net.layers if old else net.layer).add(name=name)
        if not old:
            stored.type = "Anything"
        for array in arrays:
            blob = stored.blobs.add()
            if legacy:
                shape = (1,) * (4 - array.ndim) + array.shape
                blob.num, blob.channels, blob.height, blob.width = shape
            else:
                blob.shape.SetInParent()
                blob.shape.dim.extend(array.shape)
            (blob.double_data if doubles else blob.data).extend(array.reshape(-1).tolist())
    return net.SerializeToString()


def load(folder: Path, text: str, blobs: Blobs | bytes | None = None, **options) -> Imported:
    """Import a text, with a caffemodel of these blobs if there are any."""
    path = folder / "net.prototxt"
    path.write_text(text, encoding="utf-8")
    if blobs is not None:
        options["caffemodel"] = folder / "net.caffemodel"
        data = blobs if isinstance(blobs, bytes) else caffemodel(blobs)
        options["caffemodel"].write_bytes(data)
    return import_caffe(path, **options)


def run(imported: Imported, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    """The network's outputs."""
    return interpret(imported.module, imported.weights, inputs)


def assert_close(got: np.ndarray, want: np.ndarray, what: str = "") -> None:
    """Float32 agreement: 1e-5 of the largest result is far below what a wrong divisor changes."""
    assert got.dtype == np.float32, what
    assert got.shape == want.shape, (what, got.shape, want.shape)
    assert want.size == 1 or np.ptp(want) > 0, "the expected result says nothing"
    size = float(np.abs(want).max(initial=0.0))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * size, err_msg=what)


def seed_of(text: str) -> int:
    """A seed that depends on a text."""
    return zlib.crc32(text.encode())
