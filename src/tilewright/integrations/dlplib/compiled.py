"""Operators compiled once for all calls that are alike: the same descriptors, the same package."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from tilewright.codegen.host.steps import computes
from tilewright.compiler.api import compile
from tilewright.frontends import Imported
from tilewright.graph.dialect import network_of
from tilewright.machine import Machine
from tilewright.runtime import Executable
from tilewright.targets.base import Target

MOST = 512
"""Packages that are kept."""

MOST_BYTES = 1 << 31
"""Bytes of main memory of the packages that are kept; the last one stays in any case."""


@dataclass(frozen=True)
class Compiled:
    """An operator's package, and what of it the host does."""

    executable: Executable
    host: tuple[str, ...]
    """Reasons of the kernels that the host computes."""
    moves: int
    """Kernels in which the host only moves elements, from one layout to another for example."""


class OperatorCache:
    """Cache of packages by operation and machine; the least recently used ones are removed
    first."""

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self.most, self.most_bytes = most, most_bytes
        self.compiled = 0
        """Operators that were compiled, as opposed to found."""
        self._kept: OrderedDict[Hashable, Compiled] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def find(
        self,
        key: Hashable,
        target: Target,
        machine: Machine,
        ways: Sequence[Callable[[], Imported]],
    ) -> Compiled:
        """The package of an operator, compiled if need be from the networks that ``ways`` make.

        Of several ways the one of the fewest cycles is taken, the first where nothing is
        simulated. Raises TilewrightError if the compiler refuses a network.
        """
        whole = (target.name, machine.model_dump_json(), key)
        kept = self._kept.get(whole)
        if kept is None:
            compiled = [_described(compile(draw(), target, machine=machine)) for draw in ways]
            kept = compiled[0] if len(compiled) == 1 else min(compiled, key=_cycles)
            self.compiled += 1
            self._kept[whole] = kept
            self._shrink()
        self._kept.move_to_end(whole)
        return kept

    def _shrink(self) -> None:
        total = sum(
            compiled.executable.manifest.peak_memory_bytes for compiled in self._kept.values()
        )
        while len(self._kept) > 1 and (len(self._kept) > self.most or total > self.most_bytes):
            _, gone = self._kept.popitem(last=False)
            total -= gone.executable.manifest.peak_memory_bytes


def _cycles(compiled: Compiled) -> int:
    return compiled.executable.runner.timed().cycles or 0


def _described(executable: Executable) -> Compiled:
    on_host = {row.name: row.reason for row in executable.manifest.kernels if row.engine == "host"}
    if not on_host:
        return Compiled(executable, (), 0)
    kernels = [op for op in network_of(executable.graph).kernels if op.symbol.data in on_host]
    computed = [on_host[op.symbol.data] for op in kernels if computes(op)]
    return Compiled(executable, tuple(dict.fromkeys(computed)), len(kernels) - len(computed))


SHARED = OperatorCache()
"""The cache of handles that bring none."""
