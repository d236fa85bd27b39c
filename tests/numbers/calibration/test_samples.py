"""Calibration data of every kind: what is taken, and what is refused."""

import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np
import pytest

import tilewright
from tests.graph.passes.pass_networks import Builder
from tilewright.errors import TilewrightError
from tilewright.graph.dialect import NetworkOp
from tilewright.ir.types import Array, element_of, tensor
from tilewright.numbers.calibration import (
    Samples,
    arrays_of,
    calibration_of,
    observed_ranges,
    preprocessing_of,
    sample_shapes,
    samples_of,
)

LENET = Path(__file__).parents[3] / "examples" / "lenet5" / "lenet5.onnx"


def network(**inputs: tuple[tuple[int, ...], type]) -> NetworkOp:
    kinds = [
        (name, tensor(shape, element_of(np.dtype(dtype))))
        for name, (shape, dtype) in inputs.items()
    ]
    return NetworkOp.of("net", kinds, [])


def code_of(caught: pytest.ExceptionInfo[TilewrightError]) -> str:
    return caught.value.problems[0].code


def test_arrays_keep_the_elements_of_the_inputs() -> None:
    found = network(ids=((1, 4), np.int64), x=((2, 3), np.float32))
    arrays = {"ids": np.arange(12, dtype=np.int32).reshape(3, 4), "x": np.ones((3, 2, 3))}
    stream = samples_of(found, arrays)
    samples = list(stream)
    assert stream.count == len(samples) == 3
    assert samples[2]["ids"].tolist() == [[8, 9, 10, 11]] and samples[2]["ids"].dtype == np.int64
    assert samples[0]["x"].shape == (2, 3) and samples[0]["x"].dtype == np.float32


def test_numbers_are_calibrated_by_a_row_of_them() -> None:
    samples = list(samples_of(network(x=((), np.float32)), {"x": np.array([1.0, 2.5])}))
    assert [(s["x"].shape, s["x"].dtype, float(s["x"])) for s in samples] == [
        ((), np.float32, 1.0),
        ((), np.float32, 2.5),
    ]
    with pytest.raises(TilewrightError, match="has shape"):
        samples_of(network(x=((), np.float32)), {"x": np.array(1.0)})


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        ({"x": np.ones((3, 2, 4))}, "has shape"),
        ({"x": np.ones((0, 2, 3))}, "or none"),
        ({"x": np.ones((3, 2, 3)) * 1j}, "are complex128"),
        ({}, "no calibration data"),
        ({"x": np.ones((3, 2, 3)), "z": np.ones(3)}, "no input 'z'"),
    ],
)
def test_arrays_that_do_not_fit(arrays: dict[str, Array], why: str) -> None:
    with pytest.raises(TilewrightError, match=why) as caught:
        samples_of(network(x=((2, 3), np.float32)), arrays)
    assert code_of(caught) == "calibration-input"


def test_an_iterable_is_read_once_and_progress_is_told() -> None:
    b = Builder(0, x=(1, 3))
    module = b.finish(b.op("relu", b.inputs["x"]))
    read: list[int] = []

    def generator() -> Iterator[dict[str, Array]]:
        for index in range(5):
            read.append(index)
            yield {"x": np.full((1, 3), index - 1, np.float32)}

    told: list[tuple[str, int, int]] = []
    stream = samples_of(b.network, generator())
    ranges = observed_ranges(module, b.store, stream, progress=lambda *row: told.append(row))
    assert read == list(range(5))
    assert ranges["x"] == (-1.0, 3.0) and ranges["relu1"] == (0.0, 3.0)
    assert told == [("calibrate", index, 0) for index in range(5)]


def test_no_sample_at_all_is_refused() -> None:
    b = Builder(0, x=(1, 3))
    module = b.finish(b.op("relu", b.inputs["x"]))
    with pytest.raises(TilewrightError, match="no sample"):
        observed_ranges(module, b.store, samples_of(b.network, iter(())))


