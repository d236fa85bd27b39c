"""Plans for every length: a package with one free dim, compiled ahead for a few of its sizes.

Where a target's programs take a length when they run (``Target.take_lengths``), a plan for the
largest size is right for all below it, and a few plans leave short runs little to do in vain. Each
is an ordinary package in ``plans/SIZE`` of the package. That a model is the same network at every
size is found out by comparing its graph at several of them (graph/free_axes.py), and that nothing
after a run's end is read, in the target's part of each plan. Where it is not so there are no
plans, the reason is a note of the package, and each size is compiled when it is first used.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from tilewright.compiler.build import bound, emit
from tilewright.errors import TilewrightError, refuse
from tilewright.frontends import Opened
from tilewright.graph.dialect import NetworkOp, network_of
from tilewright.graph.free_axes import same_but_for
from tilewright.graph.weights import Weights
from tilewright.ir import ModuleOp
from tilewright.ir.passes import WeightStore
from tilewright.runtime.executable import Progress
from tilewright.runtime.manifest import PLANS, Manifest, read_own
from tilewright.runtime.open_package import Recipe, write_open_package
from tilewright.shapes.forms import Bounds
from tilewright.shapes.settlement import Settled
from tilewright.targets.base import find_target

MOST_PLANS = 3
"""Plans of a package."""

SHORT = 32
"""Sizes up to which one plan serves all."""

LONGEST = 4096
"""The largest size that is planned for ahead."""

BLOCK = 16
"""Plans' sizes are multiples of it, but for the largest."""


def write_with_plans(
    directory: Path, *, source: Opened, settled: Settled, recipe: Recipe, progress: Progress
) -> None:
    """Fill an empty directory with an open package and its plans, if there can be some."""
    write_open_package(directory, source=source, settled=settled, recipe=recipe)
    if not find_target(recipe.target).take_lengths:
        return
    manifest = read_own(directory)
    try:
        sizes = _write_plans(directory, manifest, progress)
    except TilewrightError as error:
        shutil.rmtree(directory / PLANS, ignore_errors=True)
        problem = error.problems[0]
        where = f" ({problem.where})" if problem.where else ""
        note = f"each size is compiled when it is first used: {problem.reason}{where}"
        manifest = replace(manifest, notes=(*manifest.notes, note))
        sizes = ()
    assert manifest.open_model is not None
    opened = replace(manifest.open_model, plans=sizes)
    replace(manifest, open_model=opened).write(directory)


def plan_sizes(bounds: Bounds) -> tuple[int, ...]:
    """The sizes that are planned for, ascending: the largest, and quarters down to ``SHORT``."""
    sizes = [bounds.high]
    while len(sizes) < MOST_PLANS and sizes[-1] > SHORT:
        quarter = -(-sizes[-1] // (4 * BLOCK)) * BLOCK
        if quarter < bounds.low:
            break
        sizes.append(quarter)
    return tuple(reversed(sizes))


def _write_plans(directory: Path, manifest: Manifest, progress: Progress) -> tuple[int, ...]:
    assert manifest.open_model is not None
    if len(manifest.open_model.dims) != 1:
        names = ", ".join(dim.name for dim in manifest.open_model.dims)
        raise refuse("length-dims", f"a program takes one length, and {names} are free")
    (dim,) = manifest.open_model.dims
    if dim.high > LONGEST:
        raise refuse("length-dims", f"{dim.name} is up to {dim.high}; {LONGEST} are planned for")
    sizes = plan_sizes(dim.bounds)
    free = {
        tensor.name: axes
        for tensor in manifest.inputs
        if (axes := tuple(n for n, size in enumerate(tensor.shape) if size == dim.name))
    }
    _compare(directory, manifest, dim.name, sizes, progress)
    for size in sizes:
        progress(f"plan for {dim.name} up to {size}", 0, 0)
        place = directory / PLANS / str(size)
        place.mkdir(parents=True)
        state = bound(directory, manifest, {dim.name: size}, progress, lengths=True)
        emit(state, place, free=free)
    return sizes


def _compare(
    directory: Path, manifest: Manifest, name: str, sizes: tuple[int, ...], progress: Progress
) -> None:
    """Refuse (``length-structure``) a model that is another network at some size."""

    def graph(size: int) -> tuple[NetworkOp, WeightStore]:
        progress(f"compare the graph at {name} {size}", 0, 0)
        state = bound(directory, manifest, {name: size}, until="graph passes", lengths=True)
        return network_of(state.network), state.weights

    assert manifest.open_model is not None
    (dim,) = manifest.open_model.dims
    longest = sizes[-1]
    largest = graph(longest)
    for size in sorted({max(dim.low, 2), *sizes[:-1], longest - 1}):
        if max(dim.low, 2) <= size < longest:
            same_but_for(largest, graph(size), (longest, size))


def reference_of(
    directory: Path, manifest: Manifest, sizes: Mapping[str, int]
) -> tuple[ModuleOp, Weights]:
    """The graph that a specialisation would keep for checks, and its constants."""
    state = bound(directory, manifest, sizes, until="numbers, layouts, memory")
    return state.network, state.weights
