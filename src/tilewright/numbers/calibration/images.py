"""A folder of images as calibration data."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.errors import refuse
from tilewright.graph.dialect import NetworkOp
from tilewright.ir.types import Array, element_dtype, tensor_type
from tilewright.numbers.calibration.preprocessing import Preprocessing
from tilewright.numbers.calibration.samples import SampleStream
from tilewright.system.extras import library

KINDS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".bmp": "BMP"}
"""Endings of files that are read, and the one format that each is read as."""

MAX_IMAGES = 10_000
MAX_FILE_BYTES = 1 << 27
MAX_PIXELS = 1 << 26
"""The most pixels that one decoded image may have."""


@dataclass(frozen=True)
class ImageFolder:
    """The images of a folder in the order of their names; other files are passed over."""

    folder: Path
    preprocessing: Preprocessing

    def stream(self, network: NetworkOp) -> SampleStream:
        """One sample an image; raises TilewrightError (``calibration-images``).

        The network needs one float32 input of rank 4 with 1 or 3 channels, first ([n, c, h, w]) or
        last ([n, h, w, c]); an input of several images gets the same one several times.
        """
        name, shape = self._input(network)
        _ = _pillow()
        paths = sorted(
            path
            for path in self.folder.iterdir()
            if path.suffix.lower() in KINDS and path.is_file()
        )
        if not paths or len(paths) > MAX_IMAGES:
            raise refuse(
                "calibration-images",
                f"holds {len(paths)} images, and 1 to {MAX_IMAGES} are taken",
                str(self.folder),
                f"files that end in {', '.join(KINDS)} count",
            )

        def samples() -> Iterator[dict[str, Array]]:
            for path in paths:
                yield {name: self.array(path, shape)}

        return SampleStream(samples(), len(paths))

    def _input(self, network: NetworkOp) -> tuple[str, tuple[int, ...]]:
        if len(network.inputs) == 1:
            name, value = network.inputs[0]
            kind = tensor_type(value)
            shape = kind.get_shape()
            float32 = element_dtype(kind.element_type) == np.float32
            if float32 and len(shape) == 4 and (_first(shape) or shape[3] in (1, 3)):
                return name, shape
        raise refuse(
            "calibration-images",
            "the network's inputs are not one float32 image",
            str(self.folder),
            "give an .npz of arrays by input name",
        )

    def array(self, path: Path, shape: tuple[int, ...]) -> Array:
        """An image as the network's input; raises TilewrightError (``calibration-images``)."""
        first = _first(shape)
        channels, (rows, columns) = (shape[1], shape[2:]) if first else (shape[3], shape[1:3])
        options = self.preprocessing
        if options.size not in (None, (rows, columns)):
            raise refuse(
                "calibration-images",
                f"the network takes {rows}x{columns} pixels",
                "--preprocess",
                "leave the size out",
            )
        if (channels == 1) != (options.channels == "grey"):
            raise refuse(
                "calibration-images",
                f"the network takes {channels} channels",
                "--preprocess",
                "channels=grey is for one, channels=rgb and channels=bgr for three",
            )
        pixels = _pixels(path, "L" if channels == 1 else "RGB", (rows, columns), options.crop)
        image = pixels.astype(np.float32).reshape(rows, columns, channels)
        if options.channels == "bgr":
            image = image[:, :, ::-1]
        for values in (options.mean, options.scale):
            if len(values) not in (1, channels):
                raise refuse(
                    "calibration-images",
                    f"{len(values)} numbers for {channels} channels",
                    "--preprocess",
                )
        image = (image - np.array(options.mean, np.float32)) * np.array(options.scale, np.float32)
        ordered = image.transpose(2, 0, 1) if first else image
        return np.ascontiguousarray(np.broadcast_to(ordered, shape), np.float32)


def _pillow() -> Any:
    """Pillow's module of images, which is an extra; only this needs it."""
    return library("PIL.Image", "images", "calibration-images", "images")


def _first(shape: tuple[int, ...]) -> bool:
    """Return True if axis 1 of an input's shape holds 1 or 3 channels (NCHW order)."""
    return shape[1] in (1, 3)


def _pixels(path: Path, mode: str, size: tuple[int, int], crop: bool) -> Array:
    """An image's pixels, 0 to 255, at a size."""
    pillow = _pillow()
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ValueError(f"is larger than {MAX_FILE_BYTES} bytes")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pillow.open(path, formats=(KINDS[path.suffix.lower()],)) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise ValueError(f"has more than {MAX_PIXELS} pixels")
                return _fitted(image.convert(mode), size, crop)
    except Exception as error:  # Pillow's decoders raise whatever they meet in a damaged file.
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise refuse("calibration-images", reason, repr(str(path))) from error


def _fitted(image: Any, size: tuple[int, int], crop: bool) -> Array:
    """The image resized to ``size``, rows and columns, bilinearly."""
    rows, columns = size
    box = middle((image.width, image.height), size) if crop else None
    return np.asarray(image.resize((columns, rows), _pillow().Resampling.BILINEAR, box))


def middle(image: tuple[int, int], size: tuple[int, int]) -> tuple[float, float, float, float]:
    """The largest box in the middle of an image (columns, rows) that has the shape of a size (rows,
    columns): left, top, right and bottom, never beyond the image, to whose edge rounding may lead.
    """
    (width, height), (rows, columns) = image, size
    factor = min(height / rows, width / columns)
    wide, tall = min(columns * factor, width), min(rows * factor, height)
    left, top = (width - wide) / 2, (height - tall) / 2
    return left, top, min(left + wide, width), min(top + tall, height)
