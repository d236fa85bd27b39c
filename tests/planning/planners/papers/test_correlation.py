"""Algorithm 3 against the pass place-moves, on random nests, and against the paper's example."""

from __future__ import annotations

import random

import pytest

from tilewright.errors import TilewrightError
from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Stage
from tilewright.planning.planners.papers.correlation import correlated, transfer_places
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.sunway.machine import MACHINE
from tilewright.tile.build import build
from tilewright.tile.dialect import BufferOp, enclosing_loops, programs_of
from tilewright.tile.passes.place_moves import PlaceMoves


def test_the_papers_example() -> None:
    every = {"C": {"x", "yo", "yi"}, "A": {"x", "ko", "ki"}, "B": {"ko", "ki", "yo", "yi"}}
    inner = {"C": {"yi"}, "A": {"ki"}, "B": {"ki", "yi"}}
    nest = ["x", "yo", "ko", "yi", "ki"]
    places = transfer_places(nest, _frozen(every), _frozen(inner))
    # C around ko; A and B within ko, before yi.
    assert places == {"C": 2, "A": 3, "B": 3}


def _frozen(sets: dict[str, set[str]]) -> dict[str, frozenset[str]]:
    return {name: frozenset(variables) for name, variables in sets.items()}


def test_an_order_that_has_no_place_is_refused() -> None:
    every = {"A": {"x", "ko", "ki"}}
    with pytest.raises(TilewrightError) as raised:
        transfer_places(["x", "ki", "ko"], _frozen(every), _frozen({"A": {"ki"}}))
    (problem,) = raised.value.problems
    assert problem.code == "schedule-order" and problem.where == "A"
    assert "ki" in problem.reason and "ko" in problem.reason


def test_correlated_variables_are_those_of_all_subscripts() -> None:
    subscripts = [Affine.parse("yy*2 + ry"), Affine.parse("ci"), Affine.parse("3")]
    assert correlated(subscripts, {"yy", "ry", "ci", "co"}) == {"yy", "ry", "ci"}
    assert correlated(subscripts, {"yy", "co"}) == {"yy"}


def random_kernel(chance: random.Random) -> Kernel:
    """A product of random affine accesses: every dim of the result in its own axis, inputs with one
    to three dims an axis."""
    parallel = [Dim(f"p{n}", chance.randint(2, 9)) for n in range(chance.randint(1, 4))]
    reduced = [Dim(f"r{n}", chance.randint(2, 6), "reduction") for n in range(chance.randint(0, 3))]
    dims = parallel + reduced
    extents = {dim.name: dim.extent for dim in dims}

    def operand(name: str, role: str) -> Operand:
        axes: list[Affine] = []
        left = [dim.name for dim in dims]
        chance.shuffle(left)
        for _ in range(chance.randint(1, 3)):
            taken = [left.pop() for _ in range(min(len(left), chance.randint(1, 3)))]
            axes.append(Affine(tuple((dim, chance.randint(1, 3)) for dim in taken)))
        whole = {dim: (0, extent) for dim, extent in extents.items()}
        shape = tuple(axis.interval(whole)[1] for axis in axes)
        return Operand(name, shape, tuple(axes), role=role)  # type: ignore[arg-type]

    result = Operand(
        "y", tuple(d.extent for d in parallel), tuple(Affine(((d.name, 1),)) for d in parallel),
        role="output",
    )  # fmt: skip
    inputs = operand("x", "input"), operand("w", "weight")
    return Kernel("k", (Stage("conv", tuple(dims), inputs, result),))


def test_algorithm_3_is_place_moves_on_random_nests() -> None:
    chance = random.Random(5)
    depths: set[int] = set()
    for _ in range(200):
        kernel = random_kernel(chance)
        extents = kernel.anchor.extents
        tile = {dim: chance.randint(1, extent) for dim, extent in extents.items()}
        parallel = [d for d in extents if d[0] == "p"]
        reduced = [d for d in extents if d[0] == "r"]
        chance.shuffle(parallel)
        chance.shuffle(reduced)
        order = [d for d in (*parallel, *reduced) if tile[d] < extents[d]]
        level = Level("ldm", tuple(tile.items()), tuple(order))
        module = build(kernel, Schedule("conv", (level,)), MACHINE)
        (program,) = programs_of(module)
        PlaceMoves().run(program, MACHINE)
        found = {
            op.symbol.data: len(enclosing_loops(op))
            for op in program.walk()
            if isinstance(op, BufferOp)
        }
        # Loops over tiles, then those within tiles: a dim that is not cut has one of these alone.
        nest = [f"{d}.outer" for d in order] + [f"{d}.inner" for d in extents if tile[d] > 1]
        every: dict[str, frozenset[str]] = {}
        buffered: dict[str, frozenset[str]] = {}
        for operand in kernel.operands:
            own = correlated(operand.access, extents)
            every[operand.name] = frozenset(v for v in nest if v.split(".")[0] in own)
            buffered[operand.name] = frozenset(
                v for v in every[operand.name] if v.endswith("inner")
            )
        places = transfer_places(nest, every, buffered)
        assert {name: min(place, len(order)) for name, place in places.items()} == found
        depths |= set(found.values())
    assert len(depths) > 4
