"""Without torch, what needs it says so."""

import sys

import pytest

from tilewright.errors import TilewrightError
from tilewright.frontends.torch import OpenedTorch


class Module:
    """Stands for a module of a torch that is gone."""

    def named_buffers(self) -> list[tuple[str, object]]:
        return []


def test_absent_torch_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(TilewrightError) as caught:
        OpenedTorch(Module())
    (problem,) = caught.value.problems
    assert problem.code == "torch-missing"
    assert "tilewright[torch]" in problem.help


def test_absent_exporter_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", sys)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(TilewrightError, match="onnxscript"):
        OpenedTorch(Module())
