"""Inputs from files: ``--input NAME=FILE.npy``, ``FILE.npy`` and ``FILE.npz``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.errors import refuse
from tilewright.numerics.element_types import dtype_named
from tilewright.system.files import need_file

if TYPE_CHECKING:
    from tilewright.codegen.program.interface import TensorInfo
    from tilewright.ir.types import Array

ARCHIVE = ".npz"

InputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input", metavar="NAME=FILE.npy", help="An input's array; or FILE.npz with all."
    ),
]
RandomOption = Annotated[
    int | None, typer.Option("--random", metavar="SEED", min=0, help="Random inputs of this seed.")
]


@dataclass(frozen=True)
class InputFile:
    """A file that an option names, and the input that it is for ("" where none is named)."""

    path: Path
    name: str = ""

    @property
    def is_archive(self) -> bool:
        """True if the file holds arrays by name."""
        return self.path.suffix.lower() == ARCHIVE


def file_of(option: str, names: Sequence[str] = ()) -> InputFile:
    """Parse ``NAME=PATH`` or ``PATH``; the inputs' ``names`` decide what a text with ``=`` is."""
    named = [name for name in names if option.startswith(f"{name}=")]
    if named:
        name = max(named, key=len)
        file = option[len(name) + 1 :]
    else:
        name, separator, file = option.partition("=")
        if not separator or Path(option).exists():
            name, file = "", option
    if not file:
        raise refuse("option-input", f"{option!r} names no file", "--input", "NAME=FILE.npy")
    return InputFile(Path(file), name)


def read_array(path: Path) -> Array:
    """Read an .npy file; never unpickles."""
    import numpy as np

    return np.array(_mapped(path))


def read_arrays(path: Path) -> dict[str, Array]:
    """Read an .npz file; never unpickles."""
    from tilewright.numbers.calibration import arrays_of

    return arrays_of(path, "input-file")


def shapes_in(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays in a file, whose data are not read; an .npy's name is ""."""
    from tilewright.numbers.calibration import shapes_of

    if InputFile(path).is_archive:
        return shapes_of(path, "input-file")
    return {"": _mapped(path).shape}


def arrays_of_files(names: Sequence[str], options: Sequence[str] | None) -> dict[str, Array]:
    """The arrays that options give to the inputs ``names``."""
    arrays: dict[str, Array] = {}
    for option in options or ():
        file = file_of(option, names)
        stored = read_arrays(file.path) if file.is_archive else {"": read_array(file.path)}
        keys = _keys(file, list(stored), names, option)
        if twice := sorted(arrays.keys() & keys):
            raise refuse("option-input", f"input {twice[0]!r} is given twice", "--input")
        arrays |= {name: stored[key] for name, key in keys.items()}
    return arrays


def shapes_of_files(
    names: Sequence[str], options: Sequence[str] | None
) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays that options give to the inputs ``names``."""
    shapes: dict[str, tuple[int, ...]] = {}
    for option in options or ():
        file = file_of(option, names)
        stored = shapes_in(file.path)
        shapes |= {
            name: stored[key] for name, key in _keys(file, list(stored), names, option).items()
        }
    return shapes


def inputs_for(
    infos: Sequence[TensorInfo], options: Sequence[str] | None, seed: int | None
) -> dict[str, Array]:
    """The arrays of ``--input``; with a seed, or without files, the inputs left over are random.

    Refuses (``option-input``) a seed where no input is left over.
    """
    import numpy as np

    arrays = arrays_of_files([info.name for info in infos], options)
    if arrays and seed is None:
        return arrays
    if arrays and all(info.name in arrays for info in infos):
        raise refuse(
            "option-input", "--input gives every input", "--random", "leave one of them out"
        )
    random = np.random.default_rng(seed or 0)
    for info in infos:
        values = random.standard_normal([int(size) for size in info.shape])
        arrays.setdefault(info.name, values.astype(dtype_named(info.dtype)))
    return arrays


def _keys(
    file: InputFile, keys: Sequence[str], names: Sequence[str], option: str
) -> dict[str, str]:
    """Each input that a file has an array for -> the array's name in the file."""
    if not file.is_archive:
        if not file.name and len(names) != 1:
            raise refuse(
                "option-input", f"{option!r} is not NAME=FILE.npy", "--input",
                f"the inputs are {', '.join(names) or 'none'}",
            )  # fmt: skip
        return {file.name or names[0]: ""}
    if not keys:
        raise refuse("input-file", "holds no array", str(file.path), "save it with numpy.savez")
    if file.name:
        if file.name not in keys and len(keys) != 1:
            raise refuse(
                "input-file", f"holds no array {file.name!r}", str(file.path),
                f"it has {', '.join(keys)}",
            )  # fmt: skip
        return {file.name: file.name if file.name in keys else keys[0]}
    # numpy.savez names arrays that were given without a name by their place.
    places = {f"arr_{place}": name for place, name in enumerate(names)}
    if all(re.fullmatch(r"arr_\d+", key) and key not in names for key in keys):
        return {places.get(key, key): key for key in keys}
    return {key: key for key in keys}


def _mapped(path: Path) -> Array:
    """The array in an .npy file, as a view of the file; never unpickles."""
    import numpy as np

    need_file(path, "input-file")
    problem = "is no .npy array"
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if isinstance(array, np.ndarray):
            return array
        array.close()
    except (OSError, ValueError, EOFError, SyntaxError, TokenError) as error:
        # Of what is no array, and of Python's objects, NumPy speaks at length about pickles.
        if "pickle" not in str(error):
            problem = str(error)
    raise refuse("input-file", problem, str(path), "save it with numpy.save")
