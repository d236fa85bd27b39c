"""A small network of PyTorch: compiled to a package, then run by ``torch.compile``.

Run it from the repository, with the extra ``torch`` installed:
``python examples/pytorch/classify.py``. It prints how far both lie from PyTorch's own results.
"""

from typing import Any

import torch

import tilewright
import tilewright.integrations.torch


class Classifier(torch.nn.Module):
    """Two convolutions, an average over the image, and a score for each of ten classes."""

    def __init__(self) -> None:
        super().__init__()
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 3, stride=2, padding=1),
            torch.nn.BatchNorm2d(16),
            torch.nn.ReLU(),
            torch.nn.Conv2d(16, 32, 3, stride=2, padding=1),
            torch.nn.ReLU(),
        )
        self.head = torch.nn.Linear(32, 10)

    def forward(self, image: Any) -> Any:
        """Scores [batch, 10] of images [batch, 3, height, width]."""
        return {"scores": self.head(self.features(image).mean((2, 3)))}


def main() -> None:
    """Compile the network both ways and compare the scores."""
    torch.manual_seed(0)
    model = Classifier().eval()
    image = torch.randn(1, 3, 32, 32)
    with torch.inference_mode():
        wanted = model(image)["scores"]

    executable = tilewright.compile(model, example_inputs=image)
    scores = torch.from_numpy(executable.run({"image": image.numpy()})["scores"])
    print(f"package: off by {difference(scores, wanted):.0e} of the largest score")

    compiled = torch.compile(model, backend="tilewright")
    with torch.inference_mode():
        scores = compiled(image)["scores"]
    print(f"backend: off by {difference(scores, wanted):.0e} of the largest score")
    for graph in tilewright.integrations.torch.graphs():
        left = "; ".join(map(str, graph.problems)) or "none of it left to PyTorch"
        print(f"{graph.name}: {graph.operations} operations, {graph.runs} run, {left}")


def difference(found: Any, wanted: Any) -> float:
    """The largest error, relative to the largest wanted value."""
    return float((found - wanted).abs().max() / wanted.abs().max())


if __name__ == "__main__":
    main()
