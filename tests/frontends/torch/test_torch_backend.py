"""``torch.compile(model, backend="tilewright")`` gives what PyTorch gives, or says why not."""

import copy
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest

import tilewright.integrations.torch
from tests.frontends.torch.modules import TORCH_WARNS, assert_close, torch
from tilewright.errors import TilewrightError

nn = torch.nn

pytestmark = TORCH_WARNS


@pytest.fixture(autouse=True)
def fresh() -> Generator[None]:
    """No graphs of other tests; weights by seed."""
    torch.compiler.reset()
    tilewright.integrations.torch.forget()
    torch.manual_seed(0)
    yield
    torch.compiler.reset()


def small() -> Any:
    parts = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)]
    return nn.Sequential(*parts).eval()


def assert_same(compiled: Any, module: Any, *inputs: Any) -> None:
    assert_close(compiled(*inputs).detach(), module(*inputs).detach())


def compiled_graphs() -> list[int]:
    assert [item.problems for item in tilewright.integrations.torch.fallbacks()] == []
    return [item.compiled for item in tilewright.integrations.torch.graphs()]


def test_whole_graphs_run_as_packages() -> None:
    module = small()
    compiled = torch.compile(module, backend="tilewright")
    with torch.no_grad():
        for _ in range(2):
            assert_same(compiled, module, torch.randn(2, 3, 8, 8))
    assert compiled_graphs() == [1]
    assert [item.runs for item in tilewright.integrations.torch.graphs()] == [2]


def test_other_shapes_and_strides() -> None:
    module = nn.Sequential(nn.Linear(6, 4), nn.Tanh()).eval()
    compiled = torch.compile(module, backend="tilewright")
    with torch.inference_mode():
        for rows in (2, 3, 5, 3):
            assert_same(compiled, module, torch.randn(rows, 6))
        assert_same(compiled, module, torch.randn(6, 3).t())
    assert sum(compiled_graphs()) <= 5


