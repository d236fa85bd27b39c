"""Train LeNet-5 on scikit-learn's digits on the simulated ACC-C, in 16-bit fixed point.

Every batch is one run of lenet5_train.hlal; this script only feeds images and keeps the weights.
Needs scikit-learn:  python examples/hlal/train_lenet5.py [epochs]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from tilewright.targets.cambricon.hlal.assemble import assemble
from tilewright.targets.cambricon.hlal.machines import machine_named
from tilewright.targets.cambricon.hlal.run import execute, sizes_of

HERE = Path(__file__).parent
BATCH = 20
FANS = {1: 25, 2: 150, 3: 400, 4: 120, 5: 84}


def digits() -> list[np.ndarray]:
    """Images (n, 32, 32) from 0 to 1 to train on and held out (360), and their labels."""
    found = load_digits()
    images = found.images.repeat(4, axis=1).repeat(4, axis=2) / 16
    return train_test_split(
        images, found.target, test_size=360, random_state=0, stratify=found.target
    )


def main() -> None:
    epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 6
    machine = machine_named("cambricon")
    source = HERE / "lenet5_train.hlal"
    program = assemble(source.read_text(), source.name, sizes_of(machine))
    print(f"{len(program.words)} instructions, {program.data.bytes:,} bytes of data")
    seen, held_out, labels, held_out_labels = digits()
    random = np.random.default_rng(0)
    shapes = {array.name: array.shape for array in program.data.arrays}
    state: dict[str, np.ndarray] = {}
    for layer, fan in FANS.items():
        weights = random.standard_normal(shapes[f"w{layer}"]) * np.sqrt(2 / fan)
        state[f"w{layer}"] = state[f"m{layer}"] = weights
    kept = [name for name in shapes if name[0] in "wmvbnu" and name[1:].isdigit()]
    cycles = 0.0
    begin = time.perf_counter()
    for epoch in range(epochs):
        order = random.permutation(len(seen))
        right = 0
        for part in np.split(order[: len(order) // BATCH * BATCH], len(order) // BATCH):
            target = np.eye(10)[labels[part]]
            found = execute(program, machine, {**state, "image": seen[part], "target": target})
            state = {name: found.outputs[name] for name in kept}
            guess = found.outputs["probability"].reshape(BATCH, 10).argmax(1)
            right += int((guess == labels[part]).sum())
            cycles += found.result.cycles
        accuracy = right / (len(order) // BATCH * BATCH)
        print(
            f"epoch {epoch + 1}: {accuracy:.4f} of the training images were right, "
            f"{held_out_accuracy(program, machine, state, held_out, held_out_labels):.4f} of the "
            f"held-out ones are; {cycles / machine.clock_hz * 1e3:,.1f} ms on ACC-C, "
            f"{time.perf_counter() - begin:.0f} s here",
            flush=True,
        )


def held_out_accuracy(program, machine, state, images, labels) -> float:
    """The same program says what the images are; the weights that it makes are thrown away."""
    right = 0
    for first in range(0, len(images), BATCH):
        part = slice(first, first + BATCH)
        inputs = {**state, "image": images[part], "target": np.zeros((BATCH, 10))}
        found = execute(program, machine, inputs)
        guess = found.outputs["probability"].reshape(BATCH, 10).argmax(1)
        right += int((guess == labels[part]).sum())
    return right / len(images)


if __name__ == "__main__":
    main()
