"""Calibration data in files: an .npz, or a folder of images."""

from __future__ import annotations

import lzma
import zipfile
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError

import numpy as np

from tilewright.errors import refuse
from tilewright.ir.types import Array
from tilewright.numbers.calibration.images import ImageFolder
from tilewright.numbers.calibration.preprocessing import Preprocessing
from tilewright.numbers.calibration.samples import Samples
from tilewright.system.files import need_file

UNREADABLE = (
    OSError, ValueError, EOFError, KeyError, RuntimeError, SyntaxError, TokenError,
    zipfile.BadZipFile, zlib.error, lzma.LZMAError,
)  # fmt: skip
"""The exceptions that damaged, encrypted and foreign archives raise."""

MAX_BYTES = 1 << 33
"""The most bytes that all arrays of an .npz may take together, decompressed."""


def calibration_of(path: Path | str, preprocessing: Preprocessing | None = None) -> Samples:
    """The calibration data at a path: a folder of images, or an .npz of arrays by input name.

    Raises TilewrightError (``calibration-file``).
    """
    place = Path(path)
    if place.is_dir():
        return ImageFolder(place, preprocessing or Preprocessing())
    if preprocessing is not None:
        raise refuse(
            "calibration-file",
            "only images are preprocessed",
            str(place),
            "give a folder of images, or leave the preprocessing out",
        )
    return arrays_of(place)


def arrays_of(path: Path, code: str = "calibration-file") -> dict[str, Array]:
    """The arrays of an .npz by name; never unpickles, and reads no more than the file says.

    Raises TilewrightError of that code.
    """
    shapes_of(path, code)
    with _readable(path, code), np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def shapes_of(path: Path, code: str = "calibration-file") -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays of an .npz by name, from their headers alone.

    Raises TilewrightError of that code, also where a header claims more than the file holds.
    """
    need_file(path, code)
    with _readable(path, code), zipfile.ZipFile(path) as archive:
        total = sum(item.file_size for item in archive.infolist())
        if total > MAX_BYTES:
            raise ValueError(f"holds {total} bytes, more than {MAX_BYTES}")
        return {
            item.filename.removesuffix(".npy"): _shape_of(archive, item)
            for item in archive.infolist()
        }


@contextmanager
def _readable(path: Path, code: str) -> Generator[None]:
    """Turn what reading an archive may raise into a refusal."""
    help = "save it with numpy.savez"
    try:
        yield
    except zipfile.BadZipFile as e:
        raise refuse(code, f"is no .npz archive ({e})", str(path), help) from e
    except UNREADABLE as e:
        raise refuse(code, str(e) or "cannot be read", str(path), help) from e


def _shape_of(archive: zipfile.ZipFile, item: zipfile.ZipInfo) -> tuple[int, ...]:
    """The shape in an array's header, which may claim no more than the archive holds."""
    with archive.open(item) as file:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"{item.filename} is no array of a known version")
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = read(file)
        wanted = dtype.itemsize
        for extent in shape:
            wanted *= int(extent)
        if file.tell() + wanted > item.file_size:
            raise ValueError(f"{item.filename} is cut short")
        return tuple(shape)
