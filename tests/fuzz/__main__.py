"""Run random graphs on all engines until one differs; ``make fuzz COUNT=5000 SEED=7``.

python -m tests.fuzz --count 1000 --seed 7 --folder build/fuzz

python -m tests.fuzz --on all --count 20
python -m tests.fuzz --on zu2,examples/machines/mixed.toml --count 200

``--on`` asks more of targets that have a host to fall back on (sweep.py): every graph runs on each
of them, and may not be refused. The host's C is built without optimisation, which takes a third of
the time.

Failures shrink, are written to the folder, and are told; then the next stretch of graphs begins
with another seed, so that one run finds several faults. Exit status 1 if there were any.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded

from tests.fuzz.cases import Case, cases, judged, operators, reduced
from tests.fuzz.sweep import accelerators, shortened, sweep
from tests.quick_build import build_libraries_as_one
from tilewright.report.agreement import Verdict

SLOW_EVERY = 6
"""Simulating cambricon-x takes longer than all the rest."""

TARGETS = ("cambricon-x",)

STRETCH = 250
"""Graphs of one seed: a failure ends the stretch."""


class Tally:
    """What has been run so far."""

    def __init__(
        self, folder: Path, slow: int = SLOW_EVERY, targets: Sequence[str] = TARGETS
    ) -> None:
        self.folder = folder
        self.slow = slow
        self.targets = targets
        self.graphs = 0
        self.results: Counter[tuple[str, str]] = Counter()
        self.refusals: Counter[str] = Counter()
        self.operators: Counter[str] = Counter()
        self.last: tuple[Case, str] | None = None
        self.simulated: Sequence[str] = ()

    def run(self, case: Case) -> None:
        """One case; raises AssertionError if engines differ."""
        self.graphs += 1
        self.operators.update(operators(case))
        if self.last is None:
            self.simulated = self._simulated()
        compared = judged(case, ("cpu", *self.simulated))
        for verdict in compared.verdicts:
            self.results[verdict.engine, verdict.result] += 1
            if verdict.result == "refused":
                self.refusals[f"{verdict.engine}: {verdict.detail[:150]}"] += 1
        if not compared.passed:
            self.last = case, str(compared)
            raise AssertionError(str(compared))

    def _simulated(self) -> Sequence[str]:
        """The simulated targets of this graph: each in turn. While a failure shrinks, it stays."""
        if not self.slow:
            return ()
        turn, rest = divmod(self.graphs, self.slow)
        return () if rest else (self.targets[turn % len(self.targets)],)


def stretch(tally: Tally, count: int, seed: int) -> Path | None:
    """Run some graphs; the file of a failure, or None."""

    @seeded(seed)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
        report_multiple_bugs=False,
        derandomize=False,
    )
    @given(cases())
    def check(case: Case | None) -> None:
        if case is not None:
            tally.run(case)

    tally.last = None
    try:
        check()
    except AssertionError:
        assert tally.last is not None
        case, told = tally.last
        case = reduced(case, ("cpu", *tally.simulated))
        path = case.save(tally.folder)
        print(f"{case}\n{told}replay with: tilewright replay {path}\n", flush=True)
        return path
    return None


def sweep_on(targets: Sequence[str], count: int, seed: int, folder: Path) -> int:
    """Random networks, others for each target, none of which may be refused; each failure is told,
    and kept."""

    def told(case: Case, verdict: Verdict) -> None:
        short = shortened(case, verdict)
        path = short.save(folder)
        print(f"{verdict.engine} {verdict.result}: {verdict.detail}\n  {short} {path}", flush=True)

    begin, failed = time.monotonic(), 0
    for number, target in enumerate(targets):
        swept = sweep([target], count, seed * 1000 + number, told)
        failed += len(swept.failures)
        share = f"{swept.hosted} of {swept.kernels} kernels on the host"
        took = time.monotonic() - begin
        print(
            f"{target}: {swept.networks} networks, {len(swept.failures)} failures; {share}; "
            f"{took:.0f} s so far",
            flush=True,
        )
    return 1 if failed else 0


def main() -> int:
    """Run, tell, and count."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--count", type=int, default=1000, help="graphs, shrinking left out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--simulate", type=int, default=SLOW_EVERY, help="one in so many graphs")
    parser.add_argument(
        "--targets", default=",".join(TARGETS), help="simulated targets, which take turns"
    )
    parser.add_argument("--on", metavar="TARGETS", help="all, or targets and machine files")
    arguments = parser.parse_args()
    if arguments.on:
        build_libraries_as_one(optimise=False)
        targets = accelerators() if arguments.on == "all" else arguments.on.split(",")
        return sweep_on(targets, arguments.count, arguments.seed, arguments.folder)
    tally = Tally(arguments.folder, arguments.simulate, arguments.targets.split(","))
    failures: list[Path] = []
    begin = time.monotonic()
    for number, start in enumerate(range(0, arguments.count, STRETCH)):
        before = tally.graphs
        path = stretch(tally, min(STRETCH, arguments.count - start), arguments.seed * 1000 + number)
        failures += [path] if path else []
        took = time.monotonic() - begin
        print(f"{tally.graphs} graphs in {took:.0f} s (+{tally.graphs - before})", flush=True)
    for (engine, result), count in sorted(tally.results.items()):
        print(f"{engine:12} {result:8} {count}")
    for reason, count in tally.refusals.most_common(20):
        print(f"{count:6} {reason}")
    print(", ".join(f"{name} {count}" for name, count in sorted(tally.operators.items())))
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
