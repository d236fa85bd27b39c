"""A network's layers in one form, whichever form the file has, as Caffe's test phase sees them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tilewright.errors import Problem, TilewrightError, refuse
from tilewright.frontends.caffe.limits import MAX_BLOBS, MAX_LAYERS
from tilewright.frontends.caffe.schema import message_class
from tilewright.frontends.limits import shown

_ODD: dict[str, str] = {
    "ABSVAL": "AbsVal",
    "ARGMAX": "ArgMax",
    "BNLL": "BNLL",
    "HDF5_DATA": "HDF5Data",
    "HDF5_OUTPUT": "HDF5Output",
    "IM2COL": "Im2col",
    "LRN": "LRN",
    "MVN": "MVN",
    "NONE": "",
    "RELU": "ReLU",
    "SOFTMAX_LOSS": "SoftmaxWithLoss",
    "TANH": "TanH",
}
_KINDS: list[str] = list(message_class("V1LayerParameter").LayerType.DESCRIPTOR.values_by_name)

TYPES_V1: dict[str, str] = {
    name: _ODD[name] if name in _ODD else name.title().replace("_", "") for name in _KINDS
}
"""The type names of the older form of layers, and the newer names of each."""

TRAINING = ("Accuracy", "Silence", "HDF5Output")
"""Layers, beside those that end in Loss, that compute nothing a deployed network hands out."""

TEST = 1
"""Caffe's number of the test phase."""


@dataclass(frozen=True)
class Layer:
    """One layer; ``name`` is made up from type and position if the file gives none."""

    name: str
    type: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    proto: Any
    """The LayerParameter or V1LayerParameter with its parameters, which have the same names."""
    shared: tuple[str, ...] = ()
    """Names under which its parameters are shared with other layers, where they have any."""

    @property
    def where(self) -> str:
        """The layer's name and type in messages."""
        return f"layer {shown(self.name)} ({shown(self.type)[1:-1]})"

    def refuse(
        self, reason: str, *, code: str = "caffe-parameter", help: str = ""
    ) -> TilewrightError:
        """The refusal of this layer; ``raise layer.refuse(...)``."""
        return refuse(code, reason, self.where, help)

    @property
    def is_for_training(self) -> bool:
        """True if it measures instead of computing."""
        return self.type in TRAINING or self.type.endswith("Loss")


def layers_of(net: Any, problems: list[Problem], notes: list[str], title: str) -> list[Layer]:
    """The layers of the test phase, inputs first; what is refused is added to ``problems``."""
    if net.layer and net.layers:
        problems.append(
            Problem("caffe-form", "it has layers of both forms, 'layer' and 'layers'", title)
        )
    if len(net.layer) + len(net.layers) + len(net.input) > MAX_LAYERS:
        problems.append(Problem("caffe-too-large", f"it has more than {MAX_LAYERS} layers", title))
        return []
    layers = _inputs(net, problems, title)
    if net.HasField("state") and (net.state.phase != TEST):
        notes.append("the file asks for the training phase; its test phase is taken")
    kind_of = message_class("V1LayerParameter").LayerType.Name
    old = [
        _layer(proto, TYPES_V1[kind_of(proto.type)], index, tuple(proto.param))
        for index, proto in enumerate(net.layers)
    ]
    new = [
        _layer(proto, proto.type, index, tuple(item.name for item in proto.param))
        for index, proto in enumerate(net.layer)
    ]
    for layer in (*old, *new):
        proto = layer.proto
        if layer.type == "" and old and proto.HasField("layer"):
            problems.append(
                Problem(
                    "caffe-form",
                    "it has the oldest of the three forms ('layers { layer {'), which is not read",
                    layer.where,
                    "convert the file with Caffe's upgrade_net_proto_text",
                )
            )
            continue
        if max(len(layer.bottoms), len(layer.tops)) > MAX_BLOBS:
            reason = f"it has more than {MAX_BLOBS} bottoms or tops"
            problems.append(Problem("caffe-too-large", reason, layer.where))
            continue
        if proto.include and proto.exclude:
            reason = "it has include and exclude rules; Caffe takes one kind"
            problems.append(Problem("caffe-parameter", reason, layer.where))
        if _takes_part(proto, net.state):
            layers.append(layer)
    return layers


def _layer(proto: Any, kind: str, index: int, shared: tuple[str, ...]) -> Layer:
    name = proto.name or f"{kind or 'layer'}_{index}"
    return Layer(name, kind, tuple(proto.bottom), tuple(proto.top), proto, shared)


def _inputs(net: Any, problems: list[Problem], title: str) -> list[Layer]:
    """The net's own inputs (``input`` with ``input_dim`` or ``input_shape``) as Input layers."""
    names = list(net.input)
    shapes = [list(shape.dim) for shape in net.input_shape]
    if net.input_dim:
        if shapes or len(net.input_dim) != 4 * len(names):
            reason = f"{len(names)} inputs need four input_dim each, or an input_shape each"
            problems.append(Problem("caffe-shape", reason, title))
        dims = list(net.input_dim)
        shapes = [dims[4 * index : 4 * index + 4] for index in range(len(names))]
    if shapes and len(shapes) not in (1, len(names)):
        reason = f"{len(names)} inputs have {len(shapes)} shapes"
        problems.append(Problem("caffe-shape", reason, title))
    layers: list[Layer] = []
    for index, name in enumerate(names):
        proto = message_class("LayerParameter")(name=name, type="Input", top=[name])
        for dims in shapes[index : index + 1] or shapes[:1]:
            proto.input_param.shape.add(dim=dims)
        layers.append(Layer(name, "Input", (), (name,), proto))
    return layers


def _takes_part(proto: Any, state: Any) -> bool:
    """Return True if a layer is there in the test phase, by its include or exclude rules."""
    if proto.include:
        return _any_holds(proto.include, state)
    return not _any_holds(proto.exclude, state)


def _any_holds(rules: Iterable[Any], state: Any) -> bool:
    stages = set(state.stage)
    return any(
        (not rule.HasField("phase") or rule.phase == TEST)
        and (not rule.HasField("min_level") or state.level >= rule.min_level)
        and (not rule.HasField("max_level") or state.level <= rule.max_level)
        and stages.issuperset(rule.stage)
        and stages.isdisjoint(rule.not_stage)
        for rule in rules
    )
