"""Plans for every size: a package with free dims, compiled ahead for a few of their sizes.

A plan for the largest sizes is right for all below them, and a few plans leave small runs little to
do in vain. Each is an ordinary package in ``plans/SIZE`` of the package. That a model is the same
network at every size is found out by comparing its graph at several of them (graph/free_axes.py).
There are two kinds:

    kernels end     programs take the sizes (``Target.sizes_taken``), and their loops end there;
                    that nothing after a run's end is read is found out in the target's part
    operands end    on every target: the sizes are inputs of the network, all of each operand is
                    computed, and what sums or searches along an axis reads masked operands
                    (graph/run_sizes.py)

Where neither is possible there are no plans, the reason is a note of the package, and each size is
compiled when it is first used.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as replaced
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from tilewright.compiler.build import bound, emit, shapes_at
from tilewright.compiler.state import CompilationState
from tilewright.errors import TilewrightError, refuse
from tilewright.frontends import Imported, Opened, load
from tilewright.graph.dialect import NetworkOp, WeightOp, network_of
from tilewright.graph.free_axes import Differing, FreeSize, same_but_for
from tilewright.graph.operations import context
from tilewright.graph.passes.take_steps import TakeSteps
from tilewright.graph.run_sizes import Sample, end_inputs
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

MOST_REMAINDERS = 64
"""The largest number by which sizes may be divided that follow from one of a run."""

Plans = tuple[tuple[int, ...], ...]
"""Sizes of the free dims of each plan, ascending."""

Seen = tuple[NetworkOp, WeightStore]
"""A network and its constants."""


def write_with_plans(
    directory: Path, *, source: Opened, settled: Settled, recipe: Recipe, progress: Progress
) -> None:
    """Fill an empty directory with an open package and its plans, if there can be some."""
    write_open_package(directory, source=source, settled=settled, recipe=recipe)
    target = find_target(recipe.target)
    manifest = read_own(directory)
    model = manifest.open_model
    assert model is not None
    reason, plans = "", ()
    kinds: list[Callable[[_Graphs], Plans]] = [_kernels_end] if target.sizes_taken else []
    for write in (*kinds, _operands_end):
        try:
            if far := [dim for dim in model.dims if dim.high > LONGEST]:
                longest = f"{far[0].name} is up to {far[0].high}; {LONGEST} are planned for"
                raise refuse("length-dims", longest)
            plans = write(_Graphs(directory, manifest, target, progress))
        except TilewrightError as error:
            shutil.rmtree(directory / PLANS, ignore_errors=True)
            problem = error.problems[0]
            where = f" ({problem.where})" if problem.where else ""
            reason = f"{problem.reason}{where}"
        else:
            break
    else:
        note = f"each size is compiled when it is first used: {reason}"
        manifest = replace(manifest, notes=(*manifest.notes, note))
    opened = replace(model, plans=plans)
    replace(manifest, open_model=opened).write(directory)


def plans_of(dims: Sequence[Bounds], sizes_of: Callable[[Bounds], Sequence[int]]) -> Plans:
    """Sizes of all dims that are planned for, ascending: the largest of each come together, then
    the next ones, or the last of a dim that has no further. ``sizes_of`` are those of one dim,
    descending from its largest."""
    each = [[size for size in sizes_of(bounds) if size >= bounds.low] for bounds in dims]
    count = max(map(len, each))
    return tuple(
        tuple(sizes[min(number, len(sizes) - 1)] for sizes in each)
        for number in reversed(range(count))
    )


def spaced(bounds: Bounds) -> list[int]:
    """The largest size of a dim and two smaller ones, each the same part of the one before: a
    quarter, or more where the smallest is not so small."""
    most = bounds.near(bounds.high)
    part = max((max(bounds.low, 1) / most) ** (1 / 3), 1 / 4)
    sizes = {-(-most * part**number // bounds.step) * bounds.step for number in range(3)}
    return sorted(map(int, sizes), reverse=True)


def _kernels_end(graphs: _Graphs) -> Plans:
    """Plans whose kernels end at the sizes of a run."""
    taken, names = graphs.target.sizes_taken, [dim.name for dim in graphs.dims]
    if len(names) > taken:
        listed = ", ".join(names)
        sizes = "one size" if taken == 1 else f"{taken} sizes"
        raise refuse("length-dims", f"a program takes {sizes}, and {listed} are free")
    of_target = graphs.target.plan_sizes
    plans = plans_of([dim.bounds for dim in graphs.dims], lambda bounds: of_target(bounds.high))
    graphs.compare(plans, "graph passes")
    for plan in plans:
        free = {
            name: FreeSize(graphs.axes[name], graphs.constants(plan, number))
            for number, name in enumerate(names)
        }
        emit(graphs.bound(plan, "tile", lengths=True), graphs.place(plan), free=free)
    return plans


def _operands_end(graphs: _Graphs) -> Plans:
    """Plans that compute all of each operand, masked after the sizes of a run, which are inputs."""
    plans = plans_of([dim.bounds for dim in graphs.dims], spaced)
    graphs.compare(plans, "import")
    ranges: Mapping[str, tuple[float, float]] = {}
    for plan in reversed(plans):
        imported = _ended(graphs, plan)
        if not ranges:  # Those of the largest plan: random samples of few elements tell little.
            ranges = graphs.bound(plan, "calibrate", imported=imported).runner.context.ranges
        emit(graphs.bound(plan, "tile", imported=imported, ranges=ranges), graphs.place(plan))
    return plans


def _ended(graphs: _Graphs, plan: tuple[int, ...]) -> Imported:
    """The model at the sizes of a plan, those of a run being inputs.

    Its extents are compared with those at other sizes of each dim: at as many in a row as there are
    remainders of the divisions by which others follow from it.
    """
    rows = [1] * len(plan)
    while True:
        imported = graphs.imported(plan)
        if imported.ends or imported.empty:
            raise refuse("length-structure", "data decide sizes of the model, or outputs are empty")
        network = network_of(imported.module)
        samples = graphs.samples((network, imported.weights), plan, rows)
        sizes = graphs.sizes(plan)
        units = {dim.name: dim.step for dim in graphs.dims}
        following = end_inputs(network, imported.weights, sizes, graphs.axes, samples, units)
        ends = following.run()
        periods = [following.period[dim.name] // dim.step for dim in graphs.dims]
        if max(periods) > MOST_REMAINDERS:
            reason = f"sizes divided by {max(periods)} follow from it"
            raise refuse("length-structure", reason, graphs.dims[periods.index(max(periods))].name)
        if all(map(int.__le__, periods, rows)):
            return replaced(imported, ends=ends)
        rows = [*map(max, periods, rows)]


def _take_constants_apart(network: NetworkOp) -> None:
    """Give every use of a constant an operation of its own: where two sizes are equal, so may be
    constants that are as long as they."""
    for op in list(network.block.ops):
        for number, value in enumerate(op.operands):
            if isinstance(value.owner, WeightOp):
                alone = WeightOp.of(value.owner.symbol.data, value.owner.result.type)
                network.block.insert_op_before(alone, op)
                op.operands[number] = alone.result
    for op in list(network.block.ops):
        if isinstance(op, WeightOp) and not list(op.result.uses):
            op.detach()
            op.erase()


class _Graphs:
    """The model's graphs at sizes of its free dims, compared with one another."""

    def __init__(
        self, directory: Path, manifest: Manifest, target: Target, progress: Progress
    ) -> None:
        assert manifest.open_model is not None
        self.target, self.dims = target, manifest.open_model.dims
        self.axes = {
            dim.name: {
                tensor.name: axes
                for tensor in manifest.inputs
                if (axes := tuple(n for n, size in enumerate(tensor.shape) if size == dim.name))
            }
            for dim in self.dims
        }
        """The axes of inputs that each free dim is, by its name."""
        self._at = cache(self._taken_to)
        self._directory, self._manifest, self._progress = directory, manifest, progress

    def sizes(self, plan: tuple[int, ...]) -> dict[str, int]:
        """The sizes of the free dims, by name."""
        return {dim.name: size for dim, size in zip(self.dims, plan, strict=True)}

    def _say(self, what: str, plan: tuple[int, ...]) -> None:
        listed = ", ".join(f"{name} {size}" for name, size in self.sizes(plan).items())
        self._progress(f"{what} {listed}", 0, 0)

    def bound(
        self,
        plan: tuple[int, ...],
        until: str,
        *,
        lengths: bool = False,
        imported: Imported | None = None,
        ranges: Mapping[str, tuple[float, float]] | None = None,
    ) -> CompilationState:
        """The model at sizes, taken through the pipeline; see ``build.bound``."""
        what = {"tile": "plan for up to", "calibrate": "ranges for up to"}
        self._say(what.get(until, "compare the graph at"), plan)
        sizes, manifest = self.sizes(plan), self._manifest
        return bound(
            self._directory, manifest, sizes, self._progress, until,
            lengths=lengths, imported=imported, ranges=ranges,
        )  # fmt: skip

    def place(self, plan: tuple[int, ...]) -> Path:
        """The folder of a plan, made now."""
        place = self._directory / PLANS / plan_name(plan)
        place.mkdir(parents=True)
        return place

    def imported(self, plan: tuple[int, ...]) -> Imported:
        """The model read at sizes, its operators in the steps that are computed."""
        assert self._manifest.open_model is not None
        shapes = shapes_at(self._manifest, self.sizes(plan))
        imported = load(self._directory / self._manifest.open_model.file, shapes=shapes)
        TakeSteps().apply(context(), imported.module)
        _take_constants_apart(network_of(imported.module))
        return imported

    def _taken_to(self, plan: tuple[int, ...], until: str) -> Seen:
        if until == "import":
            imported = self.imported(plan)
            return network_of(imported.module), imported.weights
        state = self.bound(plan, until, lengths=True)
        return network_of(state.network), state.weights

    def compare(self, plans: Plans, until: str) -> None:
        """Refuse (``length-structure``) a model that is another network at some size: where one
        dim is smaller, and where all are.

        Passes on the graph make another network of size 1, as an axis of one index may be moved at
        no cost; before them it has to be the same.
        """
        longest, steps = plans[-1], [dim.step for dim in self.dims]
        lowest = [max(dim.low, step, 2) for dim, step in zip(self.dims, steps, strict=True)]
        compared = {tuple(map(max, plan, lowest)) for plan in plans[:-1]}
        compared |= {tuple(map(max, map(int.__sub__, longest, steps), lowest))}
        for number, low in enumerate(lowest):
            compared |= {(*longest[:number], low, *longest[number + 1 :])}
        stages = {plan: until for plan in compared if all(map(int.__le__, plan, longest))}
        for number, dim in enumerate(self.dims):
            if dim.low <= 1 < longest[number]:
                stages[(*longest[:number], 1, *longest[number + 1 :])] = "import"
        stages.pop(longest, None)
        for plan, stage in sorted(stages.items()):
            whole, one = self._at(longest, stage), self._at(plan, stage)
            pairs = {*zip(longest, plan, strict=True)}
            same_but_for(whole, one, pairs, any_extents=until == "import")

    def samples(self, seen: Seen, plan: tuple[int, ...], rows: Sequence[int]) -> list[Sample]:
        """A graph at other sizes: the next lower size of each dim, and the lowest ones; of those,
        as many in a row as ``rows`` says, and one more."""
        steps = [dim.step for dim in self.dims]
        least = tuple(max(dim.low, dim.step) for dim in self.dims)
        others = {least}
        for number, (low, step) in enumerate(zip(least, steps, strict=True)):
            for size in {low, max(low, plan[number] - step)}:
                others.add((*plan[:number], size, *plan[number + 1 :]))
            # A network of size 1 is often another. All but one dim are the lowest for all plans.
            first = max(low, 2 * step)
            for size in range(first, first + (rows[number] + 1) * step, step):
                others.add((*least[:number], size, *least[number + 1 :]))
        samples: list[Sample] = []
        for sizes in sorted(others - {plan}):
            if all(map(int.__le__, sizes, plan)):
                pairs = {*zip(plan, sizes, strict=True)}
                other = same_but_for(seen, self._at(sizes, "import"), pairs, any_extents=True)
                samples.append(Sample(self.sizes(sizes), other))
        return samples

    def smaller(self, seen: Seen, plan: tuple[int, ...], number: int, until: str) -> Differing:
        """The axes in which a graph at sizes differs from one whose size of one dim is the next."""
        size, step = plan[number], self.dims[number].step
        # A network of size 1 is often another.
        other = size - step if size > 2 * step else size + step
        sizes = (*plan[:number], other, *plan[number + 1 :])
        return same_but_for(seen, self._at(sizes, until), {*zip(plan, sizes, strict=True)})

    def constants(self, plan: tuple[int, ...], number: int) -> dict[str, tuple[int, ...]]:
        """The axes of constants that are as long as the size of one dim, by symbol; refuses
        (``length-kernel``) what takes the size otherwise."""
        if plan[number] == self.dims[number].low:
            return {}  # No run of the plan has less.
        seen = self._at(plan, "graph passes")
        differing = self.smaller(seen, plan, number, "graph passes")
        differing.check(seen[0])
        return differing.constants()


def reference_of(
    directory: Path, manifest: Manifest, sizes: Mapping[str, int]
) -> tuple[ModuleOp, Weights]:
    """The graph that a specialisation would keep for checks, and its constants."""
    state = bound(directory, manifest, sizes, until="numbers, layouts, memory")
    return state.network, state.weights
