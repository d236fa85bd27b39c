"""The values that ONNX Runtime computes for the tensors inside a model.

On x86 processors without dot products of bytes (AVX2, early AVX-512) its products of unsigned with
signed bytes add two products in 16 bits, which saturate. A setting makes it take unsigned bytes for
both, by a graph optimisation: there, models with such products are optimised so far.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto

from tilewright.errors import refuse
from tilewright.ir.types import Array

MOST_BYTES = (1 << 31) - 1
"""ONNX Runtime takes no larger model from memory."""


_PRODUCTS = re.compile("MatMulInteger|ConvInteger|DynamicQuantize|QLinear|QGemm|QAttention")
"""Types of nodes that multiply bytes."""

_PRECISE = ("session.x64quantprecision", "1")


def exact_session(model: ModelProto, *, optimised: bool = False, threads: int = 0) -> Any:
    """A session whose products of bytes are exact: its graph is optimised if asked or needed.

    Raises what ONNX Runtime raises. Of ``threads`` 0 are as many as it likes.
    """
    import onnxruntime

    def session(precise: bool) -> Any:
        settings: Any = onnxruntime.SessionOptions()
        settings.log_severity_level = 4
        settings.intra_op_num_threads = threads
        if precise:
            settings.add_session_config_entry(*_PRECISE)
        if not optimised:
            level = "ORT_ENABLE_EXTENDED" if precise else "ORT_DISABLE_ALL"
            levels = onnxruntime.GraphOptimizationLevel
            settings.graph_optimization_level = getattr(levels, level)
        data = model.SerializeToString()
        return onnxruntime.InferenceSession(data, settings, providers=["CPUExecutionProvider"])

    products = any(map(_PRODUCTS.match, (node.op_type for node in model.graph.node)))
    if (products or optimised) and _saturates():
        try:
            return session(precise=True)
        except Exception:  # onnxruntime raises bare exceptions of many kinds
            # The setting makes nodes that have no kernel of products of two signed bytes, which
            # were exact without it.
            return session(precise=False)
    return session(precise=False)


@cache
def _saturates() -> bool:
    """Return True if a sum of two products of bytes saturates below 2 * 255 * 127 here."""
    import onnxruntime
    from onnx import helper, numpy_helper

    x, w = np.full((1, 4), 255, np.uint8), np.full((4, 1), 127, np.int8)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [1, 1])],
        [numpy_helper.from_array(w, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session: Any = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return int(session.run(None, {"x": x})[0].item()) != 4 * 255 * 127


def onnx_tensors(
    source: Path | ModelProto, inputs: Mapping[str, Array], wanted: Iterable[str]
) -> dict[str, Array]:
    """Run a model with ONNX Runtime; the wanted tensors that its nodes make, by name.

    It is not optimised where sums are exact so. A model that is given as such is left as it is.
    Refuses (``reference-missing``, ``reference-failed``) without ONNX Runtime, and what it refuses.
    """
    if find_spec("onnxruntime") is None:
        raise refuse(
            "reference-missing",
            "onnxruntime is not installed",
            help="pip install onnxruntime, or take --reference interpreter",
        )
    import onnx

    path = source if isinstance(source, Path) else "model"
    try:
        model = onnx.ModelProto()
        model.CopyFrom(onnx.load(source) if isinstance(source, Path) else source)
        computed = {name for node in model.graph.node for name in node.output if name}
        names = [name for name in dict.fromkeys(wanted) if name in computed]
        del model.graph.output[:]
        model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(n) for n in names)
        size = model.ByteSize()
    except Exception as error:  # protobuf and onnx raise many kinds
        raise refuse("reference-failed", str(error), str(path)) from error
    if size > MOST_BYTES:
        raise refuse("reference-failed", "the model is too large to run from memory", str(path))
    if not names:
        return {}
    try:
        session = exact_session(model)
        results: list[Any] = session.run(names, dict(inputs))
    except Exception as error:  # onnxruntime raises bare exceptions of many kinds
        text = " ".join(str(error).split())[:300]
        raise refuse("reference-failed", f"ONNX Runtime: {text}", str(path)) from error
    return dict(zip(names, results, strict=True))
