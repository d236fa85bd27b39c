"""Loops of a program: the host runs the rounds of a body that is a package of its own.

The body's package lies in ``loops/NAME`` of the program's folder, by the name of the loop's kernel.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.program.interface import KernelProfile, Profile, Runner
from tilewright.errors import refuse
from tilewright.graph.arenas import Arenas, read_value, write_value
from tilewright.graph.dialect import KernelOp
from tilewright.graph.operations.loops import LoopOp, loop_operands
from tilewright.ir.types import Array, element_dtype, shape_of, tensor_type
from tilewright.simulate.commands import TimedArray
from tilewright.simulate.timing import Spans
from tilewright.simulate.trace import Rounds

LOOPS = "loops"
"""The folder of a program that holds the packages of its loops' bodies."""

Opener = Callable[[Path], Runner]
"""Makes a runner of the files of a program."""


def later(spans: Spans, commands: TimedArray, offsets: NDArray[np.float64]) -> Spans:
    """Spans of commands and kernels, each later by the offset of its kernel."""
    moved = offsets[commands["kernel"]]
    ran = spans.kernel_end > 0
    return replace(
        spans,
        start=spans.start + moved,
        data=spans.data + moved,
        end=spans.end + moved,
        kernel_end=spans.kernel_end + np.where(ran, offsets[: spans.kernel_end.size], 0.0),
    )


class LoopStep:
    """One loop: a step of the host that runs a body's program round after round."""

    def __init__(self, op: KernelOp, loop: LoopOp, program: Path, opener: Opener) -> None:
        self.op, self.loop, self.symbol = op, loop, op.symbol.data
        if not re.fullmatch(r"[A-Za-z]\w*", self.symbol, re.ASCII):
            raise refuse("package-invalid", "a loop's name is no identifier", self.symbol[:80])
        # A package is a folder with its program in ``program`` (runtime/manifest.py).
        self.runner = opener(program / LOOPS / self.symbol / "program")
        self.check_races = False
        self.host_seconds = 0.0
        self._profile: Profile | None = None
        ports = [
            (self.runner.inputs, list(loop.body.block.args)),
            (self.runner.outputs, list(loop.yielded.values)),
        ]
        for infos, values in ports:
            kinds = [(shape_of(v), str(element_dtype(tensor_type(v).element_type))) for v in values]
            if [(info.shape, info.dtype) for info in infos] != kinds:
                raise refuse("package-invalid", "a loop's body has other ports", self.symbol)

    def __call__(self, arenas: Arenas, seed: int = 0) -> None:
        """Run all rounds on the operands in the arenas; the result is written there."""
        self.runner.seed = seed
        self.host_seconds = 0.0
        names = [info.name for info in self.runner.inputs]
        outputs = [info.name for info in self.runner.outputs]

        def body(arrays: list[Array]) -> list[Array]:
            result = self.runner.run(
                dict(zip(names, arrays, strict=True)), check_races=self.check_races
            )
            self.check_races = False  # Every round has the same program.
            self._profile = result.profile
            self.host_seconds += self._profile.host_seconds or 0.0
            return [result.outputs[name] for name in outputs]

        operands = [read_value(v, arenas) for v in loop_operands(self.op, self.loop)]
        write_value(self.op.result, arenas, self.loop.run(operands, body))

    @property
    def profile(self) -> Profile:
        """The profile of one round."""
        return self.runner.timed() if self._profile is None else self._profile

    def kernels(self, begin: float) -> Iterator[KernelProfile]:
        """The kernels of the body from a cycle on, each with the cycles and bytes of all rounds."""
        body, count = self.profile, self.loop.count
        later = (count - 1) * (body.cycles or 0)
        for kernel in body.kernels:
            yield replace(
                kernel,
                symbol=f"{self.symbol}.{kernel.symbol}",
                cycles=None if kernel.cycles is None else kernel.cycles * count,
                start=None if kernel.start is None else begin + kernel.start,
                end=None if kernel.end is None else begin + later + kernel.end,
                dram_bytes=None if kernel.dram_bytes is None else kernel.dram_bytes * count,
                seconds=None if kernel.seconds is None else kernel.seconds * count,
            )

    def bar(self, begin: float) -> Rounds:
        """The entry of a trace for all rounds, from a cycle on."""
        kernels = list(self.kernels(begin))
        nodes = dict.fromkeys(node for kernel in kernels for node in kernel.nodes)
        return Rounds(
            self.symbol,
            list(nodes),
            self.loop.count,
            begin,
            begin + self.cycles,
            self.loop.count * (self.profile.dram_bytes or 0),
            {kernel.symbol: kernel.cycles for kernel in kernels if kernel.cycles is not None},
        )

    @property
    def cycles(self) -> int:
        """The cycles of all rounds."""
        return self.loop.count * (self.profile.cycles or 0)
