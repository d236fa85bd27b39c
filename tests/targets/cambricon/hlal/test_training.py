"""One step of training LeNet-5 in HLAL: its gradients are those of float64, and it learns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from tests.targets.cambricon.hlal.running import MACHINE, Array, build

from tilewright.targets.cambricon.hlal.run import execute

PROGRAM = Path(__file__).parents[4] / "examples" / "hlal" / "lenet5_train.hlal"
HELD_OUT = PROGRAM.parents[1] / "lenet5" / "held_out.npz"
FANS = {1: 25, 2: 150, 3: 400, 4: 120, 5: 84}


def convolved(x: Array, w: Array) -> Array:
    """5x5, without padding; NHWC and OHWI."""
    size = x.shape[1] - 4
    parts = [x[:, i : i + size, j : j + size] @ w[:, i, j].T for i in range(5) for j in range(5)]
    return np.maximum(sum(parts), 0)


def convolution_gradients(d: Array, x: Array, w: Array) -> tuple[Array, Array]:
    """Of the weights and of the data."""
    dw, dx, size = np.zeros_like(w), np.zeros_like(x), d.shape[1]
    for i in range(5):
        for j in range(5):
            window = np.s_[:, i : i + size, j : j + size]
            dw[:, i, j] = np.einsum("nhwo,nhwc->oc", d, x[window])
            dx[window] += d @ w[:, i, j]
    return dw, dx


def pooled(x: Array) -> Array:
    n, size, _, c = x.shape
    return x.reshape(n, size // 2, 2, size // 2, 2, c).max((2, 4))


def unpooled(d: Array, x: Array, y: Array) -> Array:
    """The first greatest point of a window takes its gradient; ReLU's is in it."""
    found, left = np.zeros_like(x), d.copy()
    for i in range(2):
        for j in range(2):
            found[:, i::2, j::2] = (x[:, i::2, j::2] == y) * left
            left = left - found[:, i::2, j::2]
    return found * (x > 0)


def gradients(images: Array, target: Array, w: dict[int, Array]) -> dict[str, Array]:
    """The sums over the batch that backpropagation gives."""
    x = images[..., None]
    c1 = convolved(x, w[1])
    p1 = pooled(c1)
    c2 = convolved(p1, w[2])
    p2 = pooled(c2)
    flat = p2.reshape(len(x), -1)
    f3 = np.maximum(flat @ w[3].T, 0)
    f4 = np.maximum(f3 @ w[4].T, 0)
    scores = f4 @ w[5].T
    e = np.exp(scores - scores.max(1, keepdims=True))
    d5 = e / e.sum(1, keepdims=True) - target
    d4 = d5 @ w[5] * (f4 > 0)
    d3 = d4 @ w[4] * (f3 > 0)
    d2 = unpooled((d3 @ w[3]).reshape(p2.shape), c2, p2)
    g2, d1 = convolution_gradients(d2, p1, w[2])
    g1, _ = convolution_gradients(unpooled(d1, c1, p1), x, w[1])
    return {"g1": g1, "g2": g2, "g3": d3.T @ flat, "g4": d4.T @ f3, "g5": d5.T @ f4}


@pytest.mark.slow
def test_a_step_has_the_gradients_of_float64_and_steps_reduce_the_loss() -> None:
    program = build(PROGRAM.read_text())
    declared = {array.name: array for array in program.data.arrays}
    random = np.random.default_rng(0)
    state: dict[str, Array] = {}
    for layer, fan in FANS.items():
        weights = random.standard_normal(declared[f"w{layer}"].shape) * np.sqrt(2 / fan)
        state[f"w{layer}"] = state[f"m{layer}"] = weights
    with np.load(HELD_OUT) as data:
        images, labels = data["images"][:20, 0] / 16.0, data["labels"][:20]
    target = np.eye(10)[labels]
    plain = {n: state[f"w{n}"] for n in (1, 2)}
    plain |= {n: state[f"w{n}"].reshape(state[f"w{n}"].shape[0], -1) for n in (3, 4, 5)}
    expected = gradients(images, target, plain)
    losses: list[float] = []
    for step in range(4):
        found = execute(program, MACHINE, {**state, "image": images, "target": target}).outputs
        if step == 0:
            for name, values in expected.items():
                got = found[name].reshape(values.shape) / 2.0 ** declared[name].fraction
                # Where two points of a window are nearly the same, another one may be the greatest.
                assert np.linalg.norm(got - values) < 0.03 * np.linalg.norm(values), name
        probability = found["probability"].reshape(20, 10)[np.arange(20), labels] / 2.0**14
        losses.append(-np.log(np.maximum(probability, 1e-4)).mean())
        state = {name: found[name] for name in found if name[0] in "wmvbnu" and name[1:].isdigit()}
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.slow
def test_trained_weights_give_what_onnx_runtime_gives() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    text = PROGRAM.read_text()
    forward = text[: text.index(";; backward")] + text[text.index(".static_ro") :]
    program = build(forward)
    path = PROGRAM.parents[1] / "lenet5" / "lenet5.onnx"
    weights = {item.name: numpy_helper.to_array(item) for item in onnx.load(path).graph.initializer}
    given: dict[str, Array] = {}
    for layer, name in enumerate(("conv1", "conv2", "fc1", "fc2", "fc3"), 1):
        w = weights[f"{name}.weight"]
        if w.ndim == 4:
            w = w.transpose(0, 2, 3, 1)
        elif name == "fc1":  # flattened images are NCHW there and NHWC here
            w = w.reshape(-1, 16, 5, 5).transpose(0, 2, 3, 1).reshape(len(w), -1)
        given[f"w{layer}"], given[f"b{layer}"] = w, weights[f"{name}.bias"]
    with np.load(HELD_OUT) as data:
        images = data["images"][:20] / np.float32(16)
    given |= {"image": images[:, 0], "target": np.zeros((20, 10))}
    found = execute(program, MACHINE, given, check=True).outputs["probability"] / 2.0**14
    session = onnxruntime.InferenceSession(path)
    expected = np.concatenate([session.run(None, {"image": one[None]})[0] for one in images])
    assert np.abs(found.reshape(20, 10) - expected).max() < 0.02
    np.testing.assert_array_equal(found.reshape(20, 10).argmax(1), expected.argmax(1))
