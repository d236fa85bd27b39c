"""Random networks on machines whose host takes what they cannot do: right, or there with a reason.

Of every network that imports each target gives what its own program means, bit for bit where it
computes in integers, and as close to the model as its numbers say (``Executable.check``); no result
hangs on a race, or on bytes that nobody wrote. Nothing is refused as a whole, and every kernel of
the host says why it is there. Where other tools run a target's packages, they are only written.
Of one network in some, ``plan`` and ``explain`` have each kernel where ``compile`` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, cast

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded

from tests.fuzz.cases import Case, cases
from tests.fuzz.commands import disagreement
from tilewright.compiler.api import compile
from tilewright.compiler.pipeline import resolve
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.interpreter import interpret
from tilewright.graph.sensitivity import is_float
from tilewright.ir.types import Array
from tilewright.numerics.element_types import ElementType
from tilewright.numerics.precision import PRECISIONS
from tilewright.report.agreement import Verdict, Wanted, guarded
from tilewright.runtime import Executable
from tilewright.runtime.check import Check
from tilewright.system.choices import target_names
from tilewright.targets.base import find_target

ROOT = Path(__file__).parents[2]


def accelerators() -> list[str]:
    """Every target with a host to fall back on, and every machine of the examples."""
    targets = [find_target(name) for name in target_names()]
    names = [t.name for t in targets if t.falls_back and t.name != "generic"]
    return names + [str(path) for path in sorted((ROOT / "examples/machines").glob("*.toml"))]


COMMANDS_EVERY = 4
"""Of so many networks, one is given to the commands, too."""

RUNS, MARGIN = 8, 4.0
"""Runs of a model with operands rounded at random, and how often their error may be met."""


@dataclass
class Sweep:
    """What became of networks so far."""

    targets: Sequence[str]
    told: Callable[[Case, Verdict], None]
    """Called for every failure."""
    networks: int = 0
    """Those that import."""
    failures: list[tuple[Case, Verdict]] = field(default_factory=list[tuple[Case, Verdict]])
    hosted: int = 0
    """Kernels on the host, over all targets."""
    kernels: int = 0
    """All kernels, over all targets."""

    def run(self, case: Case) -> None:
        """One network on every target."""
        wanted: list[Wanted] = []

        def read() -> Verdict:
            wanted.append(Wanted(import_onnx(case.model), case.inputs))
            return Verdict("import", "agrees")

        verdict = guarded("import", read)
        if verdict.result == "refused":
            return
        self.networks += 1
        for target in self.targets if wanted else ():
            verdict = guarded(target, lambda target=target: self._judge(target, wanted[0]))
            self._note(case, verdict)
            if self.networks % COMMANDS_EVERY == 0:
                options = ("--numbers", "int8") if is_quantised(target) else ()
                differs = disagreement(case, target, options)
                self._note(case, Verdict(target, "differs" if differs else "agrees", differs))
        if not wanted:
            self._note(case, verdict)

    def _note(self, case: Case, verdict: Verdict) -> None:
        if verdict.result != "agrees":
            self.failures.append((case, verdict))
            self.told(case, verdict)

    def _judge(self, target: str, wanted: Wanted) -> Verdict:
        executable = compile(wanted.imported, target, **calibrated(target, wanted))
        silent = self._count(executable)
        if silent:
            return Verdict(target, "differs", f"on the host without a reason: {silent}")
        if not find_target(executable.manifest.target).runs:
            return Verdict(target, "agrees", "written, and run by other tools")
        check = executable.check(
            wanted.inputs, executable.run(dict(wanted.inputs), check_races=True)
        )
        right = check.passed or (check.equal and (beyond(check) or magnified(wanted, check)))
        told = f"{check.mismatches} mismatches; {check.model}"
        return Verdict(target, "agrees" if right else "differs", told)

    def _count(self, executable: Executable) -> str:
        """The first kernel of the host without a reason; "" if there is none."""
        kernels = executable.manifest.kernels
        hosted = [kernel for kernel in kernels if kernel.engine == "host"]
        self.kernels += len(kernels)
        self.hosted += len(hosted)
        return next((kernel.name for kernel in hosted if not kernel.reason), "")


def calibrated(target: str, wanted: Wanted) -> dict[str, Any]:
    """Options for machines of integers: ranges as they are, and int8 where networks of floats run
    only once they are quantised."""
    number = resolve(target)[1].number
    options: dict[str, Any] = {"calibration": [wanted.inputs]} if number.is_integer else {}
    return options | ({"numbers": "int8"} if is_quantised(target) else {})


def is_quantised(target: str) -> bool:
    """Return True if a network of floats runs on a target only once it is quantised."""
    return resolve(target)[1].number.kind == "integer"


def beyond(check: Check) -> bool:
    """Return True if every output that is wrong has numbers that its 16-bit floats do not hold.

    The check counts them (``clipped``) and fails, as it should: no program can be right.
    """
    if check.model is None or not PRECISIONS[cast(ElementType, check.model.element)].relative:
        return False
    return all(output.passed or output.clipped for output in check.model.outputs)


def magnified(wanted: Wanted, check: Check) -> bool:
    """Whether a model makes as much of roundings to the numbers at hand as what was seen.

    A user's network that does so fails a check, which has bounds for that. Random networks divide
    by what is about 0, and normalise rows that are all alike.
    """
    if check.model is None:
        return False
    seen = {output.name: output for output in check.model.outputs if not output.passed}
    precision = PRECISIONS[cast(ElementType, check.model.element)]
    generator = np.random.default_rng(0)

    def rounded(array: Array) -> Array:
        if not is_float(array):
            return array
        size = np.abs(array) if precision.relative else np.abs(array).max(initial=0)
        noise = precision.step * size * generator.uniform(-1, 1, array.shape)
        return (array + noise).astype(array.dtype)

    module, weights = wanted.imported.module, wanted.imported.weights
    worst = dict.fromkeys(seen, 0.0)
    for _ in range(RUNS):
        with np.errstate(all="ignore"):
            results = interpret(module, weights, wanted.inputs, rounding=rounded)
            for name in seen:
                apart = np.abs(results[name].astype(np.float64) - wanted.outputs[name])
                worst[name] = max(worst[name], float(np.nan_to_num(apart, nan=inf).max(initial=0)))
    return all(output.max_error <= MARGIN * worst[name] for name, output in seen.items())


def sweep(
    targets: Iterable[str],
    count: int,
    seed: int,
    told: Callable[[Case, Verdict], None] = lambda case, verdict: None,
) -> Sweep:
    """Run so many random networks on each target."""
    swept = Sweep(tuple(targets), told)

    @seeded(seed)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
    )
    @given(cases())
    def run(case: Case | None) -> None:
        if case is not None:
            swept.run(case)

    run()
    return swept


def shortened(case: Case, verdict: Verdict) -> Case:
    """The shortest beginning of a network of which the same target says as much."""
    for last in case.model.graph.node:
        smaller = case.up_to(last)
        if smaller is None:
            continue
        swept = Sweep((verdict.engine,), lambda case, verdict: None)
        swept.run(smaller)
        if swept.failures and swept.failures[0][1].result == verdict.result:
            return smaller
    return case
