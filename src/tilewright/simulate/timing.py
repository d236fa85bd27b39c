"""Timing: when each command of a program starts and ends on a machine's engines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.machine.model import Machine
from tilewright.simulate.commands import TimedArray


@dataclass(frozen=True)
class Timeline:
    """When everything happened, in cycles from the start of the program."""

    start: NDArray[np.float64]
    """Per command: its waits are met and its latency begins."""
    data: NDArray[np.float64]
    """Per command: its latency is over and its bytes begin to flow, or its compute begins."""
    end: NDArray[np.float64]
    """Per command: it has completed."""
    cycles: int
    """The whole program, rounded up."""
    busy: NDArray[np.float64]
    """Per engine: cycles in which at least one of its commands had started and not ended."""
    main_bytes: int
    """Bytes that flowed through main memory."""
    kernel_start: NDArray[np.float64]
    """Per kernel: the first start of its commands (0 for a kernel without commands)."""
    kernel_end: NDArray[np.float64]
    """Per kernel: the last end of its commands."""
    kernel_bytes: NDArray[np.int64]
    """Per kernel: bytes through main memory."""

    @property
    def kernel_cycles(self) -> NDArray[np.float64]:
        """Per kernel: by how much it moved the end of all that came before; sums to the total."""
        ends = np.maximum.accumulate(self.kernel_end) if self.kernel_end.size else self.kernel_end
        return np.diff(ends, prepend=0.0)


def simulate(
    commands: TimedArray, machine: Machine, *, label: Callable[[int], str] | None = None
) -> Timeline:
    """Run a program; ``label`` names a command in errors. See the module's text."""
    raise NotImplementedError
