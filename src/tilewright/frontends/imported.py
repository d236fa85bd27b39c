"""A model that has been read, with open shapes or as a network: what every front-end gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.errors import TilewrightError
from tilewright.frontends.mapped import MappedFile
from tilewright.graph.dialect import network_of
from tilewright.graph.run_sizes import OutputEnd
from tilewright.graph.weights import Weights
from tilewright.ir import ModuleOp, StringAttr
from tilewright.shapes.forms import Shapes
from tilewright.shapes.lists import NO_LISTS, Lists
from tilewright.shapes.settlement import Settled, Signature


@dataclass(frozen=True)
class ModelNode:
    """One node of the model file."""

    name: str
    """The name by which operations of the network refer to it (``Operation.node``)."""
    operator: str
    """In the model's own terms (``Conv``)."""
    outputs: tuple[str, ...] = ()
    """Names of the tensors that it makes."""


@dataclass(frozen=True)
class EmptyOutput:
    """An output of the model that has no elements."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Imported:
    """A model read into the graph dialect."""

    module: ModuleOp
    """Holds one ``graph.network``; values keep the model's own axis order and names."""
    weights: Weights
    """The constants that the network uses; constants that nothing uses are left out."""
    name: str
    """The model's name as an identifier, fit for files and C."""
    opset: int
    """Version of the operator set that the model was written in."""
    digest: str
    """SHA-256 of the model file, in hexadecimal; external data are not part of it."""
    notes: tuple[str, ...] = ()
    """Sentences that say what was assumed or left out."""
    nodes: tuple[ModelNode, ...] = ()
    """The model's nodes in its order; empty where a front-end does not say."""
    files: tuple[MappedFile, ...] = ()
    """The files of which weights are views, to be checked before weights are read."""
    empty: tuple[EmptyOutput, ...] = ()
    """The model's outputs without elements, which the network lacks."""
    ends: tuple[OutputEnd, ...] = ()
    """The axes of outputs whose sizes a run computes, and the network's outputs of these sizes."""
    lists: Lists = NO_LISTS
    """The model's inputs and outputs that are sequences, and optionals that hold nothing."""

    def named(self, name: str) -> Imported:
        """The same network under another name."""
        network_of(self.module).properties["symbol"] = StringAttr(name)
        return replace(self, name=name)


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
    def load(self, shapes: Shapes | None = None, *, loops: bool = False) -> Imported:
        """The network for these shapes; raises TilewrightError with every reason to refuse it.

        With ``loops``, loops of more than a few rounds stay loops (graph/operations/loops.py);
        otherwise every round is written out.

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
            name: max(1, bounds.low if name in leading else bounds.near(TRIED), bounds.low)
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
