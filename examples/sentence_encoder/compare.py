"""Compare sentences by the MiniLM encoder on the CPU, in float32 and in int8, with PyTorch's own.

    python examples/sentence_encoder/export.py DIRECTORY     (see there what it needs)
    python examples/sentence_encoder/compare.py DIRECTORY    (needs Tilewright alone)

In int8 the feed-forward products stay float32: `tilewright quantise` puts them first, because a few
channels of what they read are far larger than all others.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import tilewright
from tilewright.frontends import Imported
from tilewright.graph.dialect import network_of
from tilewright.graph.operations import Operation
from tilewright.types import shape_of

ALLOWED = {"float32": 0.001, "int8": 0.02}
"""How far similarities may be from PyTorch's."""

HIDDEN, INNER = 384, 1536
"""Width of the encoder, and of its feed-forward layers."""


def feed_forward(model: Imported) -> list[str]:
    """The nodes of the products to and from the inner width."""
    return [
        op.node_name
        for op in network_of(model.module).block.ops
        if isinstance(op, Operation) and op.operation == "matmul"
        if sorted(shape_of(op.inputs[1])) == [HIDDEN, INNER]
    ]


def similarities(embeddings: np.ndarray) -> np.ndarray:
    """Cosines of pairs that follow one another."""
    return (embeddings[0::2] * embeddings[1::2]).sum(axis=1)


def embed(numbers: str, directory: Path, data: dict[str, np.ndarray]) -> np.ndarray:
    """The embeddings of the compared sentences by the encoder in a number format."""
    model = tilewright.load(directory / "encoder.onnx")
    names = ("input_ids", "attention_mask")
    executable = tilewright.compile(
        model,
        "cpu",
        numbers=numbers,
        calibration={name: data[f"calibration_{name}"] for name in names},
        keep_float=feed_forward(model) if numbers == "int8" else (),
    )
    return np.concatenate(
        [
            executable.run({name: data[name][i : i + 1] for name in names})["sentence"]
            for i in range(len(data["input_ids"]))
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    with np.load(directory / "sentences.npz", allow_pickle=False) as file:
        data = {name: file[name] for name in file.files}
    wanted = similarities(data["embeddings"])
    print("PyTorch ", " ".join(f"{value:8.4f}" for value in wanted))
    for numbers, allowed in ALLOWED.items():
        found = similarities(embed(numbers, directory, data))
        worst = float(np.abs(found - wanted).max())
        print(f"{numbers:8}", " ".join(f"{value:8.4f}" for value in found), f" off by {worst:.1e}")
        if worst > allowed:
            raise SystemExit(f"{numbers} is off by more than {allowed}")


if __name__ == "__main__":
    main()
