"""What the shim counts: cases that follow by hand, and whole layers beside their plans."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.sunway.expected_transfers import Walk
from tests.targets.sunway.sunway_networks import Network, tiny
from tests.targets.sunway.test_shim import GET, PUT, WAIT, Program, built, parts  # noqa: F401

import tilewright
from tilewright.compiler.pipeline import resolve, run_pipeline
from tilewright.machine import parse_expression
from tilewright.targets.sunway.emit.charge import expression_text
from tilewright.targets.sunway.machine import (
    CLOCK_HZ,
    CPES,
    LONE_SECONDS,
    MACHINE,
    PEAK_RATE,
    RATES,
)
from tilewright.targets.sunway.mesh import MESH
from tilewright.targets.sunway.runner import SunwayRunner, figures
from tilewright.tile.dialect import programs_of

FIGURES = """\
memory 16
get 8 100 1 2 64 0.5 256 1
put 8 100 1 0
issue 25
spawn 1000
bus 2 10
"""


def counts(program: Program, folder: Path, text: str = FIGURES) -> list[int]:
    (folder / "figures").write_text(text)
    where = {"SHIM_COUNT": str(folder / "counts"), "SHIM_MACHINE": str(folder / "figures")}
    ran = program.run(**where)
    assert (ran.returncode, ran.stderr) == (0, "")
    (line,) = (folder / "counts").read_text().splitlines()
    return [int(word) for word in line.split()]


def test_one_memory_serves_all_cores(parts: list[str], tmp_path: Path) -> None:  # noqa: F811
    charge = "extern void shim_charge(double);\n"
    body = GET + WAIT + "shim_charge(500);\n" + PUT + WAIT
    cycles, read, written, computed, *_ = counts(built(parts, tmp_path, body, charge), tmp_path)
    assert (read, written, computed) == (64 * 256, 64 * 256, 500)
    # All are served at once, so each command takes as long as the 64 of them, 32 cycles each.
    commands = 25 + 64 * 32 + 100
    assert cycles == commands + 500 + commands + 1000


QUEUE = """
athread_get(PE_MODE, para.x + id * 64, a, 256, (void *)&reply, 0, 0, 0);
athread_get(PE_MODE, para.x + id * 64, other, 256, (void *)&reply, 0, 0, 0);
dma_wait(&reply, 2);
"""


@pytest.mark.parametrize(("in_flight", "latencies"), [(1, 2), (2, 1)])
def test_commands_in_flight_hide_latency(
    in_flight: int,
    latencies: int,
    parts: list[str],  # noqa: F811
    tmp_path: Path,
) -> None:
    head = "#include <slave.h>\n__thread_local float other[64];\n"
    text = FIGURES.replace("get 8 100 1", f"get 8 100 {in_flight}")
    cycles, *_ = counts(built(parts, tmp_path, QUEUE, head), tmp_path, text)
    assert cycles == 25 + 2 * 64 * 32 + latencies * 100 + 1000


BOTH = """
answer = 0;
athread_put(PE_MODE, a, para.y + id * 64, 256, (void *)&answer, 0, 0);
athread_get(PE_MODE, para.x + id * 64, other, 256, (void *)&reply, 0, 0, 0);
dma_wait(&reply, 1);
dma_wait(&answer, 1);
"""


def test_both_directions_share_the_memory(parts: list[str], tmp_path: Path) -> None:  # noqa: F811
    head = (
        "#include <slave.h>\n__thread_local float other[64];\n__thread_local volatile int answer;\n"
    )
    program = built(parts, tmp_path, BOTH, head)
    # Each direction's 32 cycles at 8 bytes a cycle: the memory gives both, or one at a time.
    for memory, cycles in ((16, 50 + 64 * 32 + 100), (8, 50 + 2 * 64 * 32 - 25 + 100)):
        text = FIGURES.replace("memory 16", f"memory {memory}")
        assert counts(program, tmp_path, text)[0] == pytest.approx(cycles + 1000, abs=26)


BLOCKS = """
for (int i = 0; i < COMMANDS; i++) {
    athread_get(PE_MODE, para.x, much, 8192, (void *)&reply, 0, BLOCK < 8192 ? BLOCK : 0, BLOCK);
    dma_wait(&reply, 1);
    reply = 0;
}
"""
"""Commands of 8 KB in blocks as far apart as they are long, on all CPEs at once."""


@pytest.mark.few(1)
@pytest.mark.parametrize("curve", sorted(RATES))
def test_the_measured_rates_come_back(
    curve: str,
    parts: list[str],  # noqa: F811
    tmp_path: Path,
) -> None:
    values = {"move.get.curve": curve, "move.put.curve": curve}
    text = figures(MACHINE.with_values(values))
    for block, rate in RATES[curve]:
        if 8192 % block:
            continue
        few, many = (
            counts(
                built(
                    *(parts, tmp_path, BLOCKS),
                    f"#define BLOCK {block}\n#define COMMANDS {count}\n"
                    "#include <slave.h>\n__thread_local float much[2048];\n",
                ),
                tmp_path,
                text,
            )[0]
            for count in (2, 6)
        )
        found = 4 * 64 * 8192 / (many - few) * CLOCK_HZ / 1e9
        assert found == pytest.approx(rate, rel=0.05), block


_SIZES = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 24576)
LONE = {
    "copy": (1.33, 1.86, 2.95, 5.99, 8.78, 12.5, 15.3, 18.4, 19.1, 20.0, 20.4),
    "triad": (1.66, 2.37, 4.01, 8.28, 11.7, 14.8, 18.0, 20.3, 21.3, 22.1, 22.3),
}
"""GB/s of commands of one block each (swCandle): of a get and a put in turns, and of two gets at
once and a put."""

TRIAD = (
    *((16, 1.25), (32, 2.55), (64, 4.06), (128, 6.13), (256, 10.2), (512, 14.0), (1024, 16.7)),
    *((2048, 19.8), (4096, 21.3), (8192, 21.6)),
)
"""GB/s of strided commands, two gets at once and a put; 16 bytes are the middle of 0.9 to 1.6."""

MUCH = "__thread_local char much[24576], other[24576];\n"


def _lone(size: int, turns: int, gets: int) -> str:
    """Turns of ``gets`` commands at once, and one behind them."""
    get = f"athread_get(PE_MODE, para.x, %s, {size}, (void *)&reply, 0, 0, 0);\n"
    first = "".join(get % name for name in ("much", "other")[:gets])
    return (f"{first}dma_wait(&reply, {gets}); reply = 0;\n" + get % "much" + WAIT) * turns


@pytest.mark.few(6)
@pytest.mark.parametrize(("pattern", "gets"), [("copy", 1), ("triad", 2)])
@pytest.mark.parametrize("size", _SIZES)
def test_lone_commands_take_what_was_measured(
    size: int,
    pattern: str,
    gets: int,
    parts: list[str],  # noqa: F811
    tmp_path: Path,
) -> None:
    """Latency and the curve of strided commands give lone ones, to which neither was fitted: the
    latency is of commands of 8 bytes (``LONE_SECONDS``). Both directions have one curve, so gets
    stand for puts.
    """
    machine = MACHINE.with_values({"move.get.curve": "swcandle", "move.put.curve": "swcandle"})
    if pattern == "triad":
        curve = tuple((block, rate / PEAK_RATE) for block, rate in TRIAD)
        moves = tuple(move.model_copy(update={"efficiency": curve}) for move in machine.moves)
        machine = machine.model_copy(update={"moves": moves})
    head = "#include <slave.h>\n" + MUCH
    few, many = (
        counts(built(parts, tmp_path, _lone(size, n, gets), head), tmp_path, figures(machine))[0]
        for n in (1, 5)
    )
    rate = dict(zip(_SIZES, LONE[pattern], strict=True))[size]
    measured = 64 * size * (gets + 1) / rate * CLOCK_HZ / 1e9
    most = 0.18 if size < 256 else 0.07
    assert (many - few) / 4 == pytest.approx(measured, rel=most)


def test_the_latency_is_that_of_the_shortest_command() -> None:
    """With 64 CPEs at work, and below what swDNN's start-ups leave: 20 of them in 16 us."""
    cycles = MACHINE.move("dram", "ldm").latency + MACHINE.issue_cycles
    transaction = 128 * CPES / (22.6e9 / CLOCK_HZ)
    assert cycles + transaction == pytest.approx(LONE_SECONDS * CLOCK_HZ, abs=1)
    assert 20 * cycles < 16e-6 * CLOCK_HZ


