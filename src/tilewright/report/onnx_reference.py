"""What ONNX Runtime computes for the tensors inside a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from onnx import ModelProto

from tilewright.errors import refuse
from tilewright.types import Array

MOST_BYTES = (1 << 31) - 1
"""ONNX Runtime takes no larger model from memory."""


def onnx_tensors(
    source: Path | ModelProto, inputs: Mapping[str, Array], wanted: Iterable[str]
) -> dict[str, Array]:
    """Run a model with ONNX Runtime, unoptimised; the wanted tensors that its nodes make, by name.

    A model that is given as such is left as it is.
    Refuses (``reference-missing``, ``reference-failed``) without ONNX Runtime, and what it refuses.
    """
    try:
        import onnxruntime
    except ImportError:
        raise refuse(
            "reference-missing",
            "onnxruntime is not installed",
            help="pip install onnxruntime, or take --reference interpreter",
        ) from None
    import onnx

    path = source if isinstance(source, Path) else "model"
    try:
        model = onnx.ModelProto()
        model.CopyFrom(onnx.load(source) if isinstance(source, Path) else source)
        made = {name for node in model.graph.node for name in node.output if name}
        names = [name for name in dict.fromkeys(wanted) if name in made]
        del model.graph.output[:]
        model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(n) for n in names)
        data = model.SerializeToString()
    except Exception as error:  # protobuf and onnx raise many kinds
        raise refuse("reference-failed", str(error), str(path)) from error
    if len(data) > MOST_BYTES:
        raise refuse("reference-failed", "the model is too large to run from memory", str(path))
    if not names:
        return {}
    settings: Any = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 4
    try:
        session: Any = onnxruntime.InferenceSession(
            data, settings, providers=["CPUExecutionProvider"]
        )
        results: list[Any] = session.run(names, dict(inputs))
    except Exception as error:  # onnxruntime raises bare exceptions of many kinds
        text = " ".join(str(error).split())[:300]
        raise refuse("reference-failed", f"ONNX Runtime: {text}", str(path)) from error
    return dict(zip(names, results, strict=True))
