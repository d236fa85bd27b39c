"""Records of the emitted C functions, as primitives of the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.machine import Primitive, Storage
from tilewright.targets.cpu.planning.capabilities import CpuPrimitive

MOST = 1 << 30
"""The largest extent where no limit is stated."""

SHORT_FLOATS = ("float16", "bfloat16")
"""Elements that widen to float32 as they are loaded into lanes, and are rounded before they are
stored."""

FLOATS: Mapping[str, tuple[str, ...]] = {
    "weight": ("float32", "int16", *SHORT_FLOATS),
    "bias": ("float32", *SHORT_FLOATS),
    "residual": ("float32", "uint8", "int8", "int16", *SHORT_FLOATS),
    "output": ("float32", "uint8", "int8", "int16", *SHORT_FLOATS),
}
"""Elements by role, where they are not float32 alone: what follows a product may read and write
bytes, as quantising does."""


def c_function(name: str, *operations: str, **record: Any) -> Primitive:
    """A C function whose sizes are constants; stages of any kind may follow what it computes,
    unless ``record`` says otherwise."""
    record.setdefault("epilogue_any", True)
    return Primitive(name=name, operations=operations, engine="core", sizes="fixed", **record)


def storage(elements: Mapping[str, tuple[str, ...]] = FLOATS, **layouts: str) -> dict[str, Storage]:
    """Operands in main memory by roles, with the elements that they may have: where no layout is
    named any, of roles without an entry float32."""
    return {
        role: Storage(
            memory="dram",
            layout=layout,
            elements=() if layout == "any" else elements.get(role, ("float32",)),
        )
        for role, layout in layouts.items()
    }


def scratch_storage(lanes: int, weight: str, elements: tuple[str, ...]) -> dict[str, Storage]:
    """Operands of what works in scratch on images that have ``lanes`` channels innermost, with the
    layout of its weights and their elements."""
    image = f"NCHW{lanes}c"
    images = storage(input=image, bias=f"O{lanes}o", residual=image, scratch="", output=image)
    return {**images, "weight": Storage(memory="dram", layout=weight, elements=elements)}


@dataclass(frozen=True)
class Kind:
    """The primitives of one kind of numbers, whose images have ``lanes`` channels innermost."""

    lanes: int
    steps: float
    """Multiply-adds on whole vectors in a cycle."""
    word: int = 1
    """Products that a lane adds up in one step."""
    elements: Mapping[str, tuple[str, ...]] | None = None
    """Element types of operands by role; None: those of floats."""
    own: CpuPrimitive | None = None
    """The record of products; None: it says nothing."""

    @property
    def image(self) -> str:
        """The layout of images."""
        return f"NCHW{self.lanes}c"

    @property
    def _depth(self) -> str:
        """The steps of a reduction over input channels."""
        return "ci" if self.word == 1 else f"ceil(ci/{self.word})"

    def _function(self, name: str, *operations: str, image: str, **record: Any) -> Primitive:
        """A function whose residual and output have the layout of its images."""
        layouts = {"input": image, **record.pop("layouts", {}), "residual": image, "output": image}
        given = record.pop("given", {})
        own = record.pop("own", self.own)
        record |= {} if own is None else {"own": own}
        operands = storage(self.elements or FLOATS, **layouts) | given
        return c_function(name, *operations, operands=operands, **record)

    def conv(
        self, name: str, weight: str, *, source: str = "", **extents: tuple[int, int]
    ) -> Primitive:
        """A convolution, perhaps of images in a layout of their own (``source``)."""
        layouts = {"input": source or self.image, "weight": weight, "bias": f"O{self.lanes}o"}
        return self._function(
            name,
            "conv",
            image=self.image,
            layouts=layouts,
            cycles=f"n*g*oh*ow*ceil(co/{self.lanes})*{self._depth}*kh*kw/{self.steps:g}",
            peak=f"n*g*oh*ow*co*ci*kh*kw/{self.lanes * self.steps * self.word:g}",
            multiples={"co": self.lanes, "ci": self.lanes},
            whole=("kh", "kw"),
            extents=extents,
        )

    def grouped(self, name: str, weight: str, own: CpuPrimitive | None = None) -> Primitive:
        """A convolution in groups that do not fill whole vectors of channels."""
        lanes = self.lanes
        return self._function(
            name,
            "conv",
            image=self.image,
            layouts={"weight": weight, "bias": f"O{lanes}o"},
            # Vectors that two groups share are computed for both.
            cycles=f"n*oh*ow*(ceil(g*co/{lanes}) + g)*{self._depth}*kh*kw/{self.steps:g}",
            peak=f"n*g*oh*ow*co*ci*kh*kw/{lanes * self.steps * self.word:g}",
            own=own,
            whole=("g", "co", "ci", "kh", "kw"),
            extents={"g": (2, MOST)},
        )

    def windows(
        self,
        name: str,
        *operations: str,
        weighted: bool = False,
        effort: str = "",
        source: tuple[str, ...] = (),
    ) -> Primitive:
        """A window per channel: a depthwise convolution (``weighted``), or a pool.

        ``effort`` is a factor of its cycles, ``source`` the image's elements if they are others.
        """
        layouts = {"weight": f"OIHW{self.lanes}o", "bias": f"O{self.lanes}o"} if weighted else {}
        image = Storage(memory="dram", layout=self.image, elements=source)
        return self._function(
            name,
            *operations,
            image=self.image,
            layouts=layouts,
            given={"input": image} if source else {},
            # One load and one multiply-add, or comparison, for each tap.
            cycles=f"n*ceil(c/{self.lanes})*oh*ow*kh*kw{effort}/{self.steps:g}",
            peak=f"n*c*oh*ow*kh*kw/{self.lanes * self.steps:g}",
            own=None,
            multiples={"c": self.lanes},
            whole=("kh", "kw"),
        )

    def matmul(
        self, name: str, weight: str, block: int = 0, **extents: tuple[int, int]
    ) -> Primitive:
        """A matrix product on weights of a layout, of which ``block`` output channels are a stream.

        A block is what a register tile covers, not one vector of it.
        """
        return self._function(
            name,
            "matmul",
            image="NC",
            layouts={"weight": weight, "bias": f"O{self.lanes}o"},
            cycles=f"b0*b1*m*n*ceil(co/{self.lanes})*{self._depth}/{self.steps:g}",
            peak=f"b0*b1*m*n*co*ci/{self.lanes * self.steps * self.word:g}",
            multiples={"co": block or self.lanes},
            extents=extents,
        )

    def wide_matmuls(self, name: str, weight: str, wide: int) -> tuple[Primitive, ...]:
        """Products of several rows, counted by either dim, on weights in blocks of ``wide``."""
        several: dict[str, tuple[int, int]] = {"co": (wide, MOST)}
        return tuple(
            self.matmul(f"{name}_{d}", weight, wide, **{d: (2, MOST), **several})
            for d in ("m", "n")
        )
