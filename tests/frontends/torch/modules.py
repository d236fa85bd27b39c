"""What the tests of PyTorch share: torch itself, models of others, weights that matter."""

from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed: make test-frontends")
pytest.importorskip("onnxscript", reason="onnxscript is not installed: make test-frontends")

TORCH_WARNS = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
"""torch uses its own deprecated functions; what it warns of is not ours to change."""


def package(name: str) -> Any:
    """A package of models; the test is skipped where it is not installed."""
    _declare_torchvision()  # transformers imports it too.
    return pytest.importorskip(name, reason=f"{name} is not installed: make test-frontends")


def _declare_torchvision() -> None:
    """Declare two operations that torchvision adds from a library of its own.

    A build for graphics cards cannot load that library elsewhere, and then fails on import.
    """
    if hasattr(torch.ops.torchvision, "nms"):
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    arguments = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    for name in ("nms", "qnms"):
        library.define(name + arguments)
    _KEPT.append(library)


_KEPT: list[Any] = []


def seeded(module: Any, seed: int = 0) -> Any:
    """The module in evaluation mode, with weights under which every part shows in the outputs.

    Fresh modules often start with scales, class tokens or heads of zero, or outputs close to zero.
    """
    generator = torch.Generator().manual_seed(seed)
    norms = import_module("torch.nn.modules.batchnorm")._BatchNorm
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                fan_in = parameter[0].numel()
                parameter.copy_(noise * (1.5 / fan_in) ** 0.5)
            else:
                parameter.copy_(parameter.mean() + 0.1 * noise)
        for part in module.modules():
            if isinstance(part, norms):
                part.running_mean.copy_(0.1 * torch.randn(part.num_features, generator=generator))
                part.running_var.copy_(0.5 + torch.rand(part.num_features, generator=generator))
            if type(part).__name__ in ("CNBlock", "ConvNextLayer"):
                scale = getattr(part, "layer_scale", None)
                scale = getattr(part, "layer_scale_parameter", scale)
                scale.fill_(0.5)
    return module.eval()


def leaves(value: Any) -> list[Any]:
    """The tensors in what a module returned, in its order."""
    found = import_module("torch.utils._pytree").tree_leaves(value)
    return [item for item in found if isinstance(item, torch.Tensor)]


def assert_close(found: Any, wanted: Any, tolerance: float = 1e-4) -> None:
    """Equal within ``tolerance`` of the largest wanted magnitude; exactly for integers."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    if wanted.dtype.kind != "f":
        np.testing.assert_array_equal(found, wanted)
        return
    largest = float(np.abs(wanted).max(initial=0.0))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * largest + 1e-6)


def assert_same(executable: Any, module: Any, *samples: dict[str, Any]) -> None:
    """The executable gives what the module gives, on samples whose outputs differ."""
    results = []
    for sample in samples:
        found = executable.run({name: tensor.numpy() for name, tensor in sample.items()})
        with torch.no_grad():
            wanted = [tensor.numpy() for tensor in leaves(module(**sample))]
        assert len(found) == len(wanted)
        for left, right in zip(found.values(), wanted, strict=True):
            assert_close(left, right)
        results.append(wanted)
    for before, after in pairwise(results):
        changes = [
            np.abs(a - b).max() / np.abs(a).max() for a, b in zip(before, after, strict=True)
        ]
        assert max(changes) > 1e-2, "the outputs hardly depend on the inputs"
