"""The benchmarks' networks in 8 bits, as ONNX Runtime's own tools quantise them.

QDQ form; weights int8, symmetric, a scale for each channel; activations int8, calibrated by their
extremes on the benchmark's random images.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, version_converter
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

OPSET = 13
"""The first operator set with a scale for each channel."""


class _Images(CalibrationDataReader):
    """Hands out calibration images, one batch a time."""

    def __init__(self, name: str, images: Iterator[NDArray[np.float32]]) -> None:
        self._feeds = ({name: image} for image in images)

    def get_next(self) -> dict[str, NDArray[np.float32]] | None:  # type: ignore[override]
        """The next feeds; None after the last."""
        return next(self._feeds, None)


def quantised(
    model: ModelProto,
    images: NDArray[np.float32],
    form: QuantFormat = QuantFormat.QDQ,
    activations: QuantType = QuantType.QInt8,
    *,
    symmetric: bool = False,
    reduce_range: bool = False,
) -> ModelProto:
    """A network of one image input in 8 bits, calibrated on images [count, c, h, w].

    With ``symmetric``, activations have the same range on both sides of 0; with ``reduce_range``,
    weights have 7 bits.
    """
    if model.opset_import[0].version < OPSET:
        stored = {tensor.name for tensor in model.graph.initializer}
        model = version_converter.convert_version(model, OPSET)
        for value in [v for v in model.graph.input if v.name in stored]:
            model.graph.input.remove(value)
    logging.getLogger().setLevel(logging.ERROR)  # It recommends what is done here.
    with tempfile.TemporaryDirectory() as folder:
        plain, prepared, result = (Path(folder) / f"{name}.onnx" for name in "abc")
        onnx.save(model, plain)
        # Folds normalisations into convolutions, and states the shapes.
        quant_pre_process(plain, prepared, skip_symbolic_shape=True)
        name = onnx.load(prepared, load_external_data=False).graph.input[0].name
        quantize_static(
            prepared,
            result,
            _Images(name, (image[None] for image in images)),
            quant_format=form,
            activation_type=activations,
            weight_type=QuantType.QInt8,
            per_channel=True,
            reduce_range=reduce_range,
            extra_options={"ActivationSymmetric": symmetric},
        )
        return onnx.load(result)
