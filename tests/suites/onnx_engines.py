"""Runs the suite's trials on the graph interpreter and, many to one build, on the cpu target."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest.mock import patch

from tests.quick_build import build_together
from tests.suites.onnx_cases import PASSED, REFUSED, Outcome, Trial
from tilewright.compiler import api as compiling
from tilewright.compiler import pipeline as driver
from tilewright.errors import TilewrightError
from tilewright.graph.dialect import WeightOp, network_of
from tilewright.graph.interpreter import interpret
from tilewright.graph.weights import digest_of
from tilewright.ir import SSAValue
from tilewright.ir.passes import PassRunner
from tilewright.runtime.executable import Executable
from tilewright.runtime.output_sizes import cut_to_sizes
from tilewright.targets.cpu.runner import CpuRunner

TOGETHER = 12
"""Networks whose C is one file: the compiler reads the shared headers once for all."""


def interpreted(trials: Sequence[Trial]) -> Outcome:
    """A test on the graph interpreter."""
    for trial in trials:
        got = interpret(trial.imported.module, trial.imported.weights, trial.feeds)
        outcome = trial.judge(cut_to_sizes(trial.imported.ends, got).values())
        if outcome.result != PASSED:
            return outcome
    return Outcome(PASSED)


@dataclass
class Package:
    """A compiled network whose C is not built yet."""

    executable: Executable
    prefix: str


def meaning(trial: Trial) -> str:
    """A network's operations without the model's names: what is equal computes the same.

    Tests of an operator's definition by others often import as its own test does.
    """
    network, store = network_of(trial.imported.module), trial.imported.weights
    numbers: dict[SSAValue, int] = {}
    lines: list[str] = []
    for argument in network.block.args:
        numbers[argument] = len(numbers)
        lines.append(str(argument.type))
    for op in network.block.ops:
        of = [numbers[value] for value in op.operands]
        if isinstance(op, WeightOp):
            about = digest_of(store.get(op.symbol.data))
        else:
            about = " ".join(f"{k}={v}" for k, v in sorted(op.properties.items()) if k != "node")
        lines.append(f"{op.name} {of} {about} {[str(result.type) for result in op.results]}")
        for result in op.results:
            numbers[result] = len(numbers)
    return "\n".join(lines)


def emitted(trial: Trial, number: int) -> Package:
    """Compile up to the C; the network gets a name of its own."""
    name = f"net{number}"
    network = network_of(trial.imported.module)
    network.properties["symbol"] = type(network.symbol)(name)
    return Package(compiling.compile(trial.imported, "cpu"), name)


def built(packages: Sequence[Package], folder: Path, *, optimise: bool) -> dict[str, Path]:
    """Build the C of packages, ``TOGETHER`` to a library; gives each one's by its prefix.

    Without optimisation, unless they are whole networks: what is tested is their meaning.
    """
    groups = [packages[i : i + TOGETHER] for i in range(0, len(packages), TOGETHER)]

    def one(group: Sequence[Package]) -> Path:
        programs = {p.prefix: p.executable.directory / "program" for p in group}
        library = folder / f"{group[0].prefix}.so"
        return build_together(programs, library, ("-O2",) if optimise else ("-O0",))

    with ThreadPoolExecutor(max_workers=2) as pool:
        libraries = list(pool.map(one, groups))
    return {p.prefix: so for g, so in zip(groups, libraries, strict=True) for p in g}


def run_built(package: Package, library: Path, trial: Trial) -> Outcome:
    """Run a trial on the library of its network, or of an equal one."""
    with patch("tilewright.targets.cpu.runner.load_library", lambda *_: library):
        runner = CpuRunner(package.executable.directory / "program")
    network = network_of(trial.imported.module)
    ordered = [trial.feeds[name] for name, _ in network.inputs]
    feeds = {info.name: array for info, array in zip(runner.inputs, ordered, strict=True)}
    names, arrays = (name for name, _ in network.outputs), runner.run(feeds).outputs.values()
    outputs = cut_to_sizes(trial.imported.ends, dict(zip(names, arrays, strict=True)))
    return trial.judge(outputs.values())


@contextmanager
def unverified() -> Iterator[None]:
    """Leave out what the driver verifies between passes, which other tests run with."""
    with patch.object(driver, "PassRunner", partial(PassRunner, verify=False)):
        yield


def on_cpu(trials: Sequence[Trial]) -> list[Outcome]:
    """Data sets on the cpu target, built together; equal networks are compiled once."""
    packages: dict[str, Package | Outcome] = {}
    keys = [meaning(trial) for trial in trials]
    with unverified():
        for number, (key, trial) in enumerate(zip(keys, trials, strict=True)):
            if key in packages:
                continue
            try:
                packages[key] = emitted(trial, number)
            except TilewrightError as error:
                problem = error.problems[-1]
                packages[key] = Outcome(REFUSED, f"{problem.code}: {problem.reason}")
    with tempfile.TemporaryDirectory(prefix="tilewright-suite-") as name:
        whole = any(trial.case.kind == "real" for trial in trials)
        made = [p for p in packages.values() if isinstance(p, Package)]
        libraries = built(made, Path(name), optimise=whole)
        outcomes: list[Outcome] = []
        for key, trial in zip(keys, trials, strict=True):
            found = packages[key]
            if isinstance(found, Package):
                found = run_built(found, libraries[found.prefix], trial)
            outcomes.append(found)
        return outcomes
