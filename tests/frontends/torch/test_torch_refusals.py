"""What PyTorch's modules cannot be, said in one refusal and without a traceback."""

from collections.abc import Callable
from typing import Any

import pytest

import tilewright
from tests.frontends.torch.modules import TORCH_WARNS, torch
from tilewright.errors import TilewrightError

nn = torch.nn

pytestmark = TORCH_WARNS


def module_of(function: Callable[..., Any]) -> Any:
    """A module in evaluation mode that computes a function."""

    class Function(nn.Module):
        def forward(self, x: Any) -> Any:
            return function(x)

    return Function().eval()


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        self.count.add_(1)
        return x + self.count


def refused(module: Any, *codes: str, **options: Any) -> str:
    options.setdefault("example_inputs", torch.randn(2, 4))
    with pytest.raises(TilewrightError) as caught:
        tilewright.compile(module, **options)
    assert [problem.code for problem in caught.value.problems] == list(codes)
    assert "Traceback" not in str(caught.value)
    assert all("\n" not in str(problem) for problem in caught.value.problems)
    return str(caught.value)


def test_training_mode() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout()).eval()
    module[1].train()
    assert "'1'" in refused(module, "torch-training")


def test_example_inputs() -> None:
    module = nn.Linear(4, 4).eval()
    refused(module, "torch-example-inputs", example_inputs=None)
    refused(module, "torch-example-inputs", example_inputs=3)
    refused("model.onnx", "torch-example-inputs")
    refused(3, "model-format")
    refused(module, "model-weights", weights="model.caffemodel")


def test_arguments_that_do_not_fit(capfd: pytest.CaptureFixture[str]) -> None:
    module = nn.Linear(4, 4).eval()
    assert "[3, 3]" in refused(module, "torch-export", example_inputs=torch.randn(3, 3))
    refused(module, "torch-export", example_inputs={"y": torch.randn(2, 4)})
    refused(module, "torch-export", example_inputs=(torch.randn(2, 4),) * 2)
    assert capfd.readouterr().err == ""


def test_control_flow_that_depends_on_values(capfd: pytest.CaptureFixture[str]) -> None:
    message = refused(module_of(lambda x: x if x.sum() > 0 else -x), "torch-export")
    assert "data-dependent" in message
    assert capfd.readouterr().err == ""


def test_operations_without_an_onnx_form() -> None:
    assert "svd" in refused(module_of(lambda x: torch.linalg.svd(x)[1]), "torch-onnx")


def test_operators_that_the_importer_refuses() -> None:
    refused(module_of(lambda x: x + torch.rand(2, 4)), "onnx-unsupported-operator")


def test_modules_with_state() -> None:
    assert "'count'" in refused(Counter().eval(), "torch-mutation")
    refused(module_of(lambda x: x.t().add_(1)), "torch-mutation")
    refused(module_of(lambda x: x.add_(1)), "torch-mutation")


def test_outputs_that_are_no_tensors() -> None:
    assert "4" in refused(module_of(lambda x: (x + 1, 4)), "torch-output")


def test_complex_numbers() -> None:
    refused(module_of(lambda x: x.to(torch.complex64) * 1j), "torch-tensor")


def test_scripted_modules() -> None:
    refused(torch.jit.trace(nn.Linear(4, 4).eval(), torch.randn(2, 4)), "torch-export")
