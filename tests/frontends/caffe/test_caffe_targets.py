"""Caffe's own networks run on the targets, and the commands take a caffemodel."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import tilewright
from tests.frontends.caffe.caffe_models import caffemodel, input_of, layer, noise
from tests.frontends.caffe.caffe_reference import inner_product
from tilewright.cli.main import app
from tilewright.errors import TilewrightError

EXAMPLES = Path(__file__).parents[3] / "examples" / "caffe"


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "cambricon-x"])
@pytest.mark.parametrize(
    ("name", "shape"), [("lenet", (1, 1, 28, 28)), ("cifar10_quick", (2, 3, 32, 32))]
)
def test_networks_run_as_the_interpreter_says(name, shape, target):
    executable = tilewright.compile(EXAMPLES / f"{name}.prototxt", target, shapes={"data": shape})
    inputs = {"data": noise(*shape, seed=3)}
    results = executable.run(inputs, check_races=True)
    assert results["prob"].shape == (shape[0], 10)
    np.testing.assert_allclose(results["prob"].sum(axis=1), 1, atol=1e-3)
    found = executable.check(inputs, results)
    assert found.equal
    assert found.exact == (target == "cambricon-x")
    other = executable.run({"data": noise(*shape, seed=4)})["prob"]
    assert np.abs(other - results["prob"]).max() > 1e-3


def fcn(folder):
    """As FCN: scores of two sizes, enlarged by deconvolutions, one of them channel by channel."""

    def window(kind, outputs, kernel, bottom, top, more=""):
        settings = f"num_output: {outputs} kernel_size: {kernel} {more}"
        return layer(kind, f"convolution_param {{ {settings} }}", [bottom], [top], top)

    pool = "pooling_param { pool: MAX kernel_size: 2 stride: 2 }"
    crop = "crop_param { axis: 2 offset: 1 }"
    text = (
        input_of("data", (1, 3, 24, 20))
        + window("Convolution", 16, 3, "data", "c1", "pad: 1")
        + layer("ReLU", "", ["c1"], ["c1"], "r1")
        + layer("Pooling", pool, ["c1"], ["p1"], "p1")
        + window("Convolution", 24, 3, "p1", "c2", "pad: 1")
        + layer("ReLU", "", ["c2"], ["c2"], "r2")
        + layer("Pooling", pool, ["c2"], ["p2"], "p2")
        + window("Convolution", 7, 1, "p2", "score")
        + window("Deconvolution", 7, 4, "score", "up", "stride: 2 bias_term: false")
        + window("Convolution", 7, 1, "p1", "side")
        + layer("Crop", crop, ["up", "side"], ["cropped"], "crop")
        + layer("Eltwise", "", ["cropped", "side"], ["sum"], "sum")
        + window("Deconvolution", 7, 4, "sum", "y", "stride: 2 pad: 1 group: 7 bias_term: false")
    )
    (folder / "fcn.prototxt").write_text(text)
    return folder / "fcn.prototxt"


@pytest.mark.slow_cases(1)
@pytest.mark.slow
@pytest.mark.parametrize("target", ["zu2", "dpu-b512", "cpu"])
def test_deconvolutions_run_on_the_core(target, tmp_path):
    samples = [{"data": noise(1, 3, 24, 20, seed=seed)} for seed in range(2)]
    executable = tilewright.compile(fcn(tmp_path), target, calibration=samples[:1])
    for inputs in samples:
        results = executable.run(inputs, check_races=True)
        found = executable.check(inputs, results)
        assert found.equal and found.exact == (target != "cpu")
        assert results["y"].shape == (1, 7, 24, 20) and np.unique(results["y"]).size > 20
    hosts = [kernel.symbol for kernel in executable.profile.kernels if kernel.on_host]
    assert all("quantise" in symbol for symbol in hosts)


def refused(arguments):
    result = CliRunner().invoke(app, [*arguments, "--json", "-q"])
    assert result.exit_code == 2, result.output
    return json.loads(result.stdout)["errors"][0]["code"]


def test_commands_take_a_caffemodel(tmp_path):
    """``run`` compiles for the machine-file target, which needs no C compiler."""
    text = input_of("x", (2, 6)) + layer(
        "InnerProduct", "inner_product_param { num_output: 4 }", name="ip"
    )
    model, weights = tmp_path / "net.prototxt", tmp_path / "net.caffemodel"
    model.write_text(text)
    w, b = noise(4, 6, seed=1), noise(4, seed=2)
    weights.write_bytes(caffemodel({"ip": [w, b]}))
    np.save(tmp_path / "x.npy", noise(2, 6))
    options = ["--target", "cambricon-x", "--caffemodel", str(weights), "-q"]
    np.savez(tmp_path / "samples.npz", x=noise(1, 2, 6, low=-3, high=3))
    options += ["--calibration", str(tmp_path / "samples.npz")]
    arguments = ["--input", f"x={tmp_path / 'x.npy'}", "-o", str(tmp_path / "y.npz"), "--check"]
    result = CliRunner().invoke(app, ["run", str(model), *options, *arguments])
    assert result.exit_code == 0, result.output
    assert "random (seeded" not in result.output
    with np.load(tmp_path / "y.npz") as file:
        np.testing.assert_allclose(file["y"], inner_product(noise(2, 6), w, b), atol=0.01)
    package = tmp_path / "package"
    for command in (["compile", "-o", str(package)], ["plan"]):
        result = CliRunner().invoke(app, [command[0], str(model), *options, *command[1:]])
        assert result.exit_code == 0, result.output
    assert refused(["run", str(package), "--caffemodel", str(weights)]) == "option-package"
    assert refused(["compile", "net.onnx", "--caffemodel", str(weights)]) == "model-weights"
    assert refused(["compile", str(model), "--weights", str(weights)]) == "option-form"


def test_weights_of_a_model_that_is_loaded_are_refused(tmp_path):
    (tmp_path / "net.prototxt").write_text(input_of("x", (1, 2)) + layer("ReLU"))
    imported = tilewright.load(tmp_path / "net.prototxt")
    with pytest.raises(TilewrightError, match="model-weights"):
        tilewright.compile(imported, "cambricon-x", caffemodel=tmp_path / "net.caffemodel")
