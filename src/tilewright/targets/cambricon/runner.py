"""Runs a package on the simulated machine: values and times from the same words."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.program.files import KernelRow, ProgramParts
from tilewright.codegen.program.interface import Profile
from tilewright.codegen.program.stepped import SteppedRunner, Times
from tilewright.graph.placement import ACTIVATIONS, WEIGHTS
from tilewright.numerics.poison import spoil
from tilewright.simulate.trace import Events
from tilewright.targets.cambricon.lowering.network import CONSTANTS
from tilewright.targets.cambricon.simulate import Simulator
from tilewright.targets.cambricon.simulate.timeline import events_of


class CambriconRunner(SteppedRunner):
    """A package on the simulated machine.

    The queue checks dependences, so that no order of the units can be wrong: ``check_races`` has
    nothing to refuse.
    """

    def __init__(self, parts: ProgramParts) -> None:
        super().__init__(parts)
        self.words = np.frombuffer(parts.data, "<u8").astype(np.uint64)
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
        return self.words.size

    def begin(self) -> None:
        """A machine of its own for every run."""
        self._simulator = Simulator(
            self.words,
            self.parts.machine,
            self.main,
            kernels=self.kernels,
            events=self.traced,
            label=self.label,
        )
        spoil(self._simulator.state.chip.data, self.seed)

    def lose_chip(self) -> None:
        """Fill the scratchpads with a pattern."""
        spoil(self._simulator.state.chip.data, self.seed)

    def execute(self, kernel: KernelRow) -> None:
        """Execute words until the program is at the kernel's end."""
        self._simulator.run(kernel.start, kernel.end)

    def memory(self, name: str) -> NDArray[np.uint8]:
        """The bytes of VSM, which lies first on the chip; results stay in no other memory."""
        return self._simulator.state.chip.data[: self.parts.machine.memory(name).bytes]

    def label(self, word: int) -> str:
        """A word by its kernel, for messages."""
        rows = self.parts.file.kernels
        row = next((row for row in rows if row.start <= word < row.end), None)
        return f"word {word}" if row is None else f"{row.symbol}: word {word - row.start}"

    def times(self) -> Times:
        """Return the cycles and bytes of the run."""
        result = self._simulator.result()
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

    def events(self) -> Events:
        """The events of the words that the last run executed."""
        return events_of(self._simulator.result(), self.words, self.parts.machine)
