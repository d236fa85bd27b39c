"""The backend suite's cases, run through the interpreter and, many to one build, the cpu target."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

from tests.quick_build import build
from tilewright.driver import compile
from tilewright.errors import TilewrightError
from tilewright.frontends import Imported
from tilewright.graph.interpreter import interpret
from tilewright.onnx_backend import specialised
from tilewright.runtime.executable import Executable
from tilewright.targets.cpu.runner import CpuRunner

Array = np.ndarray[Any, Any]

PASSED, REFUSED, WRONG = "passed", "refused", "wrong"


@cache
def cases() -> tuple[TestCase, ...]:
    """The node tests of the installed onnx."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(load_model_tests(kind="node"))


@dataclass
class Outcome:
    """What became of one test on one engine."""

    result: str
    reason: str = ""


@dataclass
class Trial:
    """One data set of a test, imported."""

    case: TestCase
    imported: Imported
    feeds: dict[str, Array]
    wanted: Sequence[Array]

    def judge(self, got: Iterable[Array]) -> Outcome:
        """Compare with the suite's outputs, as the suite does."""
        results = list(got)
        if len(results) != len(self.wanted):
            return Outcome(WRONG, f"{len(results)} results, not {len(self.wanted)}")
        for found, want in zip(results, self.wanted, strict=True):
            if found.dtype != want.dtype or found.shape != want.shape:
                return Outcome(WRONG, f"{found.dtype}{found.shape}, not {want.dtype}{want.shape}")
            exact = found.dtype.kind in "biu"
            x, y = (found, want) if exact else (found.astype(float), want.astype(float))
            if not np.allclose(x, y, self.case.rtol, self.case.atol, equal_nan=not exact):
                return Outcome(WRONG, f"differs by {np.abs(x.astype(float) - y).max()}")
        return Outcome(PASSED)


def array_of(value: Any) -> Array:
    """An input or output of the suite as an array; raises TypeError for what is none."""
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, list | dict | type(None)):
        raise TypeError("no tensor")
    return np.asarray(value)


def trials_of(case: TestCase) -> list[Trial] | Outcome:
    """The test's data sets, imported, or why they are not."""
    found: list[Trial] = []
    stored = {tensor.name for tensor in case.model.graph.initializer}
    names = [value.name for value in case.model.graph.input if value.name not in stored]
    for given, wanted in case.data_sets or []:
        try:
            feeds = dict(zip(names, map(array_of, given), strict=False))
            outputs = [array_of(value) for value in wanted]
        except TypeError:
            # Sequences and optionals; what the importer says of the model is the outcome.
            feeds, outputs = {}, []
        try:
            imported, constant = specialised(case.model, feeds)
        except TilewrightError as error:
            problem = error.problems[-1]
            return Outcome(REFUSED, f"{problem.code}: {problem.reason}")
        left = {name: array for name, array in feeds.items() if name not in constant}
        found.append(Trial(case, imported, left, outputs))
    return found


def interpreted(trials: Sequence[Trial]) -> Outcome:
    """A test on the graph interpreter."""
    for trial in trials:
        got = interpret(trial.imported.module, trial.imported.weights, trial.feeds)
        outcome = trial.judge(got.values())
        if outcome.result != PASSED:
            return outcome
    return Outcome(PASSED)


@dataclass
class Package:
    """A compiled test whose C is not built yet."""

    trial: Trial
    executable: Executable
    prefix: str


def emitted(trial: Trial, number: int) -> Package:
    """Compile up to the C; the network gets a name of its own."""
    name = f"net{number}"
    network = trial.imported.module.body.block.first_op
    network.properties["symbol"] = type(network.properties["symbol"])(name)
    return Package(trial, compile(trial.imported, "cpu"), name)


def built(packages: Sequence[Package], folder: Path) -> None:
    """Build the C of many packages as one library each, one compiler run for all.

    Every package's sources become one file, without optimisation: what is tested is their meaning.
    """

    def one(package: Package) -> None:
        program = package.executable.directory / "program"
        build(program, folder / f"{package.prefix}.so")

    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(one, packages))


def run_built(package: Package, folder: Path) -> Outcome:
    """Run a package on its library."""
    library = folder / f"{package.prefix}.so"
    with patch("tilewright.targets.cpu.runner.load_library", lambda *_: library):
        runner = CpuRunner(package.executable.directory / "program")
    got = runner.run(package.trial.feeds).outputs
    return package.trial.judge(got.values())


def on_cpu(trials: Sequence[Trial]) -> list[Outcome]:
    """Data sets on the cpu target, built together."""
    packages: list[Package | Outcome] = []
    for number, trial in enumerate(trials):
        try:
            packages.append(emitted(trial, number))
        except TilewrightError as error:
            problem = error.problems[-1]
            packages.append(Outcome(REFUSED, f"{problem.code}: {problem.reason}"))
    with tempfile.TemporaryDirectory(prefix="tilewright-suite-") as name:
        folder = Path(name)
        built([p for p in packages if isinstance(p, Package)], folder)
        return [p if isinstance(p, Outcome) else run_built(p, folder) for p in packages]


__all__ = ["Outcome", "Trial", "array_of", "cases", "interpreted", "on_cpu", "trials_of"]
