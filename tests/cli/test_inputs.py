"""Arrays from files that ``--input`` names: what is read, and what damaged or foreign files get."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tilewright.cli.inputs import arrays_of_files, file_of, shapes_of_files
from tilewright.errors import TilewrightError


@pytest.mark.parametrize(
    ("option", "names", "name", "path"),
    [
        ("x=a.npy", ["x"], "x", "a.npy"),
        ("a.npy", ["x"], "", "a.npy"),
        ("lr=0.1=a.npy", ["lr", "lr=0.1"], "lr=0.1", "a.npy"),
        ("lr=0.1=a.npy", ["lr"], "lr", "0.1=a.npy"),
        ("y=b=c.npz", [], "y", "b=c.npz"),
    ],
)
def test_an_option_names_a_file_and_perhaps_an_input(
    option: str, names: list[str], name: str, path: str
) -> None:
    file = file_of(option, names)
    assert (file.name, file.path) == (name, Path(path))


def test_a_path_with_an_equals_sign_is_a_path(tmp_path: Path) -> None:
    path = tmp_path / "lr=0.1.npy"
    np.save(path, np.arange(3))
    assert file_of(str(path), ["x"]).path == path
    assert arrays_of_files(["x"], [str(path)])["x"].tolist() == [0, 1, 2]


def test_an_archive_gives_each_input_its_array(tmp_path: Path) -> None:
    named, unnamed = tmp_path / "named.npz", tmp_path / "unnamed.NPZ"
    a, b = np.arange(6).reshape(2, 3), np.ones((0, 4), np.float16)
    np.savez_compressed(named, b=b, a=a)
    with unnamed.open("wb") as file:
        np.savez(file, a, b)
    for option in (named, unnamed):
        arrays = arrays_of_files(["a", "b"], [str(option)])
        assert shapes_of_files(["a", "b"], [str(option)]) == {"a": (2, 3), "b": (0, 4)}
        assert arrays["a"].tolist() == a.tolist() and arrays["b"].dtype == np.float16
    picked = arrays_of_files(["c", "b"], [f"c={named}", f"b={named}"][1:])
    assert list(picked) == ["b"] and picked["b"].shape == (0, 4)


def _archive(content: bytes, name: str = "x.npy") -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return data.getvalue()


def _array(array: object) -> bytes:
    data = io.BytesIO()
    np.save(data, array, allow_pickle=True)  # type: ignore[arg-type]  # objects are what is tested
    return data.getvalue()


WHOLE = _archive(_array(np.arange(4000)))
BAD = {
    "pickled.npz": _archive(_array(np.array([{}], object))),
    "text.npz": b"name,value\nx,1\n",
    "empty.npz": b"",
    "cut.npz": WHOLE[: len(WHOLE) // 2],
    "damaged.npz": WHOLE[:100] + bytes(40) + WHOLE[140:],
    "none.npz": b"PK\x05\x06" + bytes(18),
    "header.npz": _archive(_array(np.arange(4)).replace(b"{'descr'", b"{(((((('")),
    "header.npy": _array(np.arange(4)).replace(b"{'descr'", b"{(((((('"),
    "foreign.npz": _archive(b"hello", "readme.txt"),
    "bomb.npz": _archive(_array(np.arange(4)).replace(b"(4,), ", b"(1 << 40,), ")),
    "claims.npz": _archive(_array(np.arange(4)).replace(b"(4,)", b"(9,)")),
    "pickled.npy": _array(np.array([{}], object)),
    "cut.npy": _array(np.arange(100))[:150],
    "text.npy": b"0 1 2\n",
    "archive.npy": WHOLE,
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_by_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(BAD[name])
    for read in (arrays_of_files, shapes_of_files):
        if read is shapes_of_files and name in ("pickled.npz", "damaged.npz"):
            continue  # Their headers are sound.
        with pytest.raises(TilewrightError) as refused:
            read(["x"], [str(path)])
        (problem,) = refused.value.problems
        assert problem.code == "input-file" and name in problem.where


def test_what_cannot_be_told_apart_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(3))
    np.savez(tmp_path / "ab.npz", a=np.arange(3), b=np.arange(3))
    for names, option, code in (
        (["x", "y"], "a.npy", "option-input"),
        (["x", "y"], "x=ab.npz", "input-file"),
        (["x"], "missing.npz", "input-file"),
    ):
        name, equals, file = option.rpartition("=")
        with pytest.raises(TilewrightError) as refused:
            arrays_of_files(names, [f"{name}{equals}{tmp_path / file}"])
        assert refused.value.problems[0].code == code
