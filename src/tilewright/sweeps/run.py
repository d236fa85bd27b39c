"""A sweep from its options to its rows and its file."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import tilewright
from tilewright.compiler.pipeline import resolve
from tilewright.errors import choose, refuse
from tilewright.numerics.formats import numbers_of
from tilewright.planning.planners.registry import check_planner
from tilewright.runtime.digest import source_digest
from tilewright.runtime.executable import Progress, quiet
from tilewright.runtime.manifest import digest_of_file
from tilewright.sweeps.evaluate import Study, check_model
from tilewright.sweeps.journal import Journal, key_of
from tilewright.sweeps.memory_sizes import never_slower
from tilewright.sweeps.places import place_of
from tilewright.sweeps.rows import Row, Rows, marked, objectives_of
from tilewright.sweeps.search import batches, search_of
from tilewright.sweeps.space import Axis, Point, merged, space_of
from tilewright.system.choices import EFFORTS
from tilewright.system.extras import library
from tilewright.system.files import need_file, written

ENDINGS = (".csv", ".parquet")


def sweep(
    models: str | Path | Sequence[str | Path],
    target: str = "cpu",
    vary: Mapping[str, Sequence[Any] | str] | Sequence[Axis] = (),
    *,
    output: str | Path | None = None,
    search: str = "grid",
    samples: int | None = None,
    seed: int = 0,
    objectives: Sequence[str] = (),
    planner: str = "model",
    effort: str = "quick",
    values: Mapping[str, Any] | None = None,
    shapes: Mapping[str, str] | None = None,
    constants: Mapping[str, Any] | None = None,
    caffemodel: str | Path | None = None,
    numbers: str | None = None,
    on: str | None = None,
    jobs: int = 1,
    progress: Progress = quiet,
) -> Rows:
    """Plan models on variants of a machine; a row for every point, in an order of their own.

    ``vary`` has the values of each key, as a sequence or as text:
    ``{"memory.sram.bytes": "64K..4M:2x", "move.load.bytes_per_cycle": [4, 8]}``. Keys are those of
    ``Machine.with_values``, ``planner`` and ``model``. ``search`` is ``grid``, ``random`` or
    ``pareto`` (extra ``sweep``), the last two with ``samples`` and ``seed``; ``objectives`` name
    columns that are to be small (``-NAME``: large), by which rows are marked.

    With an ``output`` (.csv, or .parquet by the extra ``sweep``), finished rows are kept in a
    journal beside it, from which a sweep that was stopped goes on. ``effort="full"`` chooses
    schedules as ``compile`` does. ``on="dask"`` runs on a local Dask cluster of ``jobs`` workers,
    ``on="dask://HOST:PORT"`` on that scheduler's (extra ``cluster``); else ``jobs`` processes do.

    A point that is refused is a row with a code. Raises TilewrightError for what is wrong with the
    sweep itself; finished rows are then in the journal.
    """
    names = [str(model) for model in ([models] if isinstance(models, str | Path) else models)]
    axes = merged(vary) if isinstance(vary, Mapping) else list(vary)
    if effort not in EFFORTS:
        raise refuse("sweep-search", f"no effort {effort[:80]!r}", help=choose(effort, EFFORTS))
    chosen, machine = resolve(target, None, values)
    space = space_of(names, planner, axes, machine)
    for each in space.planners:
        check_planner(each)
    memories = [memory.name for memory in machine.memories if memory.name != machine.main]
    host = machine.host is not None
    aims = objectives_of(objectives, space, memories, host=host)
    points, count = search_of(search, space, aims, samples, seed)
    place = None if output is None else checked(Path(output))
    if numbers is not None:
        numbers_of(numbers)
    study = Study(
        chosen.name,
        machine.to_json(),
        _digests(space.models, caffemodel),
        dict(shapes or {}),
        dict(constants or {}),
        None if caffemodel is None else str(caffemodel),
        numbers,
        effort,
        f"{tilewright.__version__} {source_digest()}",
    )
    for name in space.models:
        check_model(study, name)
    journal = None if place is None else Journal(journal_of(place))
    try:
        rows = _run(study, points, count, journal, on, jobs, progress)
    finally:
        if journal is not None:
            journal.close()
    result = marked(never_slower(rows, machine), aims)
    if place is not None:
        write(result, place)
    return result


def _run(
    study: Study,
    points: Any,
    count: int,
    journal: Journal | None,
    on: str | None,
    jobs: int,
    progress: Progress,
) -> list[Row]:
    """The rows of all points that a search tries, from the journal or from a place."""
    done = 0
    known: dict[str, Row] = {} if journal is None else journal.rows

    with place_of(on, jobs) as place:

        def rows_of(batch: Sequence[Point]) -> list[Row]:
            nonlocal done
            keys = {point: key_of(study, point) for point in batch}
            left = [point for point in batch if keys[point] not in known]
            done += len(batch) - len(left)
            progress("sweep", done, count)
            for point, row in place(study, left):
                if journal is None:
                    known[keys[point]] = row
                else:
                    journal.add(keys[point], row)
                done += 1
                progress("sweep", done, count)
            return [known[keys[point]].of(point) for point in batch]

        return [row for _, row in batches(points, rows_of)]


def _digests(models: Sequence[str], caffemodel: str | Path | None) -> dict[str, str]:
    """SHA-256 of each model that points read, and of the caffemodel; refuses (``model-missing``) a
    model that cannot be read. The reader of a model reports a missing caffemodel."""
    digests: dict[str, str] = {}
    for name in models:
        need_file(Path(name), "model-missing")
        try:
            digests[name] = digest_of_file(Path(name)).sha256
        except OSError as error:
            raise refuse("model-missing", error.strerror or str(error), name) from error
    if caffemodel is not None:
        with suppress(OSError):
            digests[str(caffemodel)] = digest_of_file(Path(caffemodel)).sha256
    return digests


def checked(place: Path) -> Path:
    """A place for rows; refuses (``sweep-output``) an ending of no format, or of one that needs a
    package that is not installed (``sweep-extra``)."""
    if place.suffix.lower() not in ENDINGS:
        reason = f"rows are written as {' or '.join(ENDINGS)}"
        raise refuse("sweep-output", reason, str(place), "name such a file")
    if place.suffix.lower() == ".parquet":
        _parquet()
    return place


def journal_of(output: Path) -> Path:
    """The file of the finished rows of a sweep with that output."""
    return output.with_name(f"{output.name}.journal")


def write(rows: Rows, place: Path) -> None:
    """Write rows as CSV or Parquet, whole or not at all."""
    data = parquet_of(rows) if place.suffix.lower() == ".parquet" else csv_of(rows).encode()
    with written(place) as fresh:
        fresh.write_bytes(data)


def csv_of(rows: Rows) -> str:
    """Rows as CSV, the columns' names first; whole numbers without a point."""
    columns, lines = rows.table()
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in line.items()} for line in lines)
    return text.getvalue()


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _parquet() -> tuple[Any, Any]:
    names = "pyarrow", "pyarrow.parquet"
    arrow, parquet = (library(n, "sweep", "sweep-extra", "Parquet files") for n in names)
    return arrow, parquet


def parquet_of(rows: Rows) -> bytes:
    """Rows as a Parquet file; a key whose values are of several types is text there."""
    arrow, parquet = _parquet()
    columns, lines = rows.table()
    arrays: list[Any] = []
    for name in columns:
        cells = [line[name] for line in lines]
        kinds = {type(cell) for cell in cells if cell is not None}
        if str in kinds and len(kinds) > 1:
            cells = [None if cell is None else str(cell) for cell in cells]
        elif float in kinds:
            cells = [None if cell is None else float(cell) for cell in cells]
        arrays.append(arrow.array(cells))
    sink = arrow.BufferOutputStream()
    parquet.write_table(arrow.table(arrays, names=columns), sink)
    return sink.getvalue().to_pybytes()
