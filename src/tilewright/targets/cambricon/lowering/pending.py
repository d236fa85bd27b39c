"""Sums that are pending: the vector unit finishes them while the matrix unit works on others.

They are those of the batch of pixels before. The last ones of a tile are finished between the first
products of the next tile, as those of any other batch are: in the queue they would wait for the
last product, and all behind them, the step to the next tile, too. Where they go stands in registers
of its own then, beside where the results of the pixels at hand go.
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
    zeros: int
    """Address of zeros, if there are any."""
    table: int
    sums: int
    other_sums: int
    """Addresses of the sums of batches, in turn."""
    carried = False
    """Whether the last sums of a tile are finished in the next one."""

    channels: Value
    """Of the tile: channels of a pixel that are summed up at once, of all groups."""
    result: Register
    added: Register | None = None
    """Addresses of what is pending in the result and the residual."""
    coming: list[Register]
    """Those of the pixels at hand; one, where both are the same, and none, where the pending ones
    are of the same tile and side by side with them."""
    sizes: list[int]
    """Bytes of an element in them."""
    steps: list[Value]
    """Bytes from one pixel to the next in them, where a pixel's channels are parted."""
    pending: Register
    """Elements of the sums that are to be finished."""
    own_added: Register
    """Address of pending residuals that lie elsewhere than results."""
    bias_at: Value | None
    """Address of the biases of what is pending."""
    coming_bias: Value | None
    """Address of the biases of the pixels at hand."""
    own_bias: Register
    """Holds the former, where they change from tile to tile."""
    base: Register
    halves: Register
    """Where a batch's sums begin; and that and where those of the next one do, added up."""

    @property
    def needs_zeros(self) -> bool:
        """Whether ReLU, or the start of sums without a bias, needs zeros."""
        return self.epilogue.reads_zeros or (self.split and self.bias is None)

    @property
    def _residual_bytes(self) -> int:
        residual = self.epilogue.residual
        assert residual is not None
        return 4 if residual.wide else 2

    def _keep(self) -> None:
        """Registers that keep what is pending from tile to tile; before the first one, nothing."""
        e = self.e
        self.result, self.pending = e.variable(0), e.variable(0)
        self.base, self.own_bias = e.variable(self.sums), e.variable(0)
        if self.residual is not None:
            self.own_added = e.variable(0)

    def _element_sizes(self) -> list[int]:
        """Bytes of an element in the result and the residual."""
        others = [] if self.residual is None else [self._residual_bytes]
        return [self.c.output.element, *others]

    def _arrive(self, places: Sequence[Value], bias: Value | None) -> None:
        """A tile begins, whose results and residuals lie at these places."""
        e = self.e
        sizes = self._element_sizes()
        if self.residual is not None:
            shared = places[0] == places[1] and sizes[0] == sizes[1] and not self.parted
            self.added = self.result if shared else self.own_added
            if shared:
                places, sizes = places[:1], sizes[:1]
        self.sizes = sizes
        self.bias_at = self.coming_bias = bias
        if self.carried or self.parted:
            self.coming = [e.variable(place) for place in places]
        else:
            # One register for each is enough: what is pending says how far the next ones lie.
            self.coming = []
            for own, place in zip(self._own, places, strict=False):
                e.set(own, place)
        if not self.carried:
            e.set(self.pending, 0)
        elif isinstance(bias, Register):
            self.bias_at = self.own_bias

    @property
    def _own(self) -> list[Register]:
        """Addresses of what is pending."""
        return [register for register in (self.result, self.added) if register is not None]

    def _pass(self, count: Value) -> None:
        """What was pending is finished: the sums of ``count`` pixels are pending now."""
        e = self.e
        with e.scope():
            if not self.coming:
                for own, size in zip(self._own, self.sizes, strict=False):
                    e.increase(own, e.multiply(self.pending, size))
            elements = e.multiply(self.channels, count)
            e.set(self.pending, elements)
            for number, coming in enumerate(self.coming):
                e.set(self._own[number], coming)
                step = (
                    self.steps[number] if self.parted else e.multiply(elements, self.sizes[number])
                )
                e.increase(coming, step)
        if isinstance(self.bias_at, Register) and self.carried:
            assert self.coming_bias is not None
            e.set(self.bias_at, self.coming_bias)
        self.c.finish()

    def steps_of(self, sums: Register) -> list[Callable[[], None]]:
        """What follows the pending sums, which lie there."""
        e = self.e
        parts: dict[str, Value | None] = {
            "bias": self.bias_at,
            "residual": self.added,
            "zeros": self.zeros if self.needs_zeros else None,
        }
        others = {name: None if at is None else e.held(at) for name, at in parts.items()}
        return self.epilogue.steps(e, sums, self.result, self.pending, others, table=self.table)

    def _pending_steps(self) -> list[Callable[[], None]]:
        """What follows the pending sums while others are computed."""
        sums = self.e.register()
        self.e.emit("SSUB", sums, self.halves, self.base)
        return self.steps_of(sums)

    def _flush(self) -> None:
        """Finish the pending sums behind all products."""
        with self.e.scope():
            # It may stand behind all tiles, too.
            self.halves = self.e.held(self.sums + self.other_sums)
            for step in self._pending_steps():
                step()
