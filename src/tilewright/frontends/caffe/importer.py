"""Import a whole model: settle its inputs, then take its layers in order.

Import goes on past refusals, so that one report has them all: layers whose bottoms depend on what
was refused are only checked as far as that goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tilewright.errors import Problem, TilewrightError
from tilewright.frontends.caffe.inputs import DATA, SOURCES, inputs_of
from tilewright.frontends.caffe.lowering import Lowering
from tilewright.frontends.caffe.net import Layer, layers_of
from tilewright.frontends.caffe.operators import NOT_IN_PLACE, RULES
from tilewright.frontends.caffe.reader import read_prototxt
from tilewright.frontends.caffe.stored import Parameters, Stored, read_caffemodel, stored_in, unused
from tilewright.frontends.emitter import NewNetwork
from tilewright.frontends.imported import Imported, ModelNode
from tilewright.frontends.limits import shown
from tilewright.frontends.mapped import MappedFile
from tilewright.graph.names import identifier
from tilewright.ir import SSAValue
from tilewright.ir.types import tensor


def import_caffe(
    path: str | Path,
    *,
    caffemodel: str | Path | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Imported:
    """Read a prototxt, and a caffemodel, into the graph dialect.

    Both the newer form (``layer``) and the older (``layers``) are read, and the test phase of
    training files is taken. Without a caffemodel the weights are made up, the same every time.
    ``shapes`` gives inputs other shapes than the file's. Raises TilewrightError with every reason
    for which the model is refused.
    """
    return _Importer(Path(path), caffemodel, shapes).run()


class _Importer:
    """The state of one import."""

    def __init__(
        self,
        path: Path,
        caffemodel: str | Path | None,
        shapes: Mapping[str, Sequence[int]] | None,
    ) -> None:
        self.source = read_prototxt(path)
        self.problems: list[Problem] = list(self.source.problems)
        self.notes: list[str] = []
        net, title = self.source.net, self.source.title
        everything = layers_of(net, self.problems, self.notes, title)
        self.layers = [layer for layer in everything if not layer.is_for_training]
        dropped = [layer for layer in everything if layer.is_for_training]
        if dropped:
            listed = ", ".join(shown(layer.name) for layer in dropped)
            self.notes.append(f"layers that only serve training are left out: {listed}")
        if not self.layers:
            self.problems.append(Problem("caffe-syntax", "there are no layers in it", title))
            raise TilewrightError(self.problems)
        self.files: tuple[MappedFile, ...] = ()
        self.stored = self._stored(caffemodel)
        blobs = stored_in(np.frombuffer(net.SerializeToString(), np.uint8), title)
        self.parameters = Parameters(self.stored, blobs)
        inputs = inputs_of(self.layers, shapes, self.problems, self.notes)
        self.outputs = outputs_of(self.layers, dropped, self.problems)
        self.name = identifier(net.name or path.stem, "network")
        self.form = 1 if net.layers else 2
        known = {name: shape for name, shape in inputs.items() if shape is not None}
        kinds = [(name, tensor(shape)) for name, shape in known.items()]
        self.network = NewNetwork(self.name, kinds, self.outputs)
        self.inputs = dict(self.network.operator.inputs)
        self.values: dict[str, SSAValue] = {}
        """The blobs that are known so far; those that were refused are not."""
        self.parameterised: set[str] = set()

    def _stored(self, caffemodel: str | Path | None) -> Stored | None:
        """The caffemodel's blobs; what is wrong with it is kept for the report."""
        if caffemodel is None:
            return None
        try:
            stored, file = read_caffemodel(caffemodel)
        except TilewrightError as error:
            self.problems.extend(error.problems)
            return None
        self.files = (file,)
        return stored

    def run(self) -> Imported:
        """The model as a network; raises TilewrightError."""
        for layer in self.layers:
            self._take(layer)
        if self.problems:
            raise TilewrightError(self.problems)
        results = [self.values[name] for name in self.outputs]
        module = self.network.finish(results)
        if self.parameters.made_up:
            self.notes.append(
                "there is no caffemodel: weights are random (seeded by the layers' names, "
                "scaled by fan-in), so results mean nothing; give --caffemodel"
            )
        if self.stored is not None and (note := unused(self.stored, self.layers)):
            self.notes.append(note)
        nodes = tuple(ModelNode(item.name, item.type, item.tops) for item in self.layers)
        return Imported(
            module,
            self.network.weights,
            self.name,
            self.form,
            self.source.digest,
            tuple(self.notes),
            nodes,
            self.files,
        )

    def _take(self, layer: Layer) -> None:
        """Import one layer: give a value to each of its tops."""
        results: Mapping[str, SSAValue] = {}
        try:
            results = self._results(layer)
        except TilewrightError as error:
            self.problems.extend(error.problems)
        for name in layer.tops:
            self.values.pop(name, None)
        self.values.update(results)

    def _results(self, layer: Layer) -> Mapping[str, SSAValue]:
        """The values of a layer's tops; none if they depend on what was refused."""
        if layer.type in SOURCES:
            return {name: self.inputs[name] for name in layer.tops if name in self.inputs}
        rule = RULES.get(layer.type)
        if rule is None:
            raise layer.refuse("layers of this type are not read", code="caffe-unsupported-layer")
        if not layer.bottoms:
            raise layer.refuse("it has no bottoms")
        values = [self.values[name] for name in layer.bottoms if name in self.values]
        if len(values) < len(layer.bottoms):
            return {}
        at = Lowering(layer, values, self.network, self.parameters, self.problems)
        results = rule(at)
        if at.taken and layer.name in self.parameterised:
            reason = "another layer with parameters has this name"
            self.problems.append(Problem("caffe-duplicate-name", reason, layer.where))
        if at.taken:
            self.parameterised.add(layer.name)
        self.problems += self.parameters.left_over(layer, at.taken)
        return dict(zip(layer.tops, results, strict=True))


def outputs_of(
    layers: Sequence[Layer], dropped: Sequence[Layer], problems: list[Problem]
) -> list[str]:
    """The blobs that no layer reads, in the order in which they are made.

    Layers run in the file's order. A top with the name of a blob that there is replaces it, which
    is allowed where the layer reads that blob at the same position (in place). Blobs of inputs
    are no outputs. What is wrong is added to ``problems``.
    """
    known: set[str] = set()
    free: dict[str, None] = {}
    gone = {top: layer for layer in dropped for top in layer.tops}
    for layer in layers:
        for name in dict.fromkeys(layer.bottoms):
            free.pop(name, None)
            if name not in known:
                why = ""
                if name in gone:
                    why = f"{gone[name].where} is left out of a deployed network"
                reason = f"it reads the blob {shown(name)}, which no layer before it makes"
                problems.append(Problem("caffe-missing-blob", reason, layer.where, why))
        for index, name in enumerate(layer.tops):
            in_place = layer.bottoms[index : index + 1] == (name,)
            if name in known and not in_place and layer.type not in SOURCES:
                reason = f"it makes the blob {shown(name)}, which is made before it"
                problems.append(Problem("caffe-duplicate-name", reason, layer.where))
            elif in_place and layer.type in NOT_IN_PLACE:
                reason = f"a {layer.type} layer cannot work in place"
                problems.append(Problem("caffe-parameter", reason, layer.where))
            if layer.type not in DATA or any(name in other.bottoms for other in layers):
                known.add(name)
            if layer.type not in SOURCES:
                free[name] = None
    if not free:
        problems.append(Problem("caffe-no-output", "no layer makes a blob that is left over"))
    return list(free)
