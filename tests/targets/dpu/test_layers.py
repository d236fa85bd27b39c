"""Layers as words, executed on random data, against an oracle that shares nothing with them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.slow import crossed
from tests.targets.dpu import oracle
from tests.targets.dpu.layers import (
    INPUT,
    OUTPUT,
    PARAMETERS,
    SECOND,
    Layer,
    sum_program,
    window_program,
)

from tilewright.errors import TilewrightError
from tilewright.targets.dpu.core import CORES, ISA0, ZU2, Core, core_named
from tilewright.targets.dpu.execute import run
from tilewright.targets.dpu.timing import check_program, time_program

SMALL = Core("small", 4, 4, misc_rows=2, elementwise_rows=2)
"""Few channels at once, so that small layers have several groups of them."""

OLD = replace(SMALL, name="small-isa0", isa=0, elementwise_rows=1)


def numbers(rng, *shape):
    return rng.integers(-128, 128, shape, np.int8)


def executed(core, operations, registers):
    """Run a program that must be free of races, and whose bytes must be in time's account."""
    report = check_program(core, operations)
    assert report.race_free, report.problems[:3]
    run(core, operations, registers)
    return report


def result_of(core, layer, tile_rows, seed, tile_groups=None):
    """The result of a layer's program, and what it should be."""
    rng = np.random.default_rng(seed)
    x = numbers(rng, layer.height, layer.width, layer.channels)
    shape = (layer.out_height, layer.out_width, layer.outputs)
    out = np.full(np.prod(shape), 77, np.int8)
    registers = {INPUT: x.ravel(), OUTPUT: out}
    sums = (layer.stride, layer.pads, layer.shift_bias, layer.shift_cut, layer.activation)
    if layer.kind in ("conv", "depthwise"):
        size = (*layer.kernel, layer.channels)
        weights = (
            numbers(rng, layer.outputs, *size) if layer.kind == "conv" else numbers(rng, *size)
        )
        bias = numbers(rng, layer.outputs)
        registers[PARAMETERS] = np.concatenate([weights.ravel(), bias])
        exact = getattr(oracle, layer.kind)(x, weights, bias, *sums)
    elif layer.kind == "max":
        exact = oracle.max_pool(x, layer.kernel, layer.stride, layer.pads, layer.shift_cut)
    else:
        exact = oracle.average_pool(x, layer.kernel, layer.stride, layer.pads, layer.shift_cut)
    operations = window_program(core, layer, tile_rows, tile_groups).finish()
    executed(core, operations, registers)
    assert exact.shape == shape
    return out.reshape(shape), exact, operations


CONV = Layer("conv", 14, 10, 20, 30, (3, 3), (1, 1), (1, 1, 1, 1), 9, 3, "relu")
LAYERS = {
    "3x3": CONV,
    "3x3 by 2": replace(CONV, stride=(2, 2), activation="leaky"),
    "5x5 by 3, uneven padding": replace(CONV, kernel=(5, 5), stride=(3, 2), pads=(2, 1, 0, 3)),
    "1x1": replace(CONV, kernel=(1, 1), pads=(0, 0, 0, 0), activation="none", shift_cut=7),
    "7x1": replace(CONV, kernel=(7, 1), pads=(3, 0, 3, 0), activation="relu6", shift_cut=6),
    "depthwise": Layer("depthwise", 13, 9, 22, 22, (3, 3), (1, 1), (1, 1, 1, 1), 6, 2, "relu6"),
    "depthwise by 2": Layer("depthwise", 13, 9, 8, 8, (5, 3), (2, 2), (2, 1, 2, 1), 7, 0, "none"),
    "max 3x3 by 2": Layer("max", 13, 11, 20, 20, (3, 3), (2, 2), (1, 1, 1, 1)),
    "max 2x2, halved": Layer("max", 12, 8, 8, 8, (2, 2), (2, 2), shift_cut=-1),
    "average 3x3": Layer("average", 9, 9, 12, 12, (3, 3), (1, 1), (1, 1, 1, 1), 0),
    "average 7x7": Layer("average", 7, 7, 24, 24, (7, 7), (1, 1), shift_cut=2),
    "average 2x3": Layer("average", 9, 9, 6, 6, (3, 2), (1, 2), (0, 1, 1, 0), -2),
}


@pytest.mark.parametrize(
    ("name", "core"),
    crossed(LAYERS, [SMALL, OLD, ZU2, ISA0]),
    ids=lambda value: getattr(value, "name", value),
)
def test_layer(name, core):
    for tile_rows in (3, 100):
        found, exact, _ = result_of(core, LAYERS[name], tile_rows, tile_rows)
        assert np.array_equal(found, exact)
        assert len(np.unique(exact)) > 20


