"""Plans for every size: a package with free dims, compiled ahead for a few of their sizes.

Where a target's programs take sizes when they run (``Target.sizes_taken``), a plan for the largest
ones is right for all below them, and a few plans leave small runs little to do in vain. Each is an
ordinary package in ``plans/SIZE`` of the package. That a model is the same network at every
size is found out by comparing its graph at several of them (graph/free_axes.py), and that nothing
after a run's end is read, in the target's part of each plan. Where it is not so there are no
plans, the reason is a note of the package, and each size is compiled when it is first used.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from tilewright.compiler.build import bound, emit
from tilewright.errors import TilewrightError, refuse
from tilewright.frontends import Opened
from tilewright.graph.dialect import NetworkOp, network_of
from tilewright.graph.free_axes import Differing, FreeSize, same_but_for
from tilewright.graph.weights import Weights
from tilewright.ir import ModuleOp
from tilewright.ir.passes import WeightStore
from tilewright.runtime.executable import Progress
from tilewright.runtime.manifest import PLANS, Manifest, plan_name, read_own
from tilewright.runtime.open_package import Recipe, write_open_package
from tilewright.shapes.forms import Bounds
from tilewright.shapes.settlement import Settled
from tilewright.targets.base import Target, find_target

LONGEST = 4096
"""The largest size that is planned for ahead."""


def write_with_plans(
    directory: Path, *, source: Opened, settled: Settled, recipe: Recipe, progress: Progress
) -> None:
    """Fill an empty directory with an open package and its plans, if there can be some."""
    write_open_package(directory, source=source, settled=settled, recipe=recipe)
    target = find_target(recipe.target)
    if not target.sizes_taken:
        return
    manifest = read_own(directory)
    try:
        plans = _write_plans(directory, manifest, target, progress)
    except TilewrightError as error:
        shutil.rmtree(directory / PLANS, ignore_errors=True)
        problem = error.problems[0]
        where = f" ({problem.where})" if problem.where else ""
        note = f"each size is compiled when it is first used: {problem.reason}{where}"
        manifest = replace(manifest, notes=(*manifest.notes, note))
        plans = ()
    assert manifest.open_model is not None
    opened = replace(manifest.open_model, plans=plans)
    replace(manifest, open_model=opened).write(directory)


def plans_of(dims: Sequence[Bounds], target: Target) -> tuple[tuple[int, ...], ...]:
    """Sizes of all dims that are planned for, ascending: the largest of each come together, then
    the next ones, or the last of a dim that has no further."""
    each = [
        tuple(size for size in target.plan_sizes(bounds.high) if size >= bounds.low)
        for bounds in dims
    ]
    count = max(map(len, each))
    return tuple(
        tuple(sizes[min(number, len(sizes) - 1)] for sizes in each)
        for number in reversed(range(count))
    )


def _write_plans(
    directory: Path, manifest: Manifest, target: Target, progress: Progress
) -> tuple[tuple[int, ...], ...]:
    assert manifest.open_model is not None
    dims = manifest.open_model.dims
    names = [dim.name for dim in dims]
    taken = target.sizes_taken
    if len(dims) > taken:
        listed = ", ".join(names)
        sizes = "one size" if taken == 1 else f"{taken} sizes"
        raise refuse("length-dims", f"a program takes {sizes}, and {listed} are free")
    for dim in dims:
        if dim.high > LONGEST:
            reason = f"{dim.name} is up to {dim.high}; {LONGEST} are planned for"
            raise refuse("length-dims", reason)
    plans = plans_of([dim.bounds for dim in dims], target)
    inputs = {
        name: {
            tensor.name: axes
            for tensor in manifest.inputs
            if (axes := tuple(n for n, size in enumerate(tensor.shape) if size == name))
        }
        for name in names
    }
    graphs = _Graphs(directory, manifest, progress)
    graphs.compare(plans)
    for plan in plans:
        sizes = dict(zip(names, plan, strict=True))
        free = {
            name: FreeSize(inputs[name], graphs.constants(plan, number))
            for number, name in enumerate(names)
        }
        progress(f"plan for {_told(sizes)}", 0, 0)
        place = directory / PLANS / plan_name(plan)
        place.mkdir(parents=True)
        state = bound(directory, manifest, sizes, progress, lengths=True)
        emit(state, place, free=free)
    return plans


def _told(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} up to {size}" for name, size in sizes.items())


class _Graphs:
    """The model's graphs at sizes of its free dims, compared with one another."""

    def __init__(self, directory: Path, manifest: Manifest, progress: Progress) -> None:
        assert manifest.open_model is not None
        self.dims = manifest.open_model.dims
        self._at = cache(self._bound)
        self._directory, self._manifest, self._progress = directory, manifest, progress

    def _bound(
        self, plan: tuple[int, ...], until: str = "graph passes"
    ) -> tuple[NetworkOp, WeightStore]:
        sizes = {dim.name: size for dim, size in zip(self.dims, plan, strict=True)}
        listed = ", ".join(f"{name} {size}" for name, size in sizes.items())
        self._progress(f"compare the graph at {listed}", 0, 0)
        state = bound(self._directory, self._manifest, sizes, until=until, lengths=True)
        return network_of(state.network), state.weights

    def _compared(self, plan: tuple[int, ...], other: tuple[int, ...]) -> Differing:
        return same_but_for(self._at(plan), self._at(other), {*zip(plan, other, strict=True)})

    def compare(self, plans: Sequence[tuple[int, ...]]) -> None:
        """Refuse (``length-structure``) a model that is another network at some size: where one
        dim is smaller, and where all are.

        Passes on the graph make another network of size 1, as an axis of one index may be moved at
        no cost; before them it has to be the same.
        """
        longest = plans[-1]
        lowest = [max(dim.low, 2) for dim in self.dims]
        compared = {tuple(map(max, plan, lowest)) for plan in plans[:-1]}
        compared |= {tuple(map(max, [size - 1 for size in longest], lowest))}
        for number, low in enumerate(lowest):
            compared |= {(*longest[:number], low, *longest[number + 1 :])}
        for plan in sorted(compared - {longest}):
            if all(map(int.__le__, plan, longest)):
                self._compared(longest, plan)
        for number, dim in enumerate(self.dims):
            if dim.low <= 1 < longest[number]:
                plan = (*longest[:number], 1, *longest[number + 1 :])
                whole, one = (self._at(each, "import") for each in (longest, plan))
                same_but_for(whole, one, {*zip(longest, plan, strict=True)})

    def constants(self, plan: tuple[int, ...], number: int) -> dict[str, tuple[int, ...]]:
        """The axes of constants that are as long as the size of one dim, by symbol; refuses
        (``length-kernel``) what takes the size otherwise."""
        dim, size = self.dims[number], plan[number]
        if size == dim.low:
            return {}  # No run of the plan has less.
        # A network of size 1 is often another.
        other = size - 1 if size > 2 else size + 1
        differing = self._compared(plan, (*plan[:number], other, *plan[number + 1 :]))
        differing.check(self._at(plan)[0])
        return differing.constants()


def reference_of(
    directory: Path, manifest: Manifest, sizes: Mapping[str, int]
) -> tuple[ModuleOp, Weights]:
    """The graph that a specialisation would keep for checks, and its constants."""
    state = bound(directory, manifest, sizes, until="numbers, layouts, memory")
    return state.network, state.weights
