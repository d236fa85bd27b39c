"""The inputs of a network: Input layers, and the data layers of training files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.errors import Problem, TilewrightError, refuse
from tilewright.frontends.caffe.net import Layer
from tilewright.frontends.limits import MAX_ELEMENTS, MAX_RANK, shown

Shape = tuple[int, ...]

DATA = frozenset({"Data", "DummyData", "HDF5Data", "ImageData", "MemoryData", "WindowData"})
"""Layers that read data sets; their tops become inputs where a layer reads them."""

SOURCES = DATA | {"Input"}
"""Layers without bottoms whose tops are inputs."""


def inputs_of(
    layers: Sequence[Layer],
    shapes: Mapping[str, Sequence[int]] | None,
    problems: list[Problem],
    notes: list[str],
) -> dict[str, Shape | None]:
    """Shapes of the network's inputs, in the file's order; None where one is refused.

    ``shapes`` come before those of the file, as when a blob is reshaped in Caffe.
    """
    wanted = dict(shapes or {})
    read = {name for layer in layers for name in layer.bottoms}
    inputs: dict[str, Shape | None] = {}
    for layer in layers:
        if layer.type not in SOURCES:
            continue
        if layer.bottoms:
            problems.append(Problem("caffe-parameter", "it takes no bottoms", layer.where))
        used = [top for top in layer.tops if layer.type == "Input" or top in read]
        left = [shown(top) for top in layer.tops if top not in used]
        if left and used:
            notes.append(f"{layer.where}: nothing reads {', '.join(left)}; left out")
        for top in used:
            if top in inputs:
                reason = "it is made twice"
                problems.append(Problem("caffe-duplicate-name", reason, f"blob {shown(top)}"))
                continue
            try:
                inputs[top] = _shape(layer, top, wanted.get(top), notes)
            except TilewrightError as error:
                problems.extend(error.problems)
                inputs[top] = None
        if used and layer.type in DATA:
            notes += _preprocessing(layer)
    for name in wanted:
        if name not in inputs:
            listed = ", ".join(shown(known) for known in list(inputs)[:20])
            problems.append(
                Problem(
                    "caffe-shape",
                    f"a shape is given for {shown(name)}, which is no input",
                    help=f"the inputs are {listed}",
                )
            )
    return inputs


def _shape(layer: Layer, top: str, wanted: Sequence[int] | None, notes: list[str]) -> Shape:
    """The shape of one input; raises TilewrightError."""
    where = f"input {shown(top)}"
    sizes: Sequence[int] | None = None
    index = layer.tops.index(top)
    if layer.type == "Input":
        sizes = _stated(layer.proto.input_param.shape, index, layer)
    elif layer.type == "DummyData":
        sizes = _dummy(layer, index)
    else:
        sizes = _data(layer, index, notes if wanted is None else [])
    if wanted is not None:
        if sizes is not None and len(wanted) != len(sizes):
            raise refuse(
                "caffe-shape",
                f"{list(wanted)} is given for a blob of shape {list(sizes)}",
                where=where,
            )
        sizes = wanted
    if sizes is None:
        raise refuse(
            "caffe-shape",
            f"{layer.where} does not state its shape",
            where=where,
            help=f"give it: --shape {top}=1x3x224x224, or shapes={{{top!r}: ...}}",
        )
    if not all(_is_size(size) for size in sizes):
        sound = "x".join(str(size) if _is_size(size) else "1" for size in sizes)
        raise refuse(
            "caffe-shape", f"not all sizes of its shape {list(sizes)} are 1 or more", where,
            f"give it another: --shape {top}={sound}",
        )  # fmt: skip
    shape = tuple(int(size) for size in sizes)
    if len(shape) > MAX_RANK or math.prod(shape) > MAX_ELEMENTS:
        raise refuse("caffe-too-large", f"a blob of shape {list(shape)}", where=where)
    return shape


def _is_size(size: object) -> bool:
    """Return True if a size is a positive integer, of Python's or of NumPy's."""
    return isinstance(size, int | np.integer) and int(size) >= 1


def _stated(shapes: Sequence[Any], index: int, layer: Layer) -> Sequence[int] | None:
    """One of the shapes of a layer's tops, or the one for all; None if there is none."""
    if len(shapes) not in (0, 1, len(layer.tops)):
        reason = f"it has {len(shapes)} shapes for {len(layer.tops)} tops"
        raise layer.refuse(reason, code="caffe-shape")
    return list(shapes[index if len(shapes) > 1 else 0].dim) if len(shapes) else None


def _dummy(layer: Layer, index: int) -> Sequence[int] | None:
    settings = layer.proto.dummy_data_param
    if settings.shape:
        return _stated(settings.shape, index, layer)
    extents = (settings.num, settings.channels, settings.height, settings.width)
    if any(len(values) not in (1, len(layer.tops)) for values in extents):
        return None
    return [values[index if len(values) > 1 else 0] for values in extents]


def _data(layer: Layer, index: int, notes: list[str]) -> Sequence[int] | None:
    """Images (the first top) or labels (the second) of a data layer, as far as it says."""
    proto = layer.proto
    if layer.type == "MemoryData":
        memory = proto.memory_data_param
        images = [memory.batch_size, memory.channels, memory.height, memory.width]
        return images if index == 0 else images[:1]
    if layer.type not in ("Data", "ImageData"):
        return None
    settings = proto.data_param if layer.type == "Data" else proto.image_data_param
    transform = proto.transform_param
    batch = settings.batch_size or 1
    if index > 0:
        return [batch]
    crop = transform.crop_size or settings.crop_size
    rows, columns = crop, crop
    if layer.type == "ImageData" and not crop:
        rows, columns = settings.new_height, settings.new_width
    if not (rows and columns):
        return None
    if len(transform.mean_value) > 1:
        channels = len(transform.mean_value)
    elif transform.force_gray or (layer.type == "ImageData" and not settings.is_color):
        channels = 1
    else:
        channels = 3
        notes.append(f"input {shown(layer.tops[0])}: taken as images of 3 channels")
    return [batch, channels, rows, columns]


def _preprocessing(layer: Layer) -> Iterable[str]:
    """A note on what a data layer does to images before the network sees them."""
    steps: list[str] = []
    settings = [layer.proto.transform_param]
    if layer.type == "Data":
        settings.append(layer.proto.data_param)
    if layer.type == "ImageData":
        settings.append(layer.proto.image_data_param)
    for message in settings:
        if message.mean_file:
            steps.append(f"subtracts the mean in {shown(message.mean_file)}")
        if message.scale != 1:
            steps.append(f"multiplies by {message.scale:g}")
    if settings[0].mean_value:
        means = ", ".join(f"{value:g}" for value in settings[0].mean_value[:4])
        steps.insert(0, f"subtracts {means}")
    if steps:
        yield f"{layer.where} {' and '.join(steps)}; inputs are what comes after that"