def test_files_that_claim_what_they_do_not_hold(tmp_path: Path) -> None:
    good = tmp_path / "good.npz"
    np.savez(good, x=np.ones((2, 3), np.float32))
    assert arrays_of(good)["x"].shape == (2, 3)
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }".ljust(117)
    text = b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header.encode() + b"\n"
    bomb = tmp_path / "bomb.npz"
    with zipfile.ZipFile(bomb, "w") as archive:
        archive.writestr("x.npy", text + bytes(64))
    pickled = tmp_path / "pickled.npz"
    np.savez(pickled, allow_pickle=True, x=np.array([{}], object))
    damaged = tmp_path / "damaged.npz"
    damaged.write_bytes(good.read_bytes()[:-30])
    other = tmp_path / "other.npz"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("x.txt", "no array")
    for path in (bomb, pickled, damaged, other, tmp_path / "missing.npz"):
        with pytest.raises(TilewrightError) as caught:
            calibration_of(path)
        assert code_of(caught) == "calibration-file", path
    with pytest.raises(TilewrightError, match="only images are preprocessed"):
        calibration_of(good, preprocessing_of("scale=2"))


@pytest.mark.parametrize(
    "text",
    [
        "size=0x3",
        "size=3",
        "mean=a",
        "scale=inf",
        "channels=cmyk",
        "fit=pad",
        "x",
        "mean=1:2:3:4:5",
    ],
)
def test_preprocessing_that_cannot_be_read(text: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        preprocessing_of(text)
    assert code_of(caught) == "option-preprocess"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"numbers": "int7"}, "numbers-format"),
        ({"numbers": "int8"}, "numbers-calibration"),
        ({"numbers": "int8", "observer": "median"}, "numbers-observer"),
        ({"numbers": "float16", "observer": "percentile"}, "numbers-observer"),
        ({"numbers": "fixed16", "equalise": True}, "numbers-equalise"),
        ({"equalise": True}, "numbers-equalise"),
        ({"keep_float": ("conv1",)}, "numbers-keep"),
        ({"numbers": "int8", "keep_float": ("conv11",)}, "numbers-keep"),
        ({"numbers": "int8", "target": "cambricon-x"}, "numbers-machine"),
        (
            {"numbers": "fixed16", "observer": "percentile", "target": "cambricon-x"},
            "numbers-observer",
        ),
    ],
)
def test_numbers_that_are_refused(options: dict[str, object], code: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        tilewright.compile(LENET, **options)
    assert code_of(caught) == code


def test_a_source_of_samples_of_any_kind_gives_the_same_package(tmp_path: Path) -> None:
    images = np.random.default_rng(0).uniform(size=(3, 1, 32, 32)).astype(np.float32)
    np.savez(tmp_path / "images.npz", image=images)
    kinds: dict[str, Samples] = {
        "array": {"image": images},
        "list": [{"image": image[None]} for image in images],
        "generator": ({"image": image[None]} for image in images),
        "file": calibration_of(tmp_path / "images.npz"),
    }
    found: dict[str, bytes] = {}
    for name, samples in kinds.items():
        place = tmp_path / name
        tilewright.compile(LENET, "cpu", numbers="int8", calibration=samples, directory=place)
        found[name] = b"".join(
            path.read_bytes() for path in [*sorted(place.rglob("*.c")), place / "manifest.json"]
        )
    assert len(set(found.values())) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("samples.npz", "is a name, not the data"),
        (Path("samples.npz"), "is a name, not the data"),
        (np.zeros((4, 1, 32, 32), np.float32), "has no inputs' names"),
        (7, "has no inputs' names"),
    ],
)
def test_what_is_no_data_is_refused(given: object, said: str) -> None:
    """On a model of fixed sizes, and where the samples' shapes tell those of free dims."""
    samples = cast("Samples", given)
    with pytest.raises(TilewrightError, match=said) as caught:
        tilewright.compile(LENET, "cambricon-x", calibration=samples)
    assert code_of(caught) == "calibration-input"
    with pytest.raises(TilewrightError, match=said):
        sample_shapes({"x": ("n", 4)}, samples)