class Texts(nn.Module):
    """Attention over texts: results of several strides, and a size among them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.heads = nn.Linear(6, 16), nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16)

    def forward(self, x: Any) -> Any:
        hidden = self.norm(torch.relu(self.first(x)))
        batch, length, _ = hidden.shape
        q = self.heads(hidden).view(batch, length, 2, 8).transpose(1, 2)
        mixed = torch.softmax(q @ q.transpose(-1, -2), -1) @ q
        return mixed.transpose(1, 2).reshape(batch, length, 16), length * 2, hidden.transpose(0, 1)


@pytest.mark.parametrize("target", ["cpu", "sunway"])
def test_free_sizes_are_compiled_once(target: str) -> None:
    """And again for twice as many, where a size is larger than those that there was room for."""
    module = Texts().eval()
    compiled = torch.compile(module, backend="tilewright", dynamic=True, options={"target": target})
    counts: list[int] = []
    with torch.inference_mode():
        for batch, length in ((2, 5), (3, 7), (8, 20), (2, 2), (9, 3), (4, 32)):
            x = torch.randn(batch, length, 6)
            found, wanted = compiled(x), module(x)
            assert found[1] == wanted[1]
            for one, other in zip(found[::2], wanted[::2], strict=True):
                assert_close(one, other)
                assert one.stride() == other.stride()
            counts.append(max(compiled_graphs()))
    assert counts == [1, 1, 1, 1, 2, 2]


def test_bounds_of_a_free_size_are_kept() -> None:
    """Those that the user states are planned for at once."""
    module = nn.Sequential(nn.Linear(6, 4), nn.Softmax(0)).eval()
    compiled = torch.compile(module, backend="tilewright")
    with torch.inference_mode():
        for rows in (3, 2, 40):
            x = torch.randn(rows, 6)
            torch._dynamo.mark_dynamic(x, 0, min=2, max=40)
            assert_same(compiled, module, x)
    assert compiled_graphs() == [1]


def test_sizes_that_change_what_is_computed_are_compiled_each() -> None:
    """Rows are reversed, which no plan for several sizes does."""

    class Rows(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cat([x, x], 0).flip(0)

    compiled = torch.compile(Rows().eval(), backend="tilewright", dynamic=True)
    with torch.inference_mode():
        for rows in (3, 5, 3):
            assert_same(compiled, Rows(), torch.randn(rows, 6))


def test_outputs_in_trees_with_numbers_views_and_strides() -> None:
    class Several(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            hidden = torch.relu(x)
            return {"a": hidden.t(), "b": (hidden + y, x.shape[0] * 2, None), "c": x}

    x, y = torch.randn(3, 4), torch.randn(3, 4)
    compiled = torch.compile(Several().eval(), backend="tilewright")
    with torch.no_grad():
        found, wanted = compiled(x, y), Several()(x, y)
    assert_close(found["a"], wanted["a"])
    assert found["a"].stride() == wanted["a"].stride()
    assert_close(found["b"][0], wanted["b"][0])
    assert found["b"][1:] == (6, None)
    assert found["c"] is x
    assert compiled_graphs() == [1]


def test_expanded_outputs() -> None:
    def expanded(x: Any) -> Any:
        return torch.relu(x).sum(1, keepdim=True).expand(3, 4)

    x = torch.randn(3, 5)
    found = torch.compile(expanded, backend="tilewright")(x)
    assert_close(found, expanded(x))
    assert found.stride() == expanded(x).stride()
    assert compiled_graphs() == [1]


def test_integer_inputs_are_exact() -> None:
    def integers(x: Any, y: Any) -> Any:
        return torch.where(x > y, x * 3, y - x), (x + y).sum(1)

    x, y = (torch.randint(-50, 50, (4, 5)) for _ in range(2))
    compiled = torch.compile(integers, backend="tilewright")
    for found, wanted in zip(compiled(x, y), integers(x, y), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert compiled_graphs() == [1]


def test_inputs_that_are_changed_are_changed() -> None:
    def change(x: Any) -> Any:
        x.mul_(2)
        return x + 1

    x = torch.randn(3, 4)
    wanted = 2 * x
    found = torch.compile(change, backend="tilewright")(x)
    assert_close(x, wanted)
    assert_close(found, wanted + 1)
    assert compiled_graphs() == [1]


@pytest.mark.parametrize("way", ["in place", "load_state_dict", "replaced", "buffer"])
def test_changed_parameters_are_seen(way: str) -> None:
    module = small()
    compiled = torch.compile(module, backend="tilewright")
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        before = compiled(x).clone()
        if way == "in place":
            module[4].weight.mul_(-1)
        elif way == "load_state_dict":
            module.load_state_dict({k: v * 0.5 for k, v in module.state_dict().items()})
        elif way == "replaced":
            module[4].weight = nn.Parameter(torch.randn(5, 144))
        else:
            module[1].running_mean.add_(1)
        assert_same(compiled, module, x)
        assert not torch.allclose(before, compiled(x))
    assert max(compiled_graphs()) >= 1


def test_writes_past_the_versions_are_seen_by_values() -> None:
    module = nn.Linear(4, 3).eval()
    compiled = torch.compile(module, backend="tilewright", options={"parameters": "values"})
    x = torch.randn(2, 4)
    with torch.no_grad():
        assert_same(compiled, module, x)
        module.weight.data.add_(1)
        assert_same(compiled, module, x)
    assert compiled_graphs() == [2]


def test_parameters_that_keep_changing_are_left_to_pytorch() -> None:
    module = nn.Linear(4, 3).eval()
    compiled = torch.compile(module, backend="tilewright")
    with torch.no_grad():
        for _ in range(6):
            assert_same(compiled, module, torch.randn(2, 4))
            module.weight.add_(1)
    (left,) = tilewright.integrations.torch.fallbacks()
    assert [problem.code for problem in left.problems] == ["torch-parameters"]


def test_gradients_are_left_to_pytorch(caplog: pytest.LogCaptureFixture) -> None:
    module = nn.Linear(4, 3).eval()
    compiled = torch.compile(module, backend="tilewright")
    x = torch.randn(2, 4)
    with caplog.at_level("WARNING", "tilewright.integrations.torch"):
        compiled(x).sum().backward()
    assert_close(module.weight.grad, x.sum(0).expand(3, 4))
    (left,) = tilewright.integrations.torch.fallbacks()
    assert [problem.code for problem in left.problems] == ["torch-gradients"]
    assert "torch-gradients" in caplog.text


@pytest.mark.parametrize(
    ("module", "code"),
    [
        (nn.BatchNorm1d(3), "torch-training"),
        (nn.Dropout(), "onnx-attribute"),
        (nn.ELU(inplace=True), ""),
    ],
)
def test_training_mode_is_left_to_pytorch_where_it_matters(module: Any, code: str) -> None:
    x = torch.randn(4, 3) * 2 + 5
    with torch.no_grad():
        torch.manual_seed(1)
        wanted = copy.deepcopy(module).train()(x.clone())
        torch.manual_seed(1)
        assert_close(torch.compile(module.train(), backend="tilewright")(x.clone()), wanted)
    left = tilewright.integrations.torch.fallbacks()
    codes = [problem.code for item in left for problem in item.problems]
    assert codes == [code] * bool(code)


def test_what_is_refused_is_left_to_pytorch() -> None:
    def singular(x: Any) -> Any:
        return torch.linalg.svdvals(x) + 1

    x = torch.randn(4, 4)
    compiled = torch.compile(singular, backend="tilewright")
    for _ in range(2):
        assert_close(compiled(x), singular(x))
    (left,) = tilewright.integrations.torch.fallbacks()
    assert left.problems[0].code in ("torch-onnx", "torch-export")
    assert left.runs == 0


def test_a_graph_break_makes_two_graphs() -> None:
    def broken(x: Any) -> Any:
        y = torch.relu(x) * 2
        torch._dynamo.graph_break()
        return y - x

    x = torch.randn(3, 4)
    assert_close(torch.compile(broken, backend="tilewright")(x), broken(x))
    assert compiled_graphs() == [1, 1]


def test_options() -> None:
    module = nn.Linear(4, 3).eval()
    x = torch.randn(2, 4)
    for options in ({"targt": "cpu"}, {"parameters": "never"}):
        compiled = torch.compile(module, backend="tilewright", options=options)
        with torch.no_grad(), pytest.raises(Exception, match="torch-option"):
            compiled(x)
        torch.compiler.reset()
    tilewright.integrations.torch.forget()
    compiled = torch.compile(module, backend="tilewright", options={"target": "cambricon-x"})
    with torch.no_grad():
        found, wanted = compiled(x), module(x)
    assert compiled_graphs() == [1]
    assert 0 < (found - wanted).abs().max() < 1e-2  # Fixed point rounds.


def test_executables_on_tensors() -> None:
    module = nn.Linear(4, 3).eval()
    x = torch.randn(2, 4)
    call = tilewright.integrations.torch.on_tensors(tilewright.compile(module, example_inputs=x))
    assert_close(call(x), module(x).detach())
    assert_close(call(input=x.t().contiguous().t()), module(x).detach())
    with pytest.raises(TilewrightError, match="input-"):
        call(x, x)
