"""Options, progress, results as text or JSON, and refusals, shared by all commands."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.refusals import errors, on_terminal, refusals
from tilewright.errors import refuse
from tilewright.system.choices import PLANNERS, target_names
from tilewright.system.files import written

if TYPE_CHECKING:
    from tilewright.ir.types import Array
    from tilewright.runtime.cache import Cache


def completion(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Function that completes one of some names at a tab; the names are asked for at that time."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


complete_target = completion(target_names)


TargetOption = Annotated[
    str,
    typer.Option(
        "--target",
        "-t",
        help="A target's name, or a machine file (.toml).",
        autocompletion=complete_target,
    ),
]
OptionalTargetOption = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        help="A target's name or a machine file [default: cpu].",
        autocompletion=complete_target,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Vary the machine: memory.sb.bytes=65536."),
]
COLUMNS = 80
"""Characters in a line of output where there is no terminal."""

NARROWEST = 40
"""Columns of the narrowest terminal for which lines are folded."""

MODELS = "A model: .onnx, .prototxt, .mlir (StableHLO) or .tflite."

ShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=1x3x224x224",
        help="An input's shape, or a free dim's size or bounds: batch=4, batch=1..8.",
    ),
]
ConstantOption = Annotated[
    list[str] | None,
    typer.Option(
        "--constant",
        metavar="NAME=1,2,3",
        help="Make an input constant, so that sizes and branches may depend on it.",
    ),
]
CaffemodelOption = Annotated[
    Path | None,
    typer.Option("--caffemodel", metavar="FILE", help="The weights of a prototxt."),
]
ExactMemoryOption = Annotated[
    bool,
    typer.Option("--exact-memory", help="Search for the plan of memory with the least peak."),
]
ExactOption = Annotated[
    bool,
    typer.Option(
        "--exact-convolution",
        help="Use no method that rounds more (Winograd's, products in two pieces of bfloat16).",
    ),
]
ThreadsOption = Annotated[
    int,
    typer.Option(
        "--threads", min=1, max=1024, help="Threads that share the work on the cpu target."
    ),
]
CpuOption = Annotated[
    str | None,
    typer.Option(
        "--cpu",
        metavar="PROCESSOR",
        help="Make C for amx, avx512, avx2, sse2, neon, portable, cortex-m7, or as a "
        "calibration.json says.",
    ),
]
PlannerOption = Annotated[
    str,
    typer.Option(
        "--planner",
        metavar="NAME",
        help="Planner of schedules: "
        + "; ".join(f"{name}: {planner.help}" for name, planner in PLANNERS.items())
        + ".",
    ),
]
DatabaseOption = Annotated[
    Path | None,
    typer.Option(
        "--database",
        metavar="FILE",
        help="Use schedules that tilewright tune measured.",
    ),
]
KernelsOption = Annotated[
    bool, typer.Option("--kernels", help="List every kernel, the slowest first, with its schedule.")
]
NoCacheOption = Annotated[
    bool,
    typer.Option("--no-cache", help="Neither read nor write the cache of compiled packages."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


def print_json(value: Any) -> None:
    """Print a result for machines."""
    typer.echo(json.dumps(value, indent=1, allow_nan=False, default=_plain))


def show(as_json: bool, facts: Any, text: object) -> None:
    """Print a result: ``facts`` for machines, or a text for people."""
    if as_json:
        print_json(facts)
    else:
        say(str(text))


def _plain(value: Any) -> Any:
    import numpy as np

    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value)} is not for JSON")


@contextmanager
def progress(quiet: bool = False) -> Generator[Callable[[str, int, int], None]]:
    """A progress line on standard error; plain lines when that is no terminal."""
    if quiet:
        yield lambda activity, done, total: None
    elif not on_terminal():
        seen: set[str] = set()

        def plain(activity: str, done: int, total: int) -> None:
            if activity not in seen:
                seen.add(activity)
                errors().print(f"{activity} ...")

        yield plain
    else:
        from tilewright.cli.progress import bar

        with bar() as show:
            yield show


def machine_values(settings: list[str] | None) -> dict[str, Any]:
    """Read ``--set KEY=VALUE`` options; the machine says which values its keys take."""
    values: dict[str, Any] = {}
    for setting in settings or []:
        key, separator, text = setting.partition("=")
        if not separator or not key.strip() or not text.strip():
            raise refuse("option-set", f"{setting!r} is not KEY=VALUE", "--set")
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        value = int(number) if number.is_integer() else number
        if key.strip() in values:
            raise refuse("option-set", f"{key.strip()} is given twice", "--set")
        values[key.strip()] = value if number == number else text.strip()
    return values


def shapes(options: list[str] | None) -> dict[str, str]:
    """Read ``--shape NAME=1x3x224x224`` options; the text after the name stays as it is."""
    read: dict[str, str] = {}
    for option in options or []:
        name, separator, text = option.rpartition("=")
        if not separator or not name or not text:
            raise refuse(
                "option-shape", f"{option!r} is not NAME=1x3x224x224", "--shape",
                "NAME is an input, or a free dim as in batch=4 or batch=1..8",
            )  # fmt: skip
        if name in read:
            raise refuse("option-shape", f"{name!r} is given twice", "--shape")
        read[name] = text
    return read


def constants(options: list[str] | None) -> dict[str, str]:
    """Read ``--constant NAME=1,2,3`` options; the text after the name stays as it is."""
    read: dict[str, str] = {}
    for option in options or []:
        name, separator, text = option.rpartition("=")
        if not separator or not name or name in read:
            raise refuse(
                "option-constant", f"{option[:80]!r} is not NAME=1,2,3, or is given twice",
                "--constant",
            )  # fmt: skip
        read[name] = text
    return read


def cache() -> Cache:
    """The cache that the environment names.

    TILEWRIGHT_CACHE is its directory, TILEWRIGHT_CACHE_BYTES and TILEWRIGHT_CACHE_ENTRIES bound it.
    """
    from tilewright.runtime.cache import MOST_BYTES, MOST_ENTRIES, Cache

    directory = os.environ.get("TILEWRIGHT_CACHE") or None
    bounds: dict[str, int] = {}
    for name, normal in (("BYTES", MOST_BYTES), ("ENTRIES", MOST_ENTRIES)):
        variable = f"TILEWRIGHT_CACHE_{name}"
        text = os.environ.get(variable, "")
        if text and not re.fullmatch(r"\d{1,18}", text):
            raise refuse("option-cache", f"{text[:80]!r} is not a number", variable)
        bounds[name] = int(text) if text else normal
    return Cache(directory, most_bytes=bounds["BYTES"], most_entries=bounds["ENTRIES"])


def save_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write an .npz file, whole or not at all; raises TilewrightError (``output-failed``)."""
    import numpy as np

    # NumPy adds an ending to a name that has none.
    special = path.exists() and not path.is_file()
    place = path if special or path.suffix == ".npz" else path.with_name(f"{path.name}.npz")
    with written(place) as fresh, fresh.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def describe(outputs: Mapping[str, Array]) -> list[dict[str, Any]]:
    """Name, shape and dtype of outputs, for JSON."""
    return [
        {"name": name, "shape": list(array.shape), "dtype": str(array.dtype)}
        for name, array in outputs.items()
    ]


def not_finite(outputs: Mapping[str, Array]) -> list[str]:
    """Names of the outputs with elements that are infinite or no numbers."""
    import numpy as np

    floats = {n: a for n, a in outputs.items() if np.issubdtype(a.dtype, np.inexact)}
    return [name for name, array in floats.items() if not np.isfinite(array).all()]


def say(text: str) -> None:
    """Print a result for people: no line is wider than the terminal, or than 80 columns."""
    wide = sys.stdout.isatty()
    columns = shutil.get_terminal_size().columns if wide else COLUMNS
    typer.echo("\n".join(fold(text.rstrip("\n"), max(columns, NARROWEST))))


def fold(text: str, columns: int) -> list[str]:
    """The lines of a text, those that are too wide cut at spaces; what follows is indented.

    Words stay whole, however long: paths and names are copied.
    """
    lines: list[str] = []
    for line in text.split("\n"):
        if len(line) <= columns:
            lines.append(line)
            continue
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        lines += textwrap.wrap(
            line, columns, subsequent_indent=indent, break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
    return lines


def write(text: str) -> None:
    """Print what programs read, too, as assembly and tables of Markdown: its lines stay whole."""
    typer.echo(text.rstrip("\n"))


__all__ = ["refusals"]
