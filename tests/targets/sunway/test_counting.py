"""What the shim counts: cases that follow by hand, and whole layers beside their plans."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.targets.sunway.expected_transfers import Walk
from tests.targets.sunway.sunway_networks import Network, tiny
from tests.targets.sunway.test_shim import GET, PUT, WAIT, Program, built, parts  # noqa: F401

import tilewright
from tilewright.compiler.pipeline import resolve, run_pipeline
from tilewright.machine import parse_expression
from tilewright.targets.sunway.emit.charge import expression_text
from tilewright.targets.sunway.machine import MACHINE
from tilewright.targets.sunway.runner import SunwayRunner, figures
from tilewright.tile.dialect import programs_of

FIGURES = """\
memory 16
get 8 100 2 64 0.5 256 1
put 8 100 0
issue 25
spawn 1000
"""


def counts(program: Program, folder: Path) -> list[int]:
    (folder / "figures").write_text(FIGURES)
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
    # Parameters (16 bytes at half the rate: 4 cycles each), then 64 gets of 32 cycles one behind
    # the other, the last one's computation, and its put.
    parameters = 25 + 64 * 4
    gets = parameters + 64 * 32 + 100
    assert cycles == gets + 500 + 25 + 32 + 100 + 1000


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
    # The parameters come to CPE 56, the last of the first column, 7 * 4 cycles before the last.
    assert cycles == alone - 7 * 4 + 300 + 2 * 10 + 10


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
    assert set(lines) == {"memory", "get", "put", "issue", "spawn"}
    assert lines["spawn"] == "15000"
    rate, latency, points, *curve = lines["get"].split()
    assert (float(latency), int(points)) == (278.0, len(MACHINE.move("dram", "ldm").efficiency))
    assert len(curve) == 2 * int(points)
    assert float(rate) == MACHINE.move("dram", "ldm").bytes_per_cycle


def layer(folder: Path) -> Path:
    """A convolution whose parts are all alike."""
    net = Network(1, 32, 32, 32)
    return net.save(folder / "layer.onnx", net.op("Relu", net.conv("x", 32, 64, 3)))


@pytest.mark.parametrize("model", [tiny, layer])
def test_layers_take_what_their_plans_say(model: Callable[[Path], Path], tmp_path: Path) -> None:
    path = model(tmp_path)
    package = tilewright.compile(path, "sunway", directory=tmp_path / "p", planner="exact")
    target, machine = resolve("sunway")
    work = run_pipeline(path, target, machine)
    info = package.inputs[0]
    random = np.random.default_rng(1)
    inputs = {info.name: random.normal(size=[int(n) for n in info.shape]).astype(np.float32)}
    assert package.check(inputs, package.run(inputs, profile=True)).passed
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
            assert 0.9 * planned < kernel.cycles < 1.03 * planned
    again = package.profile.cycles
    package.run(inputs)
    assert package.profile.cycles == again
