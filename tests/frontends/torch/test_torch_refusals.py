"""What PyTorch's modules cannot be, said in one refusal and without a traceback."""

from collections.abc import Callable
from typing import Any

import pytest

import tilewright
from tests.frontends.torch.modules import TORCH_WARNS, assert_close, torch
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


@pytest.mark.parametrize("normalise", ["batch_norm", "instance_norm"])
def test_updates_of_running_statistics(normalise: str) -> None:
    class Updating(nn.Module):
        def forward(self, x: Any) -> Any:
            statistics = torch.zeros(4), torch.ones(4)
            return getattr(nn.functional, normalise)(x, *statistics, None, None, True)

    message = refused(Updating().eval(), "torch-training", example_inputs=torch.randn(2, 4, 3))
    assert normalise in message


def test_normalising_by_the_batch_alone() -> None:
    module = nn.BatchNorm1d(4, track_running_stats=False).eval()
    x = torch.randn(3, 4) * 2 + 5
    found = tilewright.compile(module, example_inputs=x).run({"input": x.numpy()})
    assert_close(found["output"], module(x).detach())


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
    refused(module, "model-weights", caffemodel="model.caffemodel")


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
