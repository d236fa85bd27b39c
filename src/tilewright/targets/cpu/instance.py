"""One compute of a tile program as the primitives' generators see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tilewright.codegen.c.address import Address, Extent
from tilewright.codegen.nest.value import Value, variable
from tilewright.errors import TilewrightError, refuse
from tilewright.planning.domain import Affine


@dataclass(frozen=True)
class Step:
    """One stage of the chain: its operands are addresses, or numbers of earlier steps."""

    operation: str
    inputs: tuple[Address | int, ...]
    attributes: Mapping[str, Any]
    result: Address
    """Place that the stage's result would have; only the last step's is written."""
    fractions: tuple[int, ...] = ()
    """Binary points of the operands, then of the result (0 for floats)."""
    node: str = ""


@dataclass(frozen=True)
class Around:
    """A loop around a primitive's call."""

    dim: str
    variable: str
    first: Value
    """The variable's first value."""
    step: int
    trips: int

    @property
    def number(self) -> Value:
        """The number of iterations that are over."""
        return (variable(self.variable) - self.first) // self.step


@dataclass(frozen=True)
class Instance:
    """A primitive's call: the chain of steps on a tile of known size.

    ``dims`` gives each dim's start (a C expression) and size; ``extents`` the whole operation's.
    """

    primitive: str
    steps: tuple[Step, ...]
    output: Address
    dims: Mapping[str, Extent]
    extents: Mapping[str, int]
    reduction: tuple[str, ...]
    lanes: int
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Choices of the schedule that belong to the primitive."""
    loops: tuple[Around, ...] = ()
    """The loops around it, outermost first."""
    ends: Mapping[str, str] = field(default_factory=dict[str, str])
    """C of the sizes at which dims end in a run. Tiles are computed whole; a dim that is summed is
    not, beyond its end."""

    @property
    def anchor(self) -> Step:
        """The step whose dims the tile loops run over."""
        return self.steps[0]

    def size(self, dim: str) -> int:
        """Tile size of a dim; 1 for a dim that the operation does not have."""
        return self.dims[dim].size if dim in self.dims else 1

    @property
    def split(self) -> bool:
        """True if the reduction is split over several calls."""
        return any(self.size(dim) < self.extents[dim] for dim in self.reduction)

    @property
    def pool(self) -> int:
        """Number of the step that reduces windows of the anchor's results; 0 if none does."""
        pools = ("max_pool", "average_pool")
        places = [n for n, step in enumerate(self.steps[1:], 1) if step.operation in pools]
        return places[0] if places else 0

    @property
    def summed_first(self) -> list[Address]:
        """The operands that the steps after the anchor add to its result before all else.

        A split reduction starts from it: the result may take the place of what is added.
        """
        addresses: list[Address] = []
        for number, step in enumerate(self.steps[1:]):
            others = [operand for operand in step.inputs if isinstance(operand, Address)]
            if not self.split or step.operation != "add" or step.result.element != "float32":
                break
            if len(others) != 1 or number not in step.inputs:
                break
            addresses += others
        return addresses

    @property
    def first(self) -> str:
        """C condition: this is the first call of a split reduction."""
        return self._all_at(lambda dim: 0)

    @property
    def last(self) -> str:
        """C condition: this is the last call of a split reduction."""
        return self._all_at(lambda dim: self.extents[dim] - self.size(dim))

    def _all_at(self, index: Callable[[str], int]) -> str:
        """C condition: every split dim of the reduction starts at the given index."""
        parts: list[str] = []
        for dim in self.reduction:
            extent = self.dims[dim]
            if extent.size == self.extents[dim]:
                continue
            if len(extent.starts) == 1:
                if extent.starts[0] != index(dim):
                    return "0"
            else:
                parts.append(f"{extent.start} == {index(dim)}")
        return " && ".join(parts) or "1"

    @property
    def addresses(self) -> list[Address]:
        """The operands that the call reads and writes: each pointer once, the output last."""
        addresses = {
            operand.pointer: operand
            for step in self.steps
            for operand in step.inputs
            if isinstance(operand, Address)
        }
        addresses.pop(self.output.pointer, None)
        return [*addresses.values(), self.output]

    def elements(self, step: Step) -> list[str]:
        """The element types of a step's operands."""
        return [
            self.steps[o].result.element if isinstance(o, int) else o.element for o in step.inputs
        ]

    def inside(self, operand: Address) -> list[tuple[bool, bool]]:
        """For each axis of an operand, two truths: all that tiles read begins within it, and ends
        within it."""
        whole = {
            name: (extent.starts[0], extent.starts[-1] - extent.starts[0] + extent.size)
            for name, extent in self.dims.items()
        }
        reads = [window.interval(whole) for window in operand.window]
        return [
            (low >= 0, low + size <= extent)
            for (low, size), extent in zip(reads, operand.shape, strict=True)
        ]

    def declared(self, operand: Address, name: str) -> str:
        """The C declaration of a pointer to an operand."""
        constant = "" if operand.pointer == self.output.pointer else "const "
        return f"{constant}{operand.c_type} *{name}"

    def outside(self, *excepted: Address) -> list[Address]:
        """``addresses`` without the anchor's ``excepted`` operands that no later step reads."""
        pointers = {operand.pointer for operand in excepted}
        for step in self.steps[1:]:
            pointers -= {o.pointer for o in step.inputs if isinstance(o, Address)}
        return [address for address in self.addresses if address.pointer not in pointers]

    def origin(self, image: Address) -> tuple[str, str, str]:
        """C of where a tile's image begins, and of the row and the column of the tile's first
        element in it; both may be negative."""
        n, c, _, _ = image.window
        whole = replace(image, window=(n, c, Affine(), Affine()))
        row, column = (image.index(axis, self.dims, {}) for axis in (2, 3))
        return whole.first(self.dims), row, column

    def tensor(self, number: int) -> Address:
        """The anchor's operand of that number, which must be a tensor."""
        operand = self.anchor.inputs[number]
        if not isinstance(operand, Address):
            raise self.cannot("the anchor's operands must be tensors")
        return operand

    @property
    def tensors(self) -> list[Address]:
        """The anchor's operands, which must be tensors."""
        return [self.tensor(number) for number in range(len(self.anchor.inputs))]

    def step(self, operand: Address, dim: str, count: int) -> int:
        """The operand's stride along a dim in ``count`` indices, which must be constant.

        It is 0 if the operand does not depend on the dim.
        """
        stride = operand.stride(dim, count, self.dims)
        if stride is None:
            raise self.cannot(f"operand {operand.pointer} has no fixed stride along {dim}")
        return stride

    def block_step(self, operand: Address, dim: str) -> int:
        """The operand's stride between blocks of lanes along a dim, which must be constant."""
        stride = operand.block_stride(dim, self.lanes, self.size(dim), self.dims)
        if stride is None:
            raise self.cannot(f"operand {operand.pointer} has no stride between blocks of {dim}")
        return stride

    def cannot(self, reason: str) -> TilewrightError:
        """The error for a tile that the primitive cannot compute: a fault of the schedule."""
        return refuse("cpu-tile", f"{self.primitive}: {reason}", self.anchor.node)
