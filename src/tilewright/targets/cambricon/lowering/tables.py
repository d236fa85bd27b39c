"""Function tables: their contents as numerics has them, and which of the machine's hold them.

A table keeps its contents from kernel to kernel, so one that an earlier kernel has loaded is not
loaded again. Where none is free, the one goes that was used longest ago.
"""

from __future__ import annotations

from tilewright.codegen.program.elements import elements, fraction
from tilewright.errors import refuse
from tilewright.numerics import tables
from tilewright.tile.dialect import StageOp

MAX_TABLES = 15
"""Tables that a kernel may use."""

Filled = tuple[tuple[int, bytes], ...]
"""Numbers of tables and their contents, the one that was used longest ago first."""


class KernelTables:
    """The machine's tables while one kernel is lowered; ``there`` is what it finds in them."""

    def __init__(self, loaded: Filled, where: str) -> None:
        self._loaded, self._where = dict(loaded), where
        self._used: dict[int, bytes] = {}
        self.loads: dict[int, bytes] = {}
        """The tables that the kernel loads: 16-bit elements by the number of the table."""

    def number(self, data: bytes) -> int:
        """The table of the kernel that has these contents. Raises TilewrightError."""
        for number, known in (*self._used.items(), *self._loaded.items()):
            if known == data and self._used.get(number, data) == data:
                self._used[number] = data
                return number
        free = [number for number in range(1, MAX_TABLES + 1) if number not in self._loaded]
        number = next(
            (number for number in (*free, *self._loaded) if number not in self._used), None
        )
        if number is None:
            raise refuse("lower-tables", f"needs more than {MAX_TABLES} tables", self._where)
        self._used[number] = self.loads[number] = data
        return number

    @property
    def left(self) -> Filled:
        """The tables that this kernel leaves for the next one."""
        before = {number: data for number, data in self._loaded.items() if number not in self._used}
        return (*before.items(), *self._used.items())


def table_of(stage: StageOp, kernel: KernelTables) -> int:
    """The number of the table of a stage's function."""
    (operand, *_), result = elements(stage)
    name = stage.operation.data
    parameters = tables.parameters_of(name, stage.parameters)
    entries = tables.table(name, fraction(operand), fraction(result), parameters)
    return kernel.number(entries.astype("<i2").tobytes())
