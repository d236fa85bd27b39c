"""The rows of a sweep, and which of them no other row betters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.errors import choose, refuse
from tilewright.machine.energy import joules
from tilewright.runtime.glance import duration
from tilewright.sweeps.space import Point, Value
from tilewright.system.extras import library

if TYPE_CHECKING:
    from tilewright.sweeps.space import Space

SHOWN = 40
"""The number of rows up to which all are shown; of more, the Pareto front alone."""

FIGURES = (
    *("cycles", "seconds", "bound_cycles", "granule_bound_cycles", "moved_bytes"),
    *("host_seconds", "total_seconds", "energy_pj", "area_mm2", "kernels", "host_kernels"),
)
"""The columns of figures that every row may have."""

OPTIONAL = ("host_seconds", "total_seconds", "energy_pj", "area_mm2")
"""Columns of what not every machine describes, which are there where some row has a figure."""

PEAK = "peak_bytes."
"""Before the name of a memory: the most of its bytes that a kernel takes."""


@dataclass(frozen=True)
class Row:
    """The costs of one point of a sweep, or the reason why it is refused."""

    model: str
    planner: str
    values: Mapping[str, Value] = field(default_factory=dict[str, Value])
    """The varied keys of the machine."""
    status: str = "planned"
    """The result of planning: ``planned`` or ``refused``."""
    cycles: float | None = None
    """Predicted, of all kernels of the accelerator."""
    seconds: float | None = None
    """The cycles at the machine's clock."""
    host_seconds: float | None = None
    """The predicted time of the host's kernels; None where the machine describes no host."""
    total_seconds: float | None = None
    """The sum of both, which take turns; None where the machine describes no host."""
    bound_cycles: float | None = None
    """The physical bound, in cycles."""
    granule_bound_cycles: float | None = None
    moved_bytes: int | None = None
    """Through main memory, both ways."""
    peak_bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    """By memory on the chip: the most that a kernel takes."""
    energy_pj: float | None = None
    area_mm2: float | None = None
    kernels: int | None = None
    """Kernels of the accelerator."""
    host_kernels: int | None = None
    """Kernels that the host runs, whose time ``cycles`` and ``seconds`` have not."""
    planned_at: str = ""
    """The sizes of memories of another point, whose plan this is (memory_sizes.py); "" for the
    point's own."""
    code: str = ""
    """The code of the refusal; "" if planned."""
    reason: str = ""
    pareto: bool = False
    """True if no other row of its model is better in one objective and as good in all."""

    def figure(self, name: str) -> float | None:
        """A figure or a varied number by the name of its column; None where it is not known."""
        if name in FIGURES:
            value = getattr(self, name)
        elif name.startswith(PEAK):
            value = self.peak_bytes.get(name.removeprefix(PEAK))
        else:
            value = self.values.get(name)
        return None if value is None or isinstance(value, str) else float(value)

    def _repr_html_(self) -> str:
        return html_of([self])

    def to_json(self) -> dict[str, Any]:
        """A JSON object that ``from_json`` reads."""
        return asdict(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Row:
        """Read what ``to_json`` gave; raises TypeError on anything else."""
        return Row(**value)

    def of(self, point: Point) -> Row:
        """The same figures as those of a point: a file may have another name in another sweep."""
        return replace(self, model=point.model, planner=point.planner, values=dict(point.values))


assert {"cycles", "energy_pj"} <= {each.name for each in fields(Row)}


class Rows(list[Row]):
    """The rows of a sweep, in the order of its points."""

    def table(self) -> tuple[list[str], list[dict[str, Any]]]:
        """The names of the columns, and each row's values by column; None where there is none."""
        keys = list(dict.fromkeys(key for row in self for key in row.values))
        memories = list(dict.fromkeys(name for row in self for name in row.peak_bytes))
        optional = [n for n in OPTIONAL if any(getattr(row, n) is not None for row in self)]
        borrowed = ["planned_at"] if any(row.planned_at for row in self) else []
        columns = [
            *("model", "planner", *keys, "status", *FIGURES[:5]),
            *(f"{PEAK}{name}" for name in sorted(memories)),
            *(*optional, "kernels", "host_kernels", *borrowed, "pareto", "code", "reason"),
        ]
        lines: list[dict[str, Any]] = []
        for row in self:
            line = {name: getattr(row, name) for name in columns if hasattr(row, name)}
            line |= {key: row.values.get(key) for key in keys}
            line |= {f"{PEAK}{name}": row.peak_bytes.get(name) for name in memories}
            lines.append({name: line[name] for name in columns})
        return columns, lines

    def _repr_html_(self) -> str:
        return html_of(self)

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame; refuses (``sweep-extra``) where pandas is missing."""
        columns, lines = self.table()
        pandas = library("pandas", "sweep", "sweep-extra", "DataFrames")
        return pandas.DataFrame(lines, columns=columns)


@dataclass(frozen=True)
class Objective:
    """A column that is to be small, or large (``-NAME``)."""

    name: str
    largest: bool = False

    def cost(self, row: Row) -> float | None:
        """The figure to be minimised; None where the row has no such figure."""
        value = row.figure(self.name)
        return None if value is None else -value if self.largest else value


def objectives_of(
    names: Sequence[str], space: Space, memories: Sequence[str], *, host: bool = False
) -> list[Objective]:
    """The objectives of some names; without any, the least seconds by the least of all that varies.
    Where the machine describes its ``host``, these are the seconds with the host's.

    Raises TilewrightError (``sweep-objective``) for a name of no column of numbers.
    """
    varied = [
        axis.key
        for axis in space.axes
        if len(axis.values) > 1 and not any(isinstance(value, str) for value in axis.values)
    ]
    known = [*FIGURES, *(f"{PEAK}{name}" for name in memories), *varied]
    objectives = [Objective(name.removeprefix("-"), name.startswith("-")) for name in names]
    for objective in objectives:
        if objective.name not in known:
            reason = "no column of numbers that vary has this name"
            raise refuse("sweep-objective", reason, objective.name, choose(objective.name, known))
    return objectives or [
        Objective(name) for name in ("total_seconds" if host else "seconds", *varied)
    ]


def marked(rows: Sequence[Row], objectives: Sequence[Objective]) -> Rows:
    """The rows, with those marked that no other one of their model betters.

    A row with more kernels on the host, which no figure has the time of, betters none with fewer.
    """
    chosen: set[int] = set()
    for model in dict.fromkeys(row.model for row in rows):
        numbers: list[int] = []
        costs: list[list[float]] = []
        for number, row in enumerate(rows):
            cost = [objective.cost(row) for objective in objectives]
            known = [each for each in cost if each is not None]
            if row.model == model and row.status == "planned" and len(known) == len(objectives):
                numbers.append(number)
                costs.append([*known, row.host_kernels or 0])
        chosen |= {numbers[place] for place in front(np.array(costs))}
    return Rows(replace(row, pareto=number in chosen) for number, row in enumerate(rows))


def front(costs: np.ndarray) -> list[int]:
    """The places of the rows of costs that no other row betters; equal rows are all there."""
    if not len(costs):
        return []
    # A row is bettered only by one that comes before it in this order.
    order = np.lexsort(costs.T[::-1])
    kept = np.empty_like(costs)
    count, places = 0, list[int]()
    for place in order:
        cost, others = costs[place], kept[:count]
        better = (others <= cost).all(axis=1) & (others < cost).any(axis=1)
        if not better.any():
            kept[count] = cost
            count += 1
            places.append(int(place))
    return sorted(places)


def shown_rows(rows: Sequence[Row]) -> list[Row]:
    """All of a few rows, of many those that no other row betters."""
    return list(rows) if len(rows) <= SHOWN else [row for row in rows if row.pareto]


def lines_of(rows: Sequence[Row], shown: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """The heads of the columns in which some of the rows differ or have a figure, and the texts of
    those that are shown."""
    keys = list(dict.fromkeys(key for row in rows for key in row.values))
    models = len({row.model for row in rows}) > 1
    planners = len({row.planner for row in rows}) > 1
    heads = [*(["model"] * models), *(["planner"] * planners), *keys]
    heads += ["cycles", "seconds", "of bound", "moved bytes"]
    lines = [[*_settings(row, keys, models, planners), *_costs(row)] for row in shown]

    def add(head: str, texts: Sequence[str]) -> None:
        heads.append(head)
        for line, text in zip(lines, texts, strict=True):
            line.append(text)

    if any(row.total_seconds is not None for row in rows):
        add("with host", [_or_dash(row.total_seconds, duration) for row in shown])
    if any(row.energy_pj is not None for row in rows):
        add("energy", [_or_dash(row.energy_pj, joules) for row in shown])
    if any(row.area_mm2 is not None for row in rows):
        add("mm2", [_or_dash(row.area_mm2, "{:.3g}".format) for row in shown])
    if len({row.host_kernels for row in rows if row.status == "planned"}) > 1:
        add("on host", [_or_dash(row.host_kernels, str) for row in shown])
    return heads, lines


def html_of(rows: Sequence[Row]) -> str:
    """The rows that are shown, at most ``SHOWN``, as a table of HTML."""
    from tilewright.runtime.notebook import columns

    shown = shown_rows(rows)[:SHOWN]
    heads, lines = lines_of(rows, shown)
    title = f"{len(shown):,} of {len(rows):,} points"
    if any(row.pareto for row in shown):
        title += "; * no other row is better in one objective and as good in all"
    for row, line in zip(shown, lines, strict=True):
        line.insert(0, "*" if row.pareto else "")
        line.append(row.code)
    refused = any(row.code for row in shown)
    if not refused:
        lines = [line[:-1] for line in lines]
    return columns(title, ["", *heads, *(["code"] * refused)], lines)


def _or_dash(value: Any, text: Any) -> str:
    return "-" if value is None else text(value)


def _settings(row: Row, keys: list[str], models: bool, planners: bool) -> list[str]:
    """The choices of a row, as text."""
    first = [*([Path(row.model).name] * models), *([row.planner] * planners)]
    return [*first, *(_text(row.values.get(key)) for key in keys)]


def _costs(row: Row) -> list[str]:
    """The costs of a row, as text."""
    if row.cycles is None or row.seconds is None:
        return [row.status, "-", "-", "-"]
    bound = (row.granule_bound_cycles or 0.0) / row.cycles if row.cycles else 1.0
    moved = f"{row.moved_bytes or 0:,}"
    return [f"{row.cycles:,.0f}", duration(row.seconds), f"{bound:.1%}", moved]


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
