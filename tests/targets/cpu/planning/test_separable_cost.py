"""Separable convolutions are priced as their parts, with the image between them in a cache."""

import pytest

from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Stage
from tilewright.targets.cpu.machine import machine as cpu
from tilewright.targets.cpu.planning.planner import plan_cached, ranked
from tilewright.targets.cpu.processors import Processor

MACHINE = cpu(Processor(lanes=16, registers=32, vectors_per_cycle=2.0))
LAYOUT = "NCHW16c"


def at(**terms: int) -> Affine:
    return Affine(tuple(terms.items()))


def image(name: str, channels: str, count: int, size: int, role: str = "input") -> Operand:
    access = (at(n=1), at(**{channels: 1}), at(oh=1), at(ow=1))
    return Operand(name, (1, count, size, size), access, role=role, layout=LAYOUT)  # type: ignore[arg-type]


def parts(c: int, co: int, size: int, room: int = 1 << 17) -> tuple[Kernel, Kernel, Kernel]:
    """The kernel of both, the windows' alone, and the product's alone."""
    window = (at(n=1), at(c=1), Affine((("oh", 1), ("kh", 1)), -1))
    x = Operand(
        "x", (1, c, size, size), (*window, Affine((("ow", 1), ("kw", 1)), -1)), layout=LAYOUT
    )
    v = Operand(
        "v", (c, 1, 3, 3), (at(c=1), Affine(), at(kh=1), at(kw=1)), role="weight", layout="OIHW16o"
    )
    a, b = (
        Operand(name, (count,), (at(**{dim: 1}),), role="bias", layout="O16o")
        for name, count, dim in (("a", c, "c"), ("b", co, "co"))
    )
    w = Operand(
        "w", (co, c, 1, 1), (at(co=1), at(c=1), Affine(), Affine()), role="weight", layout="OIHW16o"
    )
    s = Operand("s", (room,), (Affine(),), role="scratch")
    y = image("y", "co", co, size, "output")
    points = [Dim("oh", size), Dim("ow", size)]
    taps = [Dim("kh", 3, "reduction"), Dim("kw", 3, "reduction")]
    dims = (Dim("n", 1), Dim("co", co), *points, Dim("c", c, "reduction"), *taps)
    both = Kernel("k", (Stage("separable_conv", dims, (x, v, w, s, a, b), y),))
    written = image("m", "c", c, size, "output")
    first = Stage("depthwise_conv", (Dim("n", 1), Dim("c", c), *points, *taps), (x, v, a), written)
    w2 = Operand(
        "w", w.shape, (at(co=1), at(ci=1), Affine(), Affine()), role="weight", layout="OIHW16i16o"
    )
    dims = (Dim("n", 1), Dim("co", co), *points, Dim("ci", c, "reduction"))
    second = Stage("conv", dims, (image("m", "ci", c, size), w2, b), y)
    return both, Kernel("k", (first,)), Kernel("k", (second,))


@pytest.mark.parametrize(("c", "co", "size"), [(32, 16, 112), (144, 24, 56), (96, 32, 96)])
def test_images_that_no_near_cache_holds_gain(c: int, co: int, size: int) -> None:
    both, *alone = (plan_cached(k, MACHINE).predicted_cycles for k in parts(c, co, size))
    assert 0.5 * sum(alone) < both < 0.97 * sum(alone)


def test_blocks_are_whole_rows_while_scratch_has_room() -> None:
    both = parts(32, 16, 28)[0]
    assert {dict(s.levels[-1].tile)["ow"] for _, _, s in ranked(both, MACHINE)} == {28}
    narrow = parts(32, 16, 28, room=32 * 20)[0]
    assert all(dict(s.levels[-1].tile)["ow"] <= 20 for _, _, s in ranked(narrow, MACHINE))


def test_a_block_that_no_cache_holds_costs_more() -> None:
    both = parts(144, 24, 56, room=144 * 56 * 56)[0]
    rows = {dict(s.levels[-1].tile)["oh"]: cost for cost, _, s in reversed(ranked(both, MACHINE))}
    assert rows[56] > 1.05 * rows[4]
