"""Schedule spaces: their text, how many strategies they have, and that each means the kernel."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tests.planning.planners.test_cores import in_floats
from tests.planning.planners.test_swatop import convolution
from tests.planning.planning_kernels import pool
from tests.tile.interpreter import run
from tilewright.errors import TilewrightError
from tilewright.planning.domain import Kernel
from tilewright.planning.planners.by_node import best_of
from tilewright.planning.planners.papers.strategies import (
    Cut,
    Factors,
    ScheduleSpace,
    Seed,
    count,
    strategies,
)
from tilewright.planning.planners.papers.strategy_text import parse_spaces
from tilewright.planning.planners.registry import planner_of
from tilewright.planning.planners.stated import stated_plan
from tilewright.planning.schedule import Schedule
from tilewright.targets.sunway.machine import MACHINE
from tilewright.targets.sunway.mesh import MESH
from tilewright.tile.build import build
from tilewright.tile.dialect import programs_of

EXAMPLES = Path(__file__).parents[4] / "examples"
LENET = EXAMPLES / "lenet5" / "lenet5.onnx"
FILE = EXAMPLES / "scheduling" / "conv2.space"
SMALL = convolution(1, 8, 16, 8)

TEXT = """\
space conv
  seed n 1, co 16, oh 8, ow 8; ci 8, kh 3, kw 3
  compute output[n, co, oh, ow] += input[n, ci, oh + kh, ow + kw] * weight[co, ci, kh, kw]
  primitive conv
  cores one
  cores co by 2 4, oh by 3
  cores mesh co, oh
  split oh by 1 2
  split ci by all
  split ow by 4
  reorder oh ow ci
  reorder ow oh ci
  double input weight
  double none
