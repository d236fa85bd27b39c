"""Powers and reductions of integers, and element types that attributes state."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.frontends.onnx.executed import executed, runtime_of, typed_model
from tests.frontends.onnx.onnx_models import single
from tilewright.errors import TilewrightError
from tilewright.frontends.onnx import import_onnx

KINDS: dict[np.dtype[Any], int] = {
    np.dtype(np.int32): TensorProto.INT32,
    np.dtype(np.int64): TensorProto.INT64,
}


def whole_power(x: int, y: int, bits: int) -> int:
    """x ** y in integers of a number of bits, rounded towards zero."""
    if y < 0:
        return x if abs(x) == 1 and y % 2 else abs(x) if abs(x) <= 1 else 0
    return (x**y + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def test_power_of_integers() -> None:
    """As many products as the exponent says, of whatever types, at run time and known before."""
    bases = [3, -7, 2147483649, -1, 1, 0, 10, -2, 5, 3, 2, -1, 46341, 0, 2]
    exponents = [33, 3, 2, 7, -9, 5, -1, 63, 0, 41, 63, -4, 2, 0, 64]
    nodes, feeds, outputs = [], dict[str, np.ndarray](), dict[str, int]()
    for kind in KINDS:
        x = np.array(bases).astype(kind)
        for other in (np.int32, np.int64, np.uint8):
            name = f"{kind}_{np.dtype(other)}"
            feeds[f"x{name}"], feeds[f"y{name}"] = x, np.array(exponents).astype(other)
            nodes.append(helper.make_node("Pow", [f"x{name}", f"y{name}"], [name]))
            outputs[name] = KINDS[kind]
    constants = {"three": np.array(3), "twenty": np.array([20], np.float32)}
    feeds["f"] = np.array([-1.0, 1.5, -2.0], np.float32)
    feeds["large"] = np.array([2**25 + 1, 3, -2])
    nodes.append(helper.make_node("Pow", ["xint64_int64", "three"], ["cube"]))
    nodes.append(helper.make_node("Pow", ["xint32_int64", "twenty"], ["float"]))
    nodes.append(helper.make_node("Pow", ["f", "large"], ["odd"]))
    outputs |= {"cube": 7, "float": 6, "odd": 1}
    model = typed_model(nodes, feeds, outputs, constants)
    got = executed(model, feeds)
    for kind in KINDS:
        for other in (np.int32, np.int64, np.uint8):
            name, bits = f"{kind}_{np.dtype(other)}", 8 * kind.itemsize
            pairs = zip(feeds[f"x{name}"], feeds[f"y{name}"], strict=True)
            assert got[name].tolist() == [whole_power(int(a), int(b), bits) for a, b in pairs], name
    assert got["cube"].tolist() == [whole_power(b, 3, 64) for b in bases]
    mixed = {name: feeds[name] for name in ("xint32_int64", "f", "large")}
    known = {name: outputs[name] for name in ("float", "odd")}
    runtime = runtime_of(typed_model(nodes[-2:], mixed, known, constants), mixed)
    for name in known:
        np.testing.assert_array_equal(got[name], runtime[name])


@pytest.mark.parametrize("kind", KINDS)
def test_reductions_of_integers(kind: np.dtype[Any]) -> None:
    """As ONNX Runtime has them, as long as nothing overflows."""
    values = np.random.default_rng(kind.itemsize)
    feeds = {
        "x": values.integers(-50, 50, (3, 4, 5)).astype(kind),
        "positive": values.integers(1, 9, (3, 4, 5)).astype(kind),
    }
    nodes, outputs = [], dict[str, int]()
    for index, axes in enumerate(([0, 2], None)):
        for name in ("Max", "Min", "Sum", "Mean", "L1", "L2", "SumSquare", "LogSum"):
            read = ["positive" if name == "LogSum" else "x"]
            read += [] if axes is None else [f"axes{index}"]
            nodes.append(
                helper.make_node(
                    f"Reduce{name}",
                    read,
                    [f"{name}{index}"],
                    keepdims=index,
                )
            )
            outputs[f"{name}{index}"] = KINDS[kind]
    model = typed_model(nodes, feeds, outputs, {"axes0": np.array([0, 2])})
    got, want = executed(model, feeds), runtime_of(model, feeds)
    for name in outputs:
        np.testing.assert_array_equal(got[name], want[name], err_msg=name)


def test_type_that_a_dequantisation_states() -> None:
    """Its scale may be of another."""
    feeds = {"x": np.arange(-128, 127, 5, dtype=np.int8)}
    scales = {
        "f4": np.array(0.0137, np.float32),
        "f2": np.array(8964, np.float16),
        "b2": np.array(0.37, ml_dtypes.bfloat16),
    }
    kinds = {1: np.float32, 10: np.float16, 16: ml_dtypes.bfloat16}
    nodes, outputs = [], dict[str, int]()
    for scale in scales:
        for kind in kinds:
            # Of a bfloat16 result, arrays are read as float32.
            name = f"{scale}_{kind}"
            nodes.append(
                helper.make_node("DequantizeLinear", ["x", scale], [f"_{name}"], output_dtype=kind)
            )
            nodes.append(helper.make_node("Cast", [f"_{name}"], [name], to=1))
            outputs[name] = 1
    got = executed(typed_model(nodes, feeds, outputs, scales, opset=23), feeds)
    for scale, number in scales.items():
        for kind, dtype in kinds.items():
            exact = feeds["x"].astype(np.float32) * number.astype(np.float32)
            with np.errstate(over="ignore"):
                want = exact.astype(dtype).astype(np.float32)
            np.testing.assert_array_equal(got[f"{scale}_{kind}"], want)


def test_precision_of_a_quantisation() -> None:
    """The quotient is rounded to the type that is stated, or else to the scale's."""
    x = np.linspace(-14, 14, 301, dtype=np.float32)
    feeds = {"x": x, "h": x.astype(np.float16)}
    constants = {
        "f4": np.array(0.1, np.float32),
        "f2": np.array(0.1, np.float16),
        "zero": np.array(3, np.int8),
    }
    kinds: dict[int, Any] = {0: None, 1: np.float32, 10: np.float16, 16: ml_dtypes.bfloat16}
    nodes, outputs = [], dict[str, int]()
    for source in feeds:
        for scale in ("f4", "f2"):
            for kind in kinds:
                name = f"{source}_{scale}_{kind}"
                nodes.append(
                    helper.make_node(
                        "QuantizeLinear", [source, scale, "zero"], [name], precision=kind
                    )
                )
                outputs[name] = 3
    got = executed(typed_model(nodes, feeds, outputs, constants, opset=23), feeds)
    differing = 0
    for name, array in got.items():
        source, scale, kind = name.split("_")
        dtype = kinds[int(kind)] or constants[scale].dtype
        quotient = feeds[source].astype(dtype) / constants[scale].astype(dtype)
        rounded = np.rint(quotient.astype(np.float32)) + 3
        np.testing.assert_array_equal(array, np.clip(rounded, -128, 127).astype(np.int8), name)
        differing += int((array != got[f"{source}_{scale}_1"]).sum())
    assert differing > 20, "no quotient is rounded"


@pytest.mark.parametrize(
    ("operator", "attributes", "reason"),
    [
        ("DequantizeLinear", {"output_dtype": 11}, "its output_dtype double is none of float"),
        ("QuantizeLinear", {"precision": 11}, "its precision double is none of float"),
        ("QuantizeLinear", {"output_dtype": 2}, "is to be uint8, and its zero point is int8"),
    ],
)
def test_types_that_do_not_fit(operator: str, attributes: dict[str, int], reason: str) -> None:
    ends = (np.array(0.1, np.float32), np.array(0, np.int8))
    model = single(operator, [(3,), *ends], opset=23, **attributes)
    if operator == "DequantizeLinear":
        model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT8
    with pytest.raises(TilewrightError, match=reason):
        import_onnx(model)