EXCHANGE = """
floatv4 v = {1, 2, 3, 4};
if (id % 8 == 0) {
    shim_charge(300);
    for (int i = 0; i < 10; i++)
        simd_putr(v, 8);
} else
    for (int i = 0; i < 10; i++)
        v = simd_getr(v);
lane = v;
"""


def test_who_receives_waits_for_who_sends(parts: list[str], tmp_path: Path) -> None:  # noqa: F811
    charge = "extern void shim_charge(double);\n"
    program = built(parts, tmp_path, EXCHANGE, charge)
    cycles, *_ = counts(program, tmp_path)
    alone, *_ = counts(built(parts, tmp_path, "lane = lane;\n"), tmp_path)
    assert cycles == alone + 300 + 2 * 10 + 10


@pytest.mark.parametrize(
    "text",
    ["ceil(a/16)*b+3", "a//4*b%7", "where(a>b,a,min(b,3,a))", "max(a,b)/2-abs(1-a)", "-a+2*(b+1)"],
)
def test_expressions_are_the_same_in_c(text: str) -> None:
    expression = parse_expression(text)
    for a, b in ((17, 5), (3, 9), (32, 32)):
        c = expression_text(expression, {"a": str(a), "b": str(b)}).replace("(double)", "")
        if "?" in c:
            condition, rest = c[1:-1].split(" ? ")
            left, right = rest.split(" : ")
            c = f"({left}) if {condition} else ({right})"
        names = {"ceil": np.ceil, "floor": np.floor, "fabs": abs, "fmin": min, "fmax": max}
        assert float(eval(c, names)) == pytest.approx(float(expression.evaluate({"a": a, "b": b})))