"""


def space_of(text: str) -> ScheduleSpace:
    (space,) = parse_spaces(text)
    return space


def test_text_is_read() -> None:
    space = space_of(TEXT)
    assert space.seed == Seed.of(SMALL)
    assert space.cuts[1:] == (
        Cut((Factors("co", (2, 4)), Factors("oh", (3,)))),
        Cut((), ("co",), ("oh",)),
    )
    commented = TEXT.replace("\n", "   # so\n").replace("space conv", "\n  space   conv")
    assert parse_spaces(commented) == (space,)
    (named,) = parse_spaces('space "a node, of two" "none" b/c:0\n  double "none"\n')
    assert (named.nodes, named.doubles) == (("a node, of two", "none", "b/c:0"), (("none",),))


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", "file:1:1", "the end stands before any space (space NODE ...)"),
        ("split co by 4", "file:1:1", "split stands before any space"),
        ("space", "file:1:6", "expected name, found the end (space NODE ...)"),
        ("space a\nspace b a", "file:2:1", "node a has two spaces"),
        ("space a\n  tile co by 4", "file:2:3", "tile is no statement (space, seed, compute"),
        ("space a\n  layout x NCHW", "file:2:3", "layouts are assigned before"),
        ("space a\n  split co 4", "file:2:12", "expected by, found 4 (split DIM by SIZE"),
        ("space a\n  split co by", "file:2:14", "size from 1 to 1e12, found the end"),
        ("space a\n  split co by 4 x", "file:2:17", "size from 1 to 1e12, found x"),
        ("space a\n  split co by 0", "file:2:15", "size from 1 to 1e12, found 0"),
        ("space a\n  split co by 1000000000001", "file:2:15", "to 1e12, found 1000000000001"),
        ("space a\n  split co by " + "9" * 5000, "file:2:15", "to 1e12, found 999"),
        ("space a\n  split co by 4\n  split co by 8", "file:3:9", "co is split twice"),
        ("space a\n  split co by all 4", "file:2:19", "expected end, found 4"),
        ("space a\n  reorder co", "file:2:11", "not of the dims that are split"),
        ("space a\n  split co by 4\n  reorder co co", "file:3:11", "not of the dims"),
        ("space a\n  cores co by 4, co by 2", "file:2:18", "co is cut twice"),
        ("space a\n  cores mesh co", "file:2:16", "expected comma or dim, found the end"),
        ("space a\n  cores mesh co, co", "file:2:9", "co is cut twice"),
        ("space a\n  cores mesh co, oh ow n", "file:2:24", "expected end, found n (cores DIM"),
        ("space a\n  seed n 1\n  seed n 1", "file:3:3", "seed is out of place: one seed"),
        ("space a\n  seed n 1, n 2", "file:2:13", "n occurs twice"),
        ("space a\n  seed n 1 x", "file:2:12", "expected comma or end or semicolon, found x"),
        (
            "space a\n  compute output[n] += input[n] * weight[n]",
            "file:2:3",
            "compute is out of place: one seed comes, then one compute",
        ),
        (
            "space a\n  seed n 1\n  compute output[n]",
            "file:3:20",
            "expected plus equals, found the end (compute output[...] += input[...] * weight[...])",
        ),
        (
            "space a\n  seed n 1\n  compute output[n] += input[m] * weight[n]",
            "file:3:30",
            "no dim m",
        ),
        (
            "space a\n  seed n 1\n  compute output[n] += input[n n] * weight[n]",
            "file:3:30",
            "n n is no sum of dims",
        ),
        ("space a\n  double  # of", "file:2:11", "expected name or none, found the end"),
        ('space a\n  double "x', "file:2:10", "is not closed"),
        ('space a\n  double "\\q"', "file:2:10", "holds no JSON"),
    ],
)
def test_bad_text_is_refused_where_it_stands(text: str, place: str, words: str) -> None:
    with pytest.raises(TilewrightError) as raised:
        parse_spaces(text, "file")
    (problem,) = raised.value.problems
    assert problem.code == "space-syntax"
    assert problem.where == place
    assert words in str(problem)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("space conv\n  seed n 1, co 8", "space-seed", "it is: seed n 1, co 16, oh 8, ow 8; ci 8"),
        (TEXT.replace("oh + kh", "oh*2 + kh"), "space-seed", "compute output[n, co, oh, ow] +="),
        ("space conv\n  split m by 4", "space-dim", "has no dim m"),
        ("space conv\n  cores ci by 4", "space-dim", "same elements"),
        ("space conv\n  primitive pool", "space-primitive", "no primitive pool"),
        ("space conv\n  double mask", "space-empty", "there is no operand mask"),
    ],
)
def test_what_a_kernel_is_not_is_refused(text: str, code: str, words: str) -> None:
    with pytest.raises(TilewrightError) as raised:
        best_of(space_of(text), SMALL, MACHINE, MESH)
    (problem,) = raised.value.problems
    assert problem.code == code
    assert words in str(problem)


def test_large_spaces_are_refused_by_their_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.planning.planners.papers.strategies.MOST", 159)
    with pytest.raises(TilewrightError, match=r"space-size.*160 strategies .* more than 159"):
        best_of(space_of(TEXT), SMALL, MACHINE, MESH)


def test_a_space_is_counted_before_it_is_listed() -> None:
    space = space_of(TEXT)
    # A cut by none, two sizes of parts, one cut of the mesh; tiles; orders; slots.
    assert count(space, SMALL, MACHINE, MESH) == (1 + 2 + 1) * (2 * 5 * 1) * 2 * 2
    found = list(strategies(space, SMALL, MACHINE, MESH))
    assert len(found) == count(space, SMALL, MACHINE, MESH)
    again = list(strategies(space, SMALL, MACHINE, MESH))
    assert [str(strategy) for strategy in found] == [str(strategy) for strategy in again]
    assert Factors("d").values(10) == [1, 2, 3, 4, 5, 10]
    with pytest.raises(TilewrightError, match="space-mesh"):
        count(space, SMALL, MACHINE)


def meaning(kernel: Kernel, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    _, _, height, width = kernel.output.shape
    wanted = np.zeros(kernel.output.shape, np.float32)
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            part = x[:, :, i : i + height, j : j + width]
            wanted += np.einsum("nchw,oc->nohw", part, w[:, :, i, j])
    return wanted


@pytest.mark.slow
def test_every_strategy_means_the_seed() -> None:
    space = space_of(TEXT.replace("by all", "by 3 8").replace("  reorder oh ow ci\n", ""))
    random = np.random.default_rng(3)
    x, w = (random.integers(-4, 5, size=o.shape).astype(np.float32) for o in SMALL.inputs)
    wanted = meaning(SMALL, x, w)
    schedules = [
        each
        for each in dict.fromkeys(strategies(space, SMALL, MACHINE, MESH))
        if isinstance(each, Schedule)
    ]
    assert len(schedules) > 15
    assert any(schedule.exchanged for schedule in schedules)
    for schedule in schedules:
        (program,) = programs_of(build(SMALL, schedule, MACHINE))
        assert np.array_equal(run(program, {"x": x, "w": w})["y"], wanted), str(schedule)


@pytest.mark.slow
def test_the_fastest_strategy_is_taken() -> None:
    space = space_of(TEXT)
    best = best_of(space, SMALL, MACHINE, MESH)
    found = [s for s in strategies(space, SMALL, MACHINE, MESH) if isinstance(s, Schedule)]
    prices = [stated_plan(SMALL, MACHINE, s, "", MESH).predicted_cycles for s in found]
    assert best.predicted_cycles == min(prices)
    assert (best.candidates, best.priced) == (160, len(set(map(str, found))))
    # A larger space has no slower best.
    assert (
        best.predicted_cycles
        <= best_of(
            space_of("space conv\n  cores co by 2, oh by 3"), SMALL, MACHINE, MESH
        ).predicted_cycles
    )


def test_seeds_of_kernels_print() -> None:
    assert Seed.of(SMALL).statements() == [line.strip() for line in TEXT.splitlines()[1:3]]
    assert Seed.of(in_floats(pool(8, 12, 2, 2))).statements() == [
        "seed n 1, c 8, oh 6, ow 6; kh 2, kw 2"
    ]


def test_files_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    for text, code in (
        ("space", "option-planner"),
        ("space{top=4}", "option-planner"),
        (f"space{{file={tmp_path}/missing}}", "space-file"),
    ):
        with pytest.raises(TilewrightError, match=code), planner_of(text, MACHINE):
            pass
    file = tmp_path / "of no node.space"
    file.write_text("space conv9\n  cores one\n")
    with pytest.raises(TilewrightError, match=r"space-node.*of no node.space:1:1.*conv9"):
        tilewright.compile(LENET, "sunway", planner=f"space{{file={file}}}")


@pytest.mark.slow
def test_the_example_is_what_its_node_runs() -> None:
    package = tilewright.compile(LENET, "sunway", planner=f"space{{file={FILE}}}")
    inputs = {
        info.name: np.random.default_rng(6).normal(size=[int(n) for n in info.shape]).astype("f4")
        for info in package.inputs
    }
    assert package.check(inputs, package.run(inputs)).equal
    text = next(Path(str(package.runner.directory)).glob("layers/*conv2_slave.c")).read_text()  # type: ignore[attr-defined]
    assert re.search(r"exchange_\w+", text)
