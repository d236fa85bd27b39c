"""Train LeNet-5 on scikit-learn's digits; write lenet5.onnx and held_out.npz beside this file.

Needs the ``torch`` extra and scikit-learn:  python examples/lenet5/train.py
The digits' 8x8 images (0..16) are scaled to 0..1 and each pixel is repeated 4x4, giving 32x32.
A fifth of the 1,797 images, 360 of them, is held out and never seen in training; 64 of the others
are kept to calibrate fixed-point targets.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

HERE = Path(__file__).parent
EPOCHS = 40


def images_and_labels() -> tuple[np.ndarray, np.ndarray]:
    """All digits as (1797, 1, 32, 32) uint8 from 0 to 16, and their labels."""
    digits = load_digits()
    small = digits.images.astype(np.uint8)
    return small.repeat(4, axis=1).repeat(4, axis=2)[:, None], digits.target.astype(np.int64)


def network() -> nn.Sequential:
    """LeNet-5: two convolutions with pooling, then three fully connected layers."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(),
        nn.Linear(120, 84), nn.ReLU(),
        nn.Linear(84, 10),
    )  # fmt: skip


def train(model: nn.Sequential, images: torch.Tensor, labels: torch.Tensor) -> None:
    """Fit the model with Adam and a decaying step, in shuffled batches of 64."""
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(images)).split(64):
            down, right = torch.randint(-3, 4, (2,)).tolist()  # digits are not always centred
            moved = images[batch].roll((down, right), (2, 3))
            loss = nn.functional.cross_entropy(model(moved), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()


def to_onnx(model: nn.Sequential) -> onnx.ModelProto:
    """The trained network as ONNX, with a softmax at the end."""
    names = ["conv1", "relu1", "pool1", "conv2", "relu2", "pool2", "flatten", "fc1", "relu3",
             "fc2", "relu4", "fc3"]  # fmt: skip
    nodes, weights, value = [], [], "image"
    for name, layer in zip(names, model, strict=True):
        inputs = [value]
        for part, parameter in layer.named_parameters():
            inputs.append(f"{name}.{part}")
            weights.append(numpy_helper.from_array(parameter.detach().numpy(), inputs[-1]))
        kind, attributes = {
            nn.Conv2d: ("Conv", {"kernel_shape": [5, 5]}),
            nn.MaxPool2d: ("MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2]}),
            nn.ReLU: ("Relu", {}),
            nn.Flatten: ("Flatten", {}),
            nn.Linear: ("Gemm", {"transB": 1}),
        }[type(layer)]
        value = f"{name}.out"
        nodes.append(helper.make_node(kind, inputs, [value], name, **attributes))
    nodes.append(helper.make_node("Softmax", [value], ["probabilities"], "softmax", axis=1))
    graph = helper.make_graph(
        nodes,
        "lenet5",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 32, 32])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [1, 10])],
        weights,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    made.producer_name = "tilewright examples"
    onnx.checker.check_model(made, full_check=True)
    return made


def main() -> None:
    torch.manual_seed(3)
    torch.set_num_threads(1)
    images, labels = images_and_labels()
    seen, held_out, seen_labels, held_out_labels = train_test_split(
        images, labels, test_size=360, random_state=0, stratify=labels
    )
    model = network()
    train(model, torch.from_numpy(seen).float() / 16, torch.from_numpy(seen_labels))
    with torch.no_grad():
        guess = model(torch.from_numpy(held_out).float() / 16).argmax(1).numpy()
    print(f"accuracy on {len(held_out)} held-out images: {(guess == held_out_labels).mean():.4f}")
    onnx.save(to_onnx(model), HERE / "lenet5.onnx")
    np.savez_compressed(
        HERE / "held_out.npz",
        images=held_out,
        labels=held_out_labels,
        calibration=seen[:64],  # for the binary points of fixed-point targets
    )


if __name__ == "__main__":
    main()
