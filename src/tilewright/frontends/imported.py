"""The result of every front-end: a network, its weights, and their sources."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.frontends.mapped import MappedFile
from tilewright.graph.dialect import network_of
from tilewright.graph.weights import Weights
from tilewright.ir import ModuleOp, StringAttr


@dataclass(frozen=True)
class ModelNode:
    """One node of the model file."""

    name: str
    """As operations of the network call it (``GraphOperation.node``)."""
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
    """Outputs without elements, which are none of the network."""

    def named(self, name: str) -> Imported:
        """The same network under another name."""
        network_of(self.module).properties["symbol"] = StringAttr(name)
        return replace(self, name=name)
