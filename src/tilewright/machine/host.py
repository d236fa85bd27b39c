"""The processor beside a machine, by which the host's part of a run is predicted."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, Field, model_validator

from tilewright.machine.part import CLOSED, MAX_VALUE


class Host(BaseModel):
    """The processor that runs what the machine does not: its part of a run is predicted, by the
    model of a processor of the cpu target, or by cycles for each operation and element."""

    model_config = CLOSED

    name: str = Field(max_length=200)
    clock_hz: float = Field(ge=1, le=MAX_VALUE)
    cpu: str = Field(default="", max_length=200)
    """A processor as ``--cpu`` takes it, whose cost model plans kernels; its clock is not used."""
    cycles_per_operation: float | None = Field(default=None, ge=0, le=MAX_VALUE)
    """Cycles of an iteration of what sums, such as a multiply-add, where ``cpu`` says nothing."""
    cycles_per_element: float | None = Field(default=None, ge=0, le=MAX_VALUE)
    """Cycles of an element of any other result, moved and converted ones included."""
    cycles: dict[str, Annotated[float, Field(ge=0, le=MAX_VALUE)]] = {}
    """Cycles of an iteration by operation (``softmax``), in place of these two."""

    @model_validator(mode="after")
    def _timed(self) -> Self:
        if not self.cpu and None in (self.cycles_per_operation, self.cycles_per_element):
            raise ValueError("needs cpu, or cycles_per_operation and cycles_per_element")
        return self
