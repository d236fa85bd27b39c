"""Runs a package on the simulated machine: values and times from the same words."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np

from tilewright.codegen.program.files import HeldResult
from tilewright.codegen.program.interface import Profile
from tilewright.codegen.program.stepped import SteppedRunner, Times
from tilewright.graph.placement import ACTIVATIONS, WEIGHTS
from tilewright.numerics.poison import spoil
from tilewright.targets.cambricon.lowering.network import CONSTANTS
from tilewright.targets.cambricon.package import Package
from tilewright.targets.cambricon.simulate import Result, Simulator
from tilewright.targets.cambricon.simulate.timeline import write_events


class CambriconRunner(SteppedRunner):
    """A package on the simulated machine.

    The queue checks dependences, so that no order of the units can be wrong: ``check_races`` has
    nothing to refuse.
    """

    def __init__(self, package: Package) -> None:
        super().__init__(package.parts)
        self.package = package
        file, weights, constants = self.parts.file, self.parts.weights, self.parts.image
        self.main = np.zeros(file.bases[CONSTANTS] + constants.size, np.uint8)
        self.main[file.bases[WEIGHTS] :][: weights.size] = weights
        self.main[file.bases[CONSTANTS] :] = constants
        self.arenas = {
            name: self.main[file.bases[name] : file.bases[name] + file.arenas[name]]
            for name in (WEIGHTS, ACTIVATIONS)
        }

    def timed(self) -> Profile:
        """A run on zeros: nothing that is compiled branches on values."""
        zeros = {
            info.name: np.zeros([int(size) for size in info.shape], info.dtype)
            for info in self.inputs
        }
        return self.run(zeros).profile

    @property
    def instructions(self) -> int:
        """Words of the program; loops execute many of them more than once."""
        return self.package.words.size

    def simulation(self, *, traced: bool) -> _Simulation:
        """A machine of its own for every run."""
        return _Simulation(self, traced)

    def label(self, word: int) -> str:
        """A word by its kernel, for messages."""
        rows = self.parts.file.kernels
        row = next((row for row in rows if row.start <= word < row.end), None)
        return f"word {word}" if row is None else f"{row.symbol}: word {word - row.start}"


class _Simulation:
    """One run of a package on the simulator."""

    def __init__(self, runner: CambriconRunner, traced: bool) -> None:
        self._runner = runner
        self._simulator = Simulator(
            runner.package.words,
            runner.parts.machine,
            runner.main,
            kernels=runner.kernels,
            events=traced,
            label=runner.label,
        )
        spoil(self._simulator.state.chip, runner.seed)
        self.run = self._simulator.run

    def reveal(self, held: HeldResult) -> None:
        """Copy a result that stays in VSM to its place among the activations."""
        vsm = self._simulator.state.chip[: self._runner.parts.machine.memory("vsm").bytes]
        result = vsm[held.address : held.address + held.bytes]
        self._runner.arenas[ACTIVATIONS][held.place : held.place + held.bytes] = result

    @cached_property
    def _result(self) -> Result:
        return self._simulator.result()

    def times(self) -> Times:
        """Return the cycles and bytes of the run."""
        result = self._result
        known = np.isfinite(result.kernel_start)
        end = np.where(known, result.kernel_end, 0.0)
        reached = np.maximum.accumulate(end) if end.size else end
        return Times(
            round(result.cycles),
            np.diff(reached, prepend=0.0),
            np.where(known, result.kernel_start, 0.0),
            end,
            result.kernel_bytes,
            result.main_bytes,
            result.busy,
        )

    def write_trace(self, path: Path) -> None:
        """The executed words for Perfetto."""
        rows = self._runner.parts.file.kernels
        write_events(
            path,
            self._result,
            self._runner.package.words,
            self._runner.parts.machine,
            kernels=[row.symbol for row in rows],
            nodes=[row.nodes for row in rows],
        )
