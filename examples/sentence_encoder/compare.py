"""Compare sentences by the MiniLM encoder on the CPU, in float32 and in int8, with PyTorch's own.

    python examples/sentence_encoder/export.py DIRECTORY     (see there what it needs)
    python examples/sentence_encoder/compare.py DIRECTORY    (needs Tilewright alone)

In int8 all matrix products with weights compute in integers. A few channels of what they read are
far larger than all others, so these are equalised first; the last line shows int8 without that.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import tilewright

ALLOWED = {"float32": 0.001, "int8": 0.02}
"""How far similarities may be from PyTorch's."""


def similarities(embeddings: np.ndarray) -> np.ndarray:
    """Cosines of pairs that follow one another."""
    return (embeddings[0::2] * embeddings[1::2]).sum(axis=1)


def embed(
    numbers: str, directory: Path, data: dict[str, np.ndarray], equalise: bool | None = None
) -> np.ndarray:
    """The embeddings of the compared sentences by the encoder in a number format."""
    model = tilewright.load(directory / "encoder.onnx")
    names = ("input_ids", "attention_mask")
    executable = tilewright.compile(
        model,
        "cpu",
        numbers=numbers,
        calibration={name: data[f"calibration_{name}"] for name in names},
        equalise=equalise,
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
    plain = similarities(embed("int8", directory, data, equalise=False))
    worst = float(np.abs(plain - wanted).max())
    print("plain   ", " ".join(f"{value:8.4f}" for value in plain), f" off by {worst:.1e}")


if __name__ == "__main__":
    main()
