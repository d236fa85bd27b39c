"""A block of tiles of a convolution that works in scratch: its operands, sizes and places.

Scratch holds the inputs, ``[plane][part][block of channels][tile of the part][lane]``, and after
them the products, ``[plane][vector of output channels][tile][lane]``. A part is what one register
tile of the products covers; it reads its inputs from end to end. After both may lie two panels of
weights, each the planes of one row, ``[plane][vector of output channels][input channel][lane]``.
Planes are one vector further apart than they are long: at a power of two all would fall into one
set of the cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from tilewright.codegen.c.address import Address
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.planning.blocks import register_tiles


@dataclass(frozen=True)
class Block:
    """One instance: its operands, and sizes in tiles and vectors."""

    instance: Instance
    x: Address
    w: Address
    scratch: Address
    bias: Address | None

    @classmethod
    def of(cls, instance: Instance) -> Block:
        """Check that the operands are tensors and the sizes whole."""
        if instance.split or instance.size("n") * instance.size("g") != 1:
            raise instance.cannot("a block is of one image, one group and all its input channels")
        x, w, scratch, *bias = instance.tensors
        return cls(instance, x, w, scratch, bias[0] if bias else None)

    @property
    def tile(self) -> int:
        """Outputs of a tile along one axis."""
        return self.instance.extents["r"]

    @property
    def results(self) -> list[tuple[str, int]]:
        """The dims and extents of a tile's written rows and columns."""
        extents = self.instance.extents
        dims = [pooled if pooled in extents else dim for dim, pooled in (("r", "pr"), ("s", "ps"))]
        return [(dim, extents[dim]) for dim in dims]

    @property
    def inner(self) -> int:
        """Inputs of a tile along one axis."""
        return self.instance.extents["u"]

    @property
    def planes(self) -> int:
        """Positions of a transformed tile."""
        return self.inner**2

    @property
    def plain(self) -> bool:
        """True if the weights are not transformed yet."""
        return "kh" in self.instance.extents

    @property
    def taps(self) -> int:
        """Extent of the window."""
        return self.inner - self.tile + 1

    @property
    def tiles(self) -> tuple[int, int]:
        """Rows of tiles, and tiles in a row."""
        return self.instance.size("th"), self.instance.size("tw")

    @property
    def again(self) -> bool:
        """True if other blocks read the same weights."""
        images, _, height, width = self.instance.output.shape
        tiles = ceil(height / self.tile) * ceil(width / self.tile)
        return images * tiles > prod(self.tiles)

    @property
    def lanes(self) -> int:
        """Lanes of a vector."""
        return self.instance.lanes

    @property
    def channels(self) -> int:
        """The number of input channels."""
        return self.instance.size("ci")

    @property
    def vectors(self) -> int:
        """Vectors of output channels."""
        return -(-self.instance.size("co") // self.lanes)

    @property
    def input_plane(self) -> int:
        """Elements from one plane of transformed inputs to the next."""
        return (prod(self.tiles) * -(-self.channels // self.lanes) + 1) * self.lanes

    @property
    def output_plane(self) -> int:
        """Elements from one plane of products to the next."""
        return (prod(self.tiles) * self.vectors + 1) * self.lanes

    @property
    def parts(self) -> list[int]:
        """Tiles of each register tile of the products."""
        return register_tiles(prod(self.tiles), self.instance.options["points"])

    @property
    def products(self) -> int:
        """The offset in scratch at which the products begin."""
        return self.planes * self.input_plane

    @property
    def outside(self) -> list[Address]:
        """Tensors that the epilogue reads or writes, each pointer once, the output last."""
        return self.instance.outside(self.x, self.w, self.scratch)

    def places(self) -> tuple[list[int], list[int]]:
        """Each tile's place in a plane of inputs, and its step between blocks of channels."""
        places: list[int] = []
        steps: list[int] = []
        start = 0
        blocks = -(-self.channels // self.lanes)
        for size in self.parts:
            places += [start * blocks * self.lanes + j * self.lanes for j in range(size)]
            steps += [size * self.lanes] * size
            start += size
        return places, steps
