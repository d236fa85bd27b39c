"""Models of any element types, run as C of ``cpu`` and by the interpreter."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

import tilewright
from tests.frontends.onnx.onnx_models import IR_VERSION
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.interpreter import interpret
from tilewright.report.onnx_reference import exact_session

Arrays = Mapping[str, np.ndarray]


def typed_model(
    nodes: Sequence[onnx.NodeProto],
    feeds: Arrays,
    outputs: Mapping[str, int],
    constants: Arrays | None = None,
    opset: int = 18,
    domain: str = "",
) -> onnx.ModelProto:
    """A model with inputs like ``feeds``; ``outputs`` has the element types by name."""
    kind = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        list(nodes),
        "typed",
        [helper.make_tensor_value_info(k, kind(v.dtype), v.shape) for k, v in feeds.items()],
        [helper.make_tensor_value_info(name, each, None) for name, each in outputs.items()],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    if domain:
        opsets.append(helper.make_opsetid(domain, 1))
    version = max(IR_VERSION, 10 if opset > 20 else 0)
    return helper.make_model(graph, opset_imports=opsets, ir_version=version)


def executed(
    model: onnx.ModelProto, feeds: Arrays, empty: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """The outputs of C; those of the interpreter are the same (floats: nearly).

    The interpreter's network has no ``empty`` ones.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        onnx.save(model, path)
        executable = tilewright.compile(path)
        outputs, reference = executable.run(dict(feeds)), executable.reference(dict(feeds))
    assert outputs.keys() - reference.keys() == set(empty)
    for name, array in outputs.items():
        if name in empty:
            continue
        want = reference[name]
        assert (array.dtype, array.shape) == (want.dtype, want.shape), name
        if array.dtype.kind in "iub":
            np.testing.assert_array_equal(array, want, err_msg=name)
        else:
            np.testing.assert_allclose(array, want, rtol=1e-5, atol=1e-5, err_msg=name)
    return dict(outputs)


def interpreted(model: onnx.ModelProto, feeds: Arrays) -> dict[str, np.ndarray]:
    """The outputs of the interpreter alone."""
    imported = import_onnx(model)
    return dict(interpret(imported.module, imported.weights, dict(feeds)))


def runtime_of(model: onnx.ModelProto, feeds: Arrays) -> dict[str, np.ndarray]:
    """ONNX Runtime's outputs, without its optimisations."""
    session = exact_session(model, threads=1)
    names = [value.name for value in model.graph.output]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))
