"""A model file that has been read, while its shapes may still be open."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from tilewright.errors import TilewrightError
from tilewright.frontends.imported import Imported
from tilewright.shapes import Settled, Shapes, Signature

TRIED = 224
"""Size at which free dims that are not the batch are tried, as far as their bounds allow: an image
or a text that most networks take."""

_BY_SHAPE = ("-shape", "-attribute", "-too-large")
"""Endings of the codes of refusals that may not occur with another shape."""


class Opened(ABC):
    """A model of a format that can leave dims free."""

    signature: Signature
    """The model's inputs and outputs, free dims by name."""
    name: str
    """The model's name, as in ``Imported.name``."""
    on_disk: bool = False
    """True if it is read from ``files`` that the caller has, false if captured from a module."""

    @abstractmethod
    def load(self, shapes: Shapes | None = None) -> Imported:
        """The network for these shapes; raises TilewrightError with every reason to refuse it.

        The first call uses up what was read, so that a large model is not kept beside its network;
        further ones read the file again.
        """

    @abstractmethod
    def files(self) -> Mapping[str, Path]:
        """The model file (first) and those that it refers to, by their names relative to it.

        A copy of all under the same names is the same model. Raises TilewrightError.
        """

    def trial(self, settled: Settled) -> tuple[str, ...]:
        """Import once, so that what no shape makes possible is refused before the first run.

        Notes on the model are returned. Refusals that another shape may not meet become a note.
        """
        leading = settled.leading()
        sizes = {
            name: max(1, bounds.low if name in leading else min(bounds.high, TRIED), bounds.low)
            for name, bounds in settled.free.items()
        }
        try:
            return self.load(settled.bind(sizes)).notes
        except TilewrightError as error:
            lasting = [p for p in error.problems if not p.code.endswith(_BY_SHAPE)]
            if lasting:
                raise TilewrightError(lasting) from error
            tried = ", ".join(f"{name}={size}" for name, size in sizes.items())
            return (f"refused when tried with {tried}: {error.problems[0]}",)