def test_figures_are_the_machines() -> None:
    lines = dict(line.split(" ", 1) for line in figures(MACHINE).splitlines())
    assert set(lines) == {"memory", "get", "put", "issue", "spawn", "bus"}
    assert lines["spawn"] == "15000"
    assert lines["bus"] == f"{MESH.vector_cycles} {MESH.turn_cycles}"
    rate, latency, in_flight, points, *curve = lines["get"].split()
    assert (int(latency), int(in_flight)) == (1043, 2)
    assert int(points) == len(MACHINE.move("dram", "ldm").efficiency)
    assert len(curve) == 2 * int(points)
    assert float(rate) == MACHINE.move("dram", "ldm").bytes_per_cycle


def layer(folder: Path) -> Path:
    """A convolution whose parts are all alike."""
    net = Network(1, 32, 32, 32)
    return net.save(folder / "layer.onnx", net.op("Relu", net.conv("x", 32, 64, 3)))


@pytest.mark.parametrize("model", but_fast([tiny, layer], [layer]))
def test_layers_take_what_their_plans_say(model: Callable[[Path], Path], tmp_path: Path) -> None:
    path = model(tmp_path)
    package = tilewright.compile(path, "sunway", directory=tmp_path / "p", planner="exact")
    target, machine = resolve("sunway")
    work = run_pipeline(path, target, machine)
    info = package.inputs[0]
    random = np.random.default_rng(1)
    inputs = {info.name: random.normal(size=[int(n) for n in info.shape]).astype(np.float32)}
    assert package.check(inputs, package.run(inputs, profile=True)).equal
    assert isinstance(package.runner, SunwayRunner)
    assert package.profile.cycles == sum(kernel.cycles or 0 for kernel in package.profile.kernels)
    for kernel, compiled in zip(package.profile.kernels, work.kernels, strict=True):
        assert compiled.program is not None
        moved = 0
        for cpe in range(machine.cores):
            walk = Walk(programs_of(compiled.program)[0], cpe, machine.cores)
            moved += sum(size for runs in walk.run().values() for _, size in runs)
        assert kernel.dram_bytes == moved
        assert kernel.cycles is not None
        if model is layer:
            planned = work.plans[kernel.symbol].predicted_cycles
            # Parts at the border fetch less than those inside, for which the plan takes all.
            assert 0.9 * planned < kernel.cycles < 1.02 * planned
    again = package.profile.cycles
    package.run(inputs)
    assert package.profile.cycles == again