@pytest.mark.parametrize("core", [SMALL, OLD, ZU2], ids=lambda core: core.name)
@pytest.mark.parametrize(
    ("shifts", "shift_write", "multiply", "relu"),
    [((0, 0), 0, False, True), ((3, 0), -1, False, False), ((0, 2), 1, False, False),
     ((1, 0), -5, True, False), ((15, 0), 0, False, False)],
)  # fmt: skip
def test_sum(core, shifts, shift_write, multiply, relu):
    rng = np.random.default_rng(len(core.name))
    a, b = numbers(rng, 9, 7, 10), numbers(rng, 9, 7, 10)
    for tile_rows in (4, 9):
        build = sum_program(
            core, 9, 7, 10, shifts, shift_write, tile_rows, multiply=multiply, relu=relu
        )
        out = np.zeros(a.size, np.int8)
        executed(core, build.finish(), {INPUT: a.ravel(), SECOND: b.ravel(), OUTPUT: out})
        exact = oracle.elementwise([a, b], shifts, shift_write, multiply, relu)
        assert np.array_equal(out.reshape(a.shape), exact)
        assert len(np.unique(exact)) > 20


@st.composite
def layers(draw):
    kind = draw(st.sampled_from(["conv", "conv", "depthwise", "max", "average"]))
    most = 8 if kind in ("max", "average") else 6
    kernel = draw(st.tuples(st.integers(1, most), st.integers(1, most)))
    channels = draw(st.integers(1, 13))
    layer = Layer(
        kind,
        draw(st.integers(1, 14)),
        draw(st.integers(1, 14)),
        channels,
        draw(st.integers(1, 13)) if kind == "conv" else channels,
        kernel,
        draw(st.tuples(st.integers(1, 4), st.integers(1, 4))),
        tuple(draw(st.integers(0, kernel[i % 2] - 1)) for i in range(4)),
        draw(st.integers(-7, 3) if kind in ("max", "average") else st.integers(0, 16)),
        draw(st.integers(0, 20)),
        draw(st.sampled_from(["none", "relu", "leaky", "relu6"])),
    )
    assume(layer.out_height > 0 and layer.out_width > 0)
    return layer


@settings(max_examples=80, deadline=None)
@given(layers(), st.integers(1, 9), st.sampled_from([SMALL, OLD]), st.integers(0, 1 << 30))
def test_any_layer(layer, tile_rows, core, seed):
    groups = 1 + seed % 3 if layer.kind == "conv" else None
    found, exact, _ = result_of(core, layer, tile_rows, seed, groups)
    assert np.array_equal(found, exact)


@pytest.mark.parametrize("name", CORES)
def test_every_core(name):
    core = core_named(name)
    layer = Layer("conv", 18, 12, 40, 50, (3, 3), (2, 2), (1, 1, 1, 1), 10, 4, "relu")
    found, exact, operations = result_of(core, layer, 6, 5)
    assert np.array_equal(found, exact)
    timeline = time_program(core, operations)
    # Padding of channels and rows included: what the multipliers are busy with.
    groups = -(-40 // core.channels) * -(-50 // core.channels)
    blocks = -(-6 // core.rows) + -(-3 // core.rows)
    assert timeline.busy[2] >= groups * blocks * 6 * 9
    parameters = 50 * 9 * 40 + 50
    rows = 13 + 7  # The second tile loads the row that it shares with the first again.
    weights = 50 * 9 * 40 if 9 * groups > 2048 else 0
    assert timeline.main_bytes == parameters + weights + (rows - 1) * 12 * 40 + 9 * 6 * 50


def test_sizes_of_the_published_cores():
    macs = {"dpu-b512": 256, "dpu-b800": 400, "dpu-b1024": 512, "dpu-b1152": 576,
            "dpu-b1600": 800, "dpu-b2304": 1152, "dpu-b3136": 1568, "dpu-b4096": 2048}  # fmt: skip
    assert {name: CORES[name].macs for name in macs} == macs
    assert CORES["dpu-b1152"].group_bytes == 98_304
    assert CORES["dpu-b4096"].group_bytes == 262_144
    firsts = {group.name: (group.first, group.count) for group in ISA0.bank_groups}
    assert firsts == {
        "vb0": (0, 8), "vb1": (8, 8), "weight": (16, 16), "depthwise": (32, 1), "bias": (33, 1),
    }  # fmt: skip
    assert 2 * ZU2.macs * ZU2.clock_hz == pytest.approx(380.16e9)
    with pytest.raises(TilewrightError, match="target-unknown"):
        core_named("dpu-b9000")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"height": 2, "pads": (0, 0, 0, 0)}, "no results"),
        ({"pads": (3, 0, 0, 0)}, "padding"),
        ({"width": 200}, "input of 4 rows"),
        ({"channels": 1000, "width": 1, "kernel": (9, 1), "pads": (0, 0, 0, 0)}, "weights"),
        ({"kind": "max", "pads": (0, 0, 0, 0)}, "as many outputs"),
        ({"outputs": 4000, "width": 4}, "result of 4 rows"),
    ],
)
def test_layers_that_are_refused(change, words):
    with pytest.raises(TilewrightError) as caught:
        window_program(SMALL, replace(CONV, **change), 4)
    assert caught.value.problems[0].code == "lower-layer"
    assert words in caught.value.problems[0].reason


def test_sums_that_are_refused():
    with pytest.raises(TilewrightError, match="lower-layer"):
        sum_program(SMALL, 40, 100, 20, (0, 0), 0, 40)
