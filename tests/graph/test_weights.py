"""The weight store: by content, deterministic, mapped, and wary of what it reads."""

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.errors import TilewrightError
from tilewright.graph.weights import Weights
from tilewright.ir.types import Array
from tilewright.numerics.codes import FORMATS

ARRAYS: list[Array] = [
    np.arange(12, dtype=np.float32).reshape(3, 4),
    np.array(7, np.int64),
    np.array([True, False]),
    np.arange(5, dtype=np.int16),
    np.zeros((0, 3), np.float32),
    np.arange(6, dtype=np.int8)[::2],
    np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3)),
    np.arange(3, dtype=np.float16),
    np.array([1.5]),
]


def filled(order: list[int]) -> Weights:
    weights = Weights()
    for index in order:
        weights.add(ARRAYS[index], f"array {index}")
    return weights


def test_content_addresses() -> None:
    weights = Weights()
    one = weights.add(ARRAYS[0], "conv1/weight:0")
    assert one.startswith("conv1_weight_0_") and weights.add(ARRAYS[0].copy(), "other") == one
    assert weights.add(ARRAYS[0].reshape(4, 3), "conv1/weight:0") != one
    assert weights.add(ARRAYS[0].astype(np.float64), "conv1/weight:0") != one
    assert weights.add(ARRAYS[0] + 1, "") != one
    assert len(weights) == 4 and one in weights and "nothing" not in weights
    assert filled([0]).add(ARRAYS[0]) == next(iter(filled([0])))
    with pytest.raises(KeyError):
        weights.get("nothing")


def test_arrays_are_kept_as_they_were() -> None:
    weights = Weights()
    array = np.arange(4, dtype=np.float32)
    symbol = weights.add(array)
    array[0] = 9
    assert weights.get(symbol).tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="read-only"):
        weights.get(symbol)[0] = 1
    big_endian = weights.add(np.arange(4, dtype=">f4"))
    assert big_endian == symbol


def test_saving_is_deterministic_and_loading_maps(tmp_path: Path) -> None:
    order = list(range(len(ARRAYS)))
    filled(order).save(tmp_path / "a")
    filled(order[::-1]).save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    loaded, kept = Weights.load(tmp_path / "a"), filled(order)
    assert list(loaded) == list(kept) and loaded.bytes == kept.bytes
    for symbol in kept:
        array = loaded.get(symbol)
        assert array.dtype == kept.get(symbol).dtype and array.shape == kept.get(symbol).shape
        np.testing.assert_array_equal(array, kept.get(symbol))
        assert not array.flags.writeable and not array.flags.owndata
    loaded.save(tmp_path / "c")
    assert (tmp_path / "c").read_bytes() == (tmp_path / "a").read_bytes()


def test_other_readers_and_writers(tmp_path: Path) -> None:
    weights = filled(list(range(len(ARRAYS))))
    weights.save(tmp_path / "ours")
    theirs = safetensors.numpy.load_file(tmp_path / "ours")
    assert set(theirs) == set(weights)
    for symbol, array in theirs.items():
        np.testing.assert_array_equal(array, weights.get(symbol))
    safetensors.numpy.save_file(theirs, tmp_path / "theirs", {"format": "np"})
    again = Weights.load(tmp_path / "theirs")
    assert list(again) == list(weights)


def test_adding_to_a_loaded_store_finds_what_it_holds(tmp_path: Path) -> None:
    weights = filled([0, 1])
    weights.save(tmp_path / "w")
    loaded = Weights.load(tmp_path / "w")
    assert loaded.add(ARRAYS[0], "another hint") in weights
    assert len(loaded) == 2


def test_subset(tmp_path: Path) -> None:
    weights = filled([0, 1, 2])
    some = weights.subset(list(weights)[:2])
    assert list(some) == list(weights)[:2]
    with pytest.raises(KeyError):
        weights.subset(["nothing"])


def test_an_empty_store(tmp_path: Path) -> None:
    Weights().save(tmp_path / "w")
    assert len(Weights.load(tmp_path / "w")) == 0


def test_unsupported_elements() -> None:
    with pytest.raises(TilewrightError, match="weights-type"):
        Weights().add(np.array(["text"]))
    with pytest.raises(TilewrightError, match="complex64"):
        Weights().add(np.zeros(2, np.complex64))


def file_of(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\1\2\3",
        (2**63).to_bytes(8, "little") + b"{}",
        file_of(b"{"),
        file_of(b"\xff"),
        file_of(b"[" * 100_000),
        file_of([]),
        file_of({"a": 1}),
        file_of({"a": {**GOOD, "dtype": "F99"}}, b"\0" * 8),
        file_of({"a": {**GOOD, "dtype": ["F32"]}}, b"\0" * 8),
        file_of({"a": {**GOOD, "shape": [-2]}}, b"\0" * 8),
        file_of({"a": {**GOOD, "shape": [2.0]}}, b"\0" * 8),
        file_of({"a": {**GOOD, "shape": "2"}}, b"\0" * 8),
        file_of({"a": {**GOOD, "shape": [3]}}, b"\0" * 8),
        file_of({"a": {**GOOD, "shape": [1] * 40 + [2]}}, b"\0" * 8),
        file_of({"a": {**GOOD, "data_offsets": [0, 16]}}, b"\0" * 8),
        file_of({"a": {**GOOD, "data_offsets": [8, 0]}}, b"\0" * 8),
        file_of({"a": {**GOOD, "data_offsets": [0]}}, b"\0" * 8),
        file_of({"a": GOOD, "b": GOOD}, b"\0" * 8),
        file_of({"a": {**GOOD, "data_offsets": [8, 16]}}, b"\0" * 16),
        file_of({"a": GOOD}, b"\0" * 9),
    ],
    ids=range(21),
)
def test_bad_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "w").write_bytes(content)
    with pytest.raises(TilewrightError) as caught:
        Weights.load(tmp_path / "w")
    assert caught.value.problems[0].code == "weights-file"


def test_missing_files_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(TilewrightError, match="weights-file"):
            Weights.load(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_files_never_crash(tmp_path: Path, data: st.DataObject) -> None:
    filled([0, 1, 3]).save(tmp_path / "good")
    content = bytearray((tmp_path / "good").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))]
    (tmp_path / "bad").write_bytes(content)
    try:
        weights = Weights.load(tmp_path / "bad")
    except TilewrightError:
        return
    for symbol in weights:
        assert weights.get(symbol).nbytes >= 0


@pytest.mark.parametrize("name", FORMATS)
def test_codes_of_short_formats(tmp_path: Path, name: str) -> None:
    """They are told from bytes of the same content, and come back with their type."""
    codes = np.arange(2 ** FORMATS[name].bits, dtype=np.uint8)
    store = Weights()
    symbol, other = store.add(codes.view(name), "codes"), store.add(codes, "bytes")
    assert symbol != other
    store.save(tmp_path / "weights.safetensors")
    loaded = Weights.load(tmp_path / "weights.safetensors")
    assert loaded.get(symbol).dtype.name == name and loaded.get(other).dtype == np.uint8
    np.testing.assert_array_equal(loaded.get(symbol).view(np.uint8), codes)
