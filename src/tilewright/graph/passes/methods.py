"""The methods by which a kernel can be computed: their forms, their prices, and a choice of them.

Families whose machines have several methods bring a pass that chooses (``OwnPasses``,
graph/passes/own.py), derived from ``MethodChoice``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, prod

from tilewright.graph.dialect import KernelOp, WeightOp, network_of
from tilewright.graph.operations.convolution import SHORT_FLOATS, ConvOp
from tilewright.graph.passes.editing import compiler, sweep
from tilewright.graph.passes.memory_room import NetworkMemory
from tilewright.graph.passes.reanchoring import anchor_operands, anchor_weights
from tilewright.ir import Context, ModuleOp, ModulePass, f32, i16
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import shape_of, tensor_type
from tilewright.numerics.winograd import TRANSFORMS

GAIN = 0.9
"""Part of the direct method's cycles that another one must stay below to be taken."""

BEYOND = 0.75
"""Part that applies instead of ``GAIN`` to a method whose scratch exceeds the memory to spare."""

WORTH = 0.03
"""Part of a kernel's cycles that more bytes of weights must save if they take all room; those that
take less must save less in proportion, for nothing else could have had them."""

TRIAL = "trial"
"""Symbol of weights that do not exist."""


@dataclass(frozen=True)
class Form:
    """The method of a convolution: Winograd's, the explicit one, pieces of floats, or direct."""

    tile: int = 0
    """Extent of Winograd's tiles of outputs; 0 for the other methods."""
    plain: bool = True
    """True if the weights stay as they are, and are transformed as the kernel runs."""
    explicit: bool = False
    """True if windows are laid out in scratch (im2col)."""
    pieces: int = 0
    """The number of bfloat16 pieces of each number, with weights in the order of tiles (``plain``
    is False); 0 if numbers are not split."""

    @property
    def direct(self) -> bool:
        """True if the convolution stays what it was."""
        return not (self.tile or self.explicit or self.pieces)


@dataclass(frozen=True)
class Priced:
    """A method as the planner expects it to be."""

    form: Form
    primitive: str
    cycles: float
    scratch: int = 0
    """The elements of scratch memory."""
    weight_bytes: int = 0


@dataclass(frozen=True)
class MethodChoice(ModulePass):
    """Choose a method for every kernel that has several, all memory considered.

    Weights may take more bytes in another form, so the choice is the network's: starting with the
    fastest forms that keep the weights as they are, those are changed that gain most for their
    bytes, as long as all memory stays below the machine's ``memory_growth`` times the weights and
    the most activations that live at once. ``method`` names primitives of which one is taken
    wherever it serves, whatever it takes: for comparisons.
    """

    method: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        context = compiler(ctx)
        machine, network = context.machine, network_of(op)
        memory = NetworkMemory(network, machine)
        least = memory.weights + memory.activations
        room = int((machine.memory_growth - 1) * least) - memory.padding
        most = machine.memory(machine.main).room
        if most is not None:
            room = min(room, most - least - memory.padding)
        options = self.options(memory, context, max(room, 0))
        if self.method:
            chosen = {
                kernel: next((m for m in methods if m.primitive in self.method), methods[0])
                for kernel, methods in options.items()
            }
        else:
            chosen = select(options, self.weight_room(context, room))
        for kernel, method in chosen.items():
            if not method.form.direct:
                self.rewrite(kernel, method, context)
        sweep(network)

    @abstractmethod
    def options(
        self, memory: NetworkMemory, context: CompilerContext, room: int
    ) -> dict[KernelOp, list[Priced]]:
        """The methods of every kernel that has a choice, the direct one first; the run may take
        ``room`` bytes beyond the least."""

    @abstractmethod
    def rewrite(self, kernel: KernelOp, method: Priced, context: CompilerContext) -> None:
        """Put what computes a kernel by a method in its place."""

    def weight_room(self, context: CompilerContext, room: int) -> int:
        """The bytes of ``room`` that weights may take; scratch may have the rest."""
        del context
        return room


def worthwhile(method: Priced, direct: Priced, spare: int) -> bool:
    """Return True if a method is faster than the direct one by enough, with ``spare`` bytes to
    spare."""
    return method.cycles < (GAIN if 4 * method.scratch <= spare else BEYOND) * direct.cycles


def select(options: Mapping[KernelOp, list[Priced]], room: int) -> dict[KernelOp, Priced]:
    """A method for every kernel: the least cycles found with at most ``room`` bytes more.

    Starts with the fastest of each kernel that take no bytes more than its first one, then again
    and again makes the change that gains the most cycles for a byte, and enough of them.
    """
    chosen = {
        kernel: min(
            (m for m in methods if m.weight_bytes <= methods[0].weight_bytes),
            key=lambda method: method.cycles,
        )
        for kernel, methods in options.items()
    }
    symbols = {kernel: anchor_weights(kernel).symbol.data for kernel in options}

    def bytes_with(changed: Mapping[KernelOp, Priced]) -> int:
        """Bytes of all weights; those that several kernels take in one form count once."""
        forms = {
            (symbols[kernel], m.form if not m.form.plain else None): m.weight_bytes
            for kernel, m in changed.items()
        }
        return sum(forms.values())

    limit = room + bytes_with({kernel: methods[0] for kernel, methods in options.items()})
    price = WORTH / max(room, 1)
    while True:
        now = bytes_with(chosen)
        best: tuple[float, KernelOp, Priced] | None = None
        for kernel, methods in options.items():
            for method in methods:
                gain = chosen[kernel].cycles - method.cycles
                if gain <= 0:
                    continue
                after = bytes_with({**chosen, kernel: method})
                if gain <= price * (after - now) * chosen[kernel].cycles:
                    continue
                worth = gain / max(after - now, 1)
                if after <= limit and (best is None or worth > best[0]):
                    best = worth, kernel, method
        if best is None:
            return chosen
        chosen[best[1]] = best[2]


def forms_of(kernel: KernelOp, anchor: ConvOp) -> Iterator[Form]:
    """The forms that are defined for a kernel's anchor.

    Tiles of Winograd's method that multiply as often as a direct convolution, as those of an image
    of one result do, are left out.
    """
    weight = anchor_operands(kernel)[1]
    if kernel.on_host or anchor.is_fixed or not isinstance(weight.owner, WeightOp):
        return
    elements = [tensor_type(value).element_type for value in (anchor.inputs[0], weight)]
    whole = elements[1] == f32
    if elements[0] != f32 or not (whole or elements[1] in (*SHORT_FLOATS, i16)):
        return
    window, results = shape_of(weight)[2:], shape_of(anchor.result)[2:]
    group = anchor.integer("group", 1, 2**24)
    if group == 1 and window != (1, 1) and whole:
        yield Form(explicit=True)
    apart = anchor.integers("strides") + anchor.integers("dilations")
    for tile, taps in TRANSFORMS:
        rows, columns = (ceil(extent / tile) for extent in results)
        fewer = rows * columns * (tile + taps - 1) ** 2 < prod(results) * taps**2
        if fewer and apart == (1, 1, 1, 1) and window == (taps, taps):
            # Weights of 16 bits would be eight times as many bytes when they are transformed.
            if whole:
                yield Form(tile, False)
            yield Form(tile, True)
