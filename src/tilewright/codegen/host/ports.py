"""The inputs and outputs of a network: where their tensors lie, and what C calls them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct
from msgspec.structs import asdict

from tilewright.codegen.program.interface import TensorInfo
from tilewright.errors import refuse
from tilewright.graph.names import identifier
from tilewright.numerics.element_types import ElementType, dtype_named

if TYPE_CHECKING:
    from tilewright.graph.arenas import Arenas
    from tilewright.graph.dialect import NetworkOp
    from tilewright.ir import SSAValue
    from tilewright.ir.types import Array
    from tilewright.planning.layout import Layout


class Port(Struct, frozen=True, omit_defaults=True):
    """An input or output of the network: where its tensor lies in the workspace."""

    name: str
    shape: tuple[Annotated[int, Meta(ge=0)], ...]
    dtype: ElementType
    layout: str
    arena: str
    offset: Annotated[int, Meta(ge=0)]
    strides: tuple[int, ...]
    ended: tuple[tuple[Annotated[int, Meta(ge=0)], str], ...] = ()
    """Axes that end early in a run, with the names of the sizes at which they end. The caller's
    array ends there, the tensor is of the largest sizes."""

    @classmethod
    def of(cls, name: str, value: SSAValue, ends: Mapping[int, str] | None = None) -> Port:
        """The port of a network's value that has a placement."""
        from tilewright.graph.placement import placement_of
        from tilewright.ir.types import element_dtype, layout_of, shape_of, tensor_type

        place = placement_of(value)
        kind = tensor_type(value)
        return cls(
            name,
            shape_of(value),
            str(element_dtype(kind.element_type)),
            layout_of(value),
            place.arena,
            place.offset,
            place.strides,
            tuple((ends or {}).items()),
        )

    @property
    def ends(self) -> dict[int, str]:
        """The names of the sizes at which axes end, by axis."""
        return dict(self.ended)

    @property
    def c_type(self) -> str:
        """C's name of the element type."""
        from tilewright.codegen.c.source import C_TYPES

        if self.dtype not in C_TYPES:
            raise refuse("cpu-type", f"elements of {self.dtype} are not supported", self.name)
        return C_TYPES[self.dtype]

    @property
    def elements(self) -> int:
        """Elements of the caller's array."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of the caller's array."""
        return self.elements * dtype_named(self.dtype).itemsize

    @property
    def place(self) -> str:
        """C of where the tensor begins."""
        # Whoever runs a package has ports and needs no compiler.
        from tilewright.codegen.c.parameters import place_text

        return place_text(self.arena, self.offset)

    @property
    def dense(self) -> bool:
        """True if the tensor is row-major without gaps, strides of axes of extent 1 aside."""
        from tilewright.planning.layout import Layout

        layout = Layout.parse(self.layout, len(self.shape))
        axes = zip(self.shape, self.strides, layout.strides(self.shape), strict=True)
        return layout.row_major and all(n == 1 or stride == step for n, stride, step in axes)

    @property
    def info(self) -> TensorInfo:
        """The port as the caller sees it."""
        return TensorInfo(self.name, self.shape, self.dtype)

    def box(self, arenas: Arenas) -> tuple[Array, Layout]:
        """The tensor's physical array in the arenas, sharing their bytes, and its layout."""
        from tilewright.graph.arenas import box
        from tilewright.graph.placement import Placement
        from tilewright.planning.layout import Layout

        layout = Layout.parse(self.layout, len(self.shape))
        place = Placement(self.arena, self.offset, self.strides)
        return box(
            arenas, place, layout.physical_shape(self.shape), dtype_named(self.dtype)
        ), layout


def file_ports(network: NetworkOp, code: str) -> tuple[list[Port], list[Port]]:
    """The inputs and outputs of a network, of which files of elements are read and written; refuses
    (``code``) a tensor whose elements are not contiguous in row-major order."""
    inputs, outputs = (
        [Port.of(name, value) for name, value in side] for side in (network.inputs, network.outputs)
    )
    for port in (*inputs, *outputs):
        if not port.dense:
            raise refuse(code, "its elements are not contiguous in row-major order", port.name)
    return inputs, outputs


class NamedPort(Port, frozen=True, kw_only=True):
    """A port with a name in C."""

    identifier: str


def distinct_ports(
    inputs: Sequence[Port], outputs: Sequence[Port]
) -> tuple[list[NamedPort], list[NamedPort]]:
    """The ports with C names that differ, also in capitals: ``in_`` and ``out_`` before them."""
    taken: set[str] = set()

    def fresh(port: Port, prefix: str) -> NamedPort:
        base = f"{prefix}_{identifier(port.name, 'port')}"
        name, number = base, 2
        while name.upper() in taken:
            name, number = f"{base}_{number}", number + 1
        taken.add(name.upper())
        return NamedPort(**asdict(port), identifier=name)

    return [fresh(port, "in") for port in inputs], [fresh(port, "out") for port in outputs]
