"""The cost of schedules, as columns: the pipeline's cycles, and a little for traffic.

0.3 % of the transfer time breaks ties between schedules whose moves compute hides. ``lower_bounds``
is what no arrangement of a tiling goes below, so that most tilings need not be priced. Both take a
space's cells, where they are known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tilewright.planning.cost.bounds import main_bandwidth
from tilewright.planning.cost.pipeline import Pipeline, transfer_cycles
from tilewright.planning.space.cells import Cells, cells_of
from tilewright.planning.space.footprint import Floats
from tilewright.planning.space.nests import Arrangement, arrangements, nests_of
from tilewright.planning.space.tilings import Space

TIE = 0.003
"""Share of the transfer time that is added to the cost."""


@dataclass(frozen=True)
class Priced:
    """One arrangement of a space's rows with its price."""

    arrangement: Arrangement
    cycles: Floats
    """Predicted cycles; infinite where the arrangement is not valid."""
    bytes: Floats
    """Bytes moved from and to main memory."""
    cost: Floats
    """The quantity that is compared: cycles, and a little for the traffic."""


def rough_bounds(space: Space) -> Floats:
    """Per tiling, no more than ``lower_bounds`` says, for a fraction of the work: the compute of
    the tiles that are cut short along no dim, and all bytes through main memory."""
    tile = space.tile()
    compute: Floats = np.ones(space.rows) * space.compute(tile)
    for dim, size in tile.items():
        compute = compute * (space.extents[dim] // size)
    moved, bandwidth = np.zeros(space.rows), main_bandwidth(space.machine)
    for use in space.uses:
        if use.move is not None and not use.elsewhere:
            moved = moved + space.total(use) * space.bytes_per_element(use)
    limit = np.maximum(compute, moved / bandwidth)
    return (limit + TIE * moved / bandwidth) * (1 - 2e-9)


def lower_bounds(space: Space, cells: Cells | None = None) -> Floats:
    """Per tiling, a cost that no order and no buffering of it can go below.

    Compute, the first tile's loads and the last one's store follow each other; loads queue up; all
    bytes pass main memory.
    """
    cells, rows = cells or cells_of(space), space.rows
    share = cells.count / cells.sum(cells.count, rows)[cells.row]
    compute = cells.sum(cells.count * cells.cycles, rows)
    bandwidth = main_bandwidth(space.machine)
    stores = [use for use in space.uses if use.output and use.move is not None]
    resident = {use.memory.name for use in stores}
    loads, moved, ends = np.zeros(rows), np.zeros(rows), np.zeros(rows)
    for use in space.uses:
        if use.move is None:
            continue
        weight = space.bytes_per_element(use)
        moved = moved + space.total(use) * weight * (not use.elsewhere)
        if use.output:
            continue
        spans = use.operand.role == "residual" or use.memory.name in resident
        if use.host or spans:
            # A part of another's transfer, or one that may span tiles: its bytes alone.
            loads = loads + space.total(use) * weight / use.move.bytes_per_cycle
            continue
        box = cells.boxes[use.name] * weight[cells.row]
        dims = [dim for dim in space.extents if dim in use.operand.dims]
        once = cells.sum(share * transfer_cycles(use, box), rows) + space.further_latency(use)
        loads = loads + once * space.trips_of(dims)
        ends = ends + cells.sum(share * box, rows) / use.move.bytes_per_cycle
        ends = ends + (use.move.latency if use.move.in_flight == 1 else 0)
    limit = np.maximum(np.maximum(compute + ends, loads), moved / bandwidth)
    # Rounding of sums must not push a bound above the price that it bounds.
    return (limit + TIE * moved / bandwidth) * (1 - 1e-9)


def price(space: Space, cells: Cells | None = None) -> list[Priced]:
    """The price of every arrangement of every row of a space."""
    cells = cells or cells_of(space)
    bandwidth = main_bandwidth(space.machine)
    prices: list[Priced] = []
    parts: dict[bytes, tuple[Space, Cells]] = {}
    for nest in nests_of(space):
        of_nest: dict[tuple[bytes, ...], Priced] = {}
        for arrangement in arrangements(space, nest):
            rows = np.flatnonzero(arrangement.valid)
            if not rows.size:
                continue
            # Most orders in which operands claim memory come to the same slots.
            same = of_nest.get(slots := arrangement.key())
            if same is not None:
                prices.append(replace(same, arrangement=arrangement))
                continue
            # Few sets of rows are those of many arrangements.
            key = rows.tobytes()
            if key not in parts:
                every = rows.size == space.rows
                parts[key] = (space, cells) if every else (space.part(rows), cells.take(rows))
            pipeline = Pipeline(*parts[key], arrangement.take(rows))
            cycles, moved = np.full(space.rows, np.inf), np.zeros(space.rows)
            cycles[rows], moved[rows] = pipeline.cycles_and_bytes()
            of_nest[slots] = Priced(arrangement, cycles, moved, cycles + TIE * moved / bandwidth)
            prices.append(of_nest[slots])
    return prices
