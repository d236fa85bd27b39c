"""Sums that are pending: the vector unit finishes them while the matrix unit works on others.

They are those of the batch of pixels before; the last ones of a tile are finished behind all of its
products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.targets.cambricon.lowering.epilogue import Epilogue
from tilewright.targets.cambricon.lowering.operands import Operand
from tilewright.targets.cambricon.lowering.pixels import Pixels


class Pending(Pixels):
    """The pending sums of one product, and the tile's numbers that they take."""

    epilogue: Epilogue
    bias: Operand | None
    residual: Operand | None
    parted: bool
    """Whether loops within the result's residency step through a pixel's channels."""
    sums: int
    other_sums: int
    """Addresses of the sums of batches, in turn."""
    channels: Value
    """Of the tile: channels of a pixel that are summed up at once, of all groups."""
    result: Register
    added: Register | None = None
    """Addresses of what is pending in the result and the residual."""
    coming: list[Register]
    """Those of the pixels at hand, where a pixel's channels are parted; one, where both are the
    same. Others lie side by side with the pending ones."""
    sizes: list[int]
    """Bytes of an element in them."""
    steps: list[Value]
    """Bytes from one pixel to the next in them, where a pixel's channels are parted."""
    pending: Register
    """Elements of the sums that are to be finished."""
    bias_at: Value | None
    """Address of the biases of what is pending."""
    base: Register
    halves: Register
    """Where a batch's sums begin; and that and where those of the next one do, added up."""

    @property
    def _residual_bytes(self) -> int:
        residual = self.epilogue.residual
        assert residual is not None
        return 4 if residual.wide else 2

    def _element_sizes(self) -> list[int]:
        """Bytes of an element in the result and the residual."""
        others = [] if self.residual is None else [self._residual_bytes]
        return [self.c.output.element, *others]

    def _arrive(self, places: Sequence[Value], bias: Value | None) -> None:
        """A tile begins, whose results and residuals lie at these places."""
        e, sizes = self.e, self._element_sizes()
        shared = len(places) == 2 and places[0] == places[1] and sizes[0] == sizes[1]
        if shared and not self.parted:
            places, sizes = places[:1], sizes[:1]
        self.sizes = sizes
        self.bias_at = bias
        own = [e.variable(place) for place in places]
        self.result = own[0]
        self.added = None if self.residual is None else own[-1]
        # What is pending says how far the next ones lie, but for pixels whose channels are parted.
        self.coming = [e.variable(place) for place in places] if self.parted else []
        self.pending = e.variable(0)

    @property
    def _own(self) -> list[Register]:
        """Addresses of what is pending."""
        return [register for register in (self.result, self.added) if register is not None]

    def _pass(self, count: Value) -> None:
        """Finish the pending sums, and make those of ``count`` pixels the pending ones."""
        e = self.e
        if not self.coming:
            for own, size in zip(self._own, self.sizes, strict=False):
                e.increase(own, e.multiply(self.pending, size))
        elements = e.multiply(self.channels, count)
        e.set(self.pending, elements)
        for number, coming in enumerate(self.coming):
            e.set(self._own[number], coming)
            e.increase(coming, self.steps[number])

    def steps_of(self, sums: Register) -> list[Callable[[], None]]:
        """Return the epilogue's steps for the pending sums at address ``sums``."""
        own = self.epilogue
        return own.steps(self.e, sums, self.result, self.pending, self.bias_at, self.added)

    def _pending_steps(self) -> list[Callable[[], None]]:
        """Return the steps for the pending sums that run while other sums are computed."""
        sums = self.e.register()
        self.e.emit("SSUB", sums, self.halves, self.base)
        return self.steps_of(sums)

    def _flush(self) -> None:
        """Finish the pending sums behind all products."""
        for step in self._pending_steps():
            step()
