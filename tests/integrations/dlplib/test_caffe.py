from pathlib import Path

import numpy as np
import pytest

from tilewright.errors import TilewrightError
from tilewright.graph.interpreter import interpret
from tilewright.integrations.dlplib.caffe import Net
from tilewright.ir.types import Array

EXAMPLES = Path(__file__).parents[3] / "examples" / "caffe"

MIXED = """
name: "mixed"
input: "data" input_shape { dim: 1 dim: 4 dim: 9 dim: 9 }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 6 kernel_size: 3 group: 2 bias_term: false } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" }
layer { name: "scale" type: "Scale" bottom: "conv" top: "conv" scale_param { bias_term: true } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "norm" type: "LRN" bottom: "conv" top: "norm" lrn_param { local_size: 3 } }
layer { name: "sum" type: "Eltwise" bottom: "conv" bottom: "norm" top: "sum" }
layer { name: "join" type: "Concat" bottom: "sum" bottom: "conv" top: "join" }
layer { name: "drop" type: "Dropout" bottom: "join" top: "join" }
layer { name: "pool" type: "Pooling" bottom: "join" top: "pool"
  pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 } }
layer { name: "fc" type: "InnerProduct" bottom: "pool" top: "fc"
  inner_product_param { num_output: 5 } }
layer { name: "tanh" type: "TanH" bottom: "fc" top: "fc" }
"""


def compare(net: Net, seed: int) -> None:
    """Outputs are those of the network in float32, within what 16 bits leave over its layers."""
    random = np.random.default_rng(seed)
    infos = {layer.name: layer for layer in net.layers}
    assert len(infos) == len(net.layers)
    for _ in range(2):
        inputs = {"data": random.standard_normal(shape_of_input(net)).astype(np.float32)}
        outputs = net.forward(inputs)
        expected = interpret(net.model.module, net.model.weights, inputs)
        assert outputs.keys() == expected.keys()
        for name, want in expected.items():
            assert outputs[name].shape == want.shape and len(np.unique(want)) > 4
            assert np.abs(outputs[name] - want).max() <= 4e-3 * np.abs(want).max()
    assert all(run.host == () for run in net.handle.runs)
    net.close()


def shape_of_input(net: Net) -> tuple[int, ...]:
    return {"LeNet": (1, 1, 28, 28), "mixed": (1, 4, 9, 9)}.get(net.model.name, (1, 3, 32, 32))


@pytest.mark.slow
def test_lenet_layer_by_layer() -> None:
    net = Net(EXAMPLES / "lenet.prototxt", shapes={"data": (1, 1, 28, 28)}, check=True)
    compare(net, 0)
    kinds = {layer.name: layer.type for layer in net.layers}
    assert kinds["ip1"] == "InnerProduct" and kinds["relu1"] == "ReLU"
    called = {name: [run.operator for run in runs] for name, runs in net.ran.items()}
    assert called["ip1"] == ["fully_connected_forward"] and called["relu1"] == []
    assert net.cycles > 40_000
    assert "ip1                  InnerProduct" in net.report() and "in all" in net.report()


@pytest.mark.slow
def test_cifar10_quick() -> None:
    compare(Net(EXAMPLES / "cifar10_quick.prototxt", engine="DLP", check=True), 1)


@pytest.mark.slow
def test_other_layers(tmp_path: Path) -> None:
    path = tmp_path / "mixed.prototxt"
    path.write_text(MIXED)
    net = Net(path, check=True)
    compare(net, 2)
    called = [run.operator for run in net.handle.runs]
    wanted = {"batch_norm_forward", "vector_mul", "vector_add", "lrn_forward", "concat"}
    assert wanted | {"pooling_forward", "activation_forward"} <= set(called)


def test_calibration_decides_the_binary_points(tmp_path: Path) -> None:
    path = tmp_path / "mixed.prototxt"
    path.write_text(MIXED)

    def point(size: float) -> int:
        samples: dict[str, Array] = {"data": np.full((1, 1, 4, 9, 9), size, np.float32)}
        net = Net(path, calibration=samples, compute=False)
        (value,) = [value for name, value in net._network.inputs]  # pyright: ignore[reportPrivateUsage]
        return net._device.numbers.of(value).fraction  # pyright: ignore[reportPrivateUsage]

    assert (point(0.9), point(1.1), point(100.0)) == (15, 14, 8)


def test_what_cannot_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.prototxt"
    for layer in ("AbsVal", "ELU"):
        MIXED_ = MIXED.replace('"TanH"', f'"{layer}"')
        path.write_text(MIXED_)
        with pytest.raises(
            TilewrightError, match=r"\[dlp-layer\] tanh: the library has no operator"
        ):
            Net(path)
    with pytest.raises(TilewrightError, match=r"dlp-parameter.*DLP, CAFFE"):
        Net(path, engine="CUDNN")
    path.write_text(MIXED)
    net = Net(path, compute=False)
    with pytest.raises(TilewrightError, match="input-name"):
        net.forward({})
    with pytest.raises(TilewrightError, match="input-shape"):
        net.forward({"data": np.zeros((1, 4, 9, 8), np.float32)})
    with pytest.raises(TilewrightError, match="caffe-missing-file"):
        Net(tmp_path / "none.prototxt")
