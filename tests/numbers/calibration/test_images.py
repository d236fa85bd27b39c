"""A folder of images: order, size, channels and numbers as stated; damaged files are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.errors import TilewrightError
from tilewright.graph.dialect import NetworkOp
from tilewright.ir.types import Array, element_of, tensor
from tilewright.numbers.calibration import (
    Preprocessing,
    calibration_of,
    preprocessing_of,
    samples_of,
)

Image: Any = pytest.importorskip("PIL.Image", reason="reading images needs the extra `images`")


def network(shape: tuple[int, ...], dtype: type = np.float32) -> NetworkOp:
    return NetworkOp.of("net", [("image", tensor(shape, element_of(np.dtype(dtype))))], [])


def save(path: Path, pixels: Array) -> None:
    Image.fromarray(pixels).save(path)


def read(folder: Path, shape: tuple[int, ...], text: str = "") -> list[Array]:
    options = preprocessing_of(text) if text else Preprocessing()
    return [s["image"] for s in samples_of(network(shape), calibration_of(folder, options))]


def test_images_come_by_name_with_mean_scale_and_order(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (2, 6, 8, 3), dtype=np.uint8)
    save(tmp_path / "b.png", pixels[1])
    save(tmp_path / "a.bmp", pixels[0])
    (tmp_path / "notes.txt").write_text("not an image")
    found = read(tmp_path, (1, 3, 6, 8), "mean=1:2:3,scale=0.5:0.25:2,channels=bgr,size=6x8")
    assert len(found) == 2
    for array, image in zip(found, pixels, strict=True):
        wanted = (image[:, :, ::-1].astype(np.float32) - [1, 2, 3]) * [0.5, 0.25, 2]
        assert array.dtype == np.float32 and array.shape == (1, 3, 6, 8)
        assert np.allclose(array[0].transpose(1, 2, 0), wanted)
    last = read(tmp_path, (2, 6, 8, 3))
    assert np.array_equal(last[0][0], pixels[0]) and np.array_equal(last[0][1], pixels[0])


def test_grey_stretched_and_cropped(tmp_path: Path) -> None:
    pixels = np.zeros((10, 30), np.uint8)
    pixels[:, 10:20] = 200
    save(tmp_path / "x.png", pixels)
    stretched = read(tmp_path, (1, 1, 5, 5), "channels=grey")[0]
    cropped = read(tmp_path, (1, 1, 5, 5), "channels=grey,fit=crop")[0]
    # Bilinear: what lies beside the part that is cut out still shows at its edge.
    assert np.all(cropped > 170) and np.all(cropped[..., 1:4] == 200)
    # The triangle of six pixels on either side reaches half a weight of 36 out of the bar twice.
    assert stretched[0, 0, 2, 2] == round(200 * 35 / 36) and stretched[0, 0, 2, 0] == 0


@pytest.mark.parametrize(
    ("shape", "text", "why"),
    [
        ((1, 3, 4, 4), "size=5x5", "takes 4x4"),
        ((1, 3, 4, 4), "channels=grey", "takes 3 channels"),
        ((1, 3, 4, 4), "mean=1:2", "2 numbers for 3 channels"),
        ((1, 7, 4, 4), "", "not one float32 image"),
    ],
)
def test_preprocessing_that_does_not_fit(
    tmp_path: Path, shape: tuple[int, ...], text: str, why: str
) -> None:
    save(tmp_path / "x.png", np.zeros((4, 4, 3), np.uint8))
    with pytest.raises(TilewrightError, match=why):
        read(tmp_path, shape, text)


def test_damaged_and_oversized_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TilewrightError, match="holds 0 images"):
        read(tmp_path, (1, 3, 4, 4))
    save(tmp_path / "x.png", np.zeros((40, 40, 3), np.uint8))
    whole = (tmp_path / "x.png").read_bytes()
    for damaged in (whole[:40], b"", b"GIF89a" + whole[6:], whole[:60] + b"\xff" * 40):
        (tmp_path / "x.png").write_bytes(damaged)
        with pytest.raises(TilewrightError) as caught:
            read(tmp_path, (1, 3, 4, 4))
        assert caught.value.problems[0].code == "calibration-images"
    (tmp_path / "x.png").write_bytes(whole)
    monkeypatch.setattr("tilewright.numbers.calibration.images.MAX_PIXELS", 1000)
    with pytest.raises(TilewrightError, match="more than 1000 pixels"):
        read(tmp_path, (1, 3, 4, 4))
