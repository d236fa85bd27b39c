"""Modules of PyTorch come in through the ONNX importer, under their own names."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.frontends.torch.modules import TORCH_WARNS, assert_same, torch
from tilewright.errors import TilewrightError
from tilewright.frontends import load
from tilewright.frontends.torch.tensors import array_of, tensor_of
from tilewright.runtime.cache import Cache

nn = torch.nn

pytestmark = TORCH_WARNS


class Answers(nn.Module):
    """Returns every kind of output that is a tensor, in a tree."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Any, double: bool = False, offset: int = 3) -> Any:
        hidden = self.linear(x) + offset
        if double:
            hidden = 2 * hidden
        return {"first": hidden, "more": (hidden, x, None), "weight": self.linear.weight}


def answers() -> Any:
    torch.manual_seed(0)
    return Answers().eval()


def test_names_are_those_of_arguments_and_keys() -> None:
    executable = tilewright.compile(answers(), example_inputs=(torch.zeros(2, 4), True, 5))
    assert [info.name for info in executable.inputs] == ["x"]
    assert [info.name for info in executable.outputs] == ["first", "more_0", "more_1", "weight"]


def test_values_that_are_no_tensors_are_fixed() -> None:
    module, x = answers(), torch.randn(2, 4)
    executable = tilewright.compile(module, example_inputs={"x": x, "double": True, "offset": 5})
    found = executable.run({"x": x.numpy()})
    wanted = module(x, True, 5)
    for name, tensor in {**wanted, "more_0": wanted["first"], "more_1": x}.items():
        if name != "more":
            np.testing.assert_allclose(found[name], tensor.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize(
    "wrap", [lambda x: x, lambda x: (x,), lambda x: [x], lambda x: {"input": x}]
)
def test_example_inputs_in_every_form(wrap: Callable[[Any], Any]) -> None:
    module = nn.Linear(3, 2).eval()
    x = torch.randn(4, 3)
    executable = tilewright.compile(module, example_inputs=wrap(x))
    assert [info.name for info in executable.outputs] == ["output"]
    assert_same(executable, module, {"input": x}, {"input": torch.randn(4, 3)})


def test_inputs_inside_containers_and_unused_ones() -> None:
    class Nested(nn.Module):
        def forward(self, parts: Any, unused: Any) -> Any:
            return parts["a"] - parts["b"][0]

    x, y = torch.randn(2, 3), torch.randn(2, 3)
    inputs = ({"a": x, "b": [y]}, torch.zeros(5))
    executable = tilewright.compile(Nested().eval(), example_inputs=inputs)
    names = [info.name for info in executable.inputs]
    assert names == ["parts_a", "parts_b_0", "unused"]
    arrays = dict(zip(names, (x.numpy(), y.numpy(), np.zeros(5, np.float32)), strict=True))
    np.testing.assert_array_equal(executable.run(arrays)["output"], (x - y).numpy())


def test_integers_and_booleans_are_exact() -> None:
    class Integers(nn.Module):
        def forward(self, x: Any, mask: Any) -> Any:
            return torch.where(mask, x * 3 - 7, x // 2), mask.sum(), x.argmax(1)

    x = torch.randint(-100, 100, (4, 6))
    mask = torch.rand(4, 6) > 0.5
    executable = tilewright.compile(Integers().eval(), example_inputs=(x, mask))
    found = executable.run({"x": x.numpy(), "mask": mask.numpy()})
    for left, right in zip(found.values(), Integers()(x, mask), strict=True):
        assert left.dtype == right.numpy().dtype
        np.testing.assert_array_equal(left, right.numpy())


def test_exported_programs_and_compiled_modules_are_modules_too() -> None:
    module, x = nn.Linear(3, 2).eval(), torch.randn(4, 3)
    program = torch.export.export(module, (x,))
    for model, inputs in ((program, None), (torch.compile(module), x)):
        executable = tilewright.compile(model, example_inputs=inputs)
        assert_same(executable, module, {"input": x})


def test_the_network_keeps_the_parameters_of_its_import() -> None:
    module, x = nn.Linear(3, 2).eval(), torch.randn(4, 3)
    imported = load(module, example_inputs=x)
    wanted = module(x).detach().numpy()
    with torch.no_grad():
        module.weight.add_(1)
    changed = load(module, example_inputs=x)
    assert imported.digest != changed.digest
    assert not np.allclose(wanted, module(x).detach().numpy())
    found = tilewright.compile(imported).run({"input": x.numpy()})["output"]
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_two_imports_are_equal() -> None:
    module, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval(), torch.randn(1, 3, 8, 8)
    first, second = (load(module, example_inputs=x) for _ in range(2))
    assert first.digest == second.digest
    assert str(first.module) == str(second.module)


def test_shapes_bind_what_dynamic_shapes_leave_free() -> None:
    module = nn.Linear(3, 2).eval()
    executable = tilewright.compile(
        module, example_inputs=torch.randn(4, 3), dynamic_shapes=({0: "batch"},),
        shapes={"input": (7, 3)},
    )  # fmt: skip
    assert_same(executable, module, {"input": torch.randn(7, 3)})


def test_free_dims_are_specialised_when_first_used(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Flatten(), nn.LayerNorm(4)).eval()
    executable = tilewright.compile(
        module, example_inputs=torch.randn(4, 3), dynamic_shapes=({0: "batch"},),
        cache=Cache(tmp_path / "cache"),
    )  # fmt: skip
    assert [info.shape for info in executable.inputs] == [("batch", 3)]
    assert list(executable.free) == ["batch"]
    for rows in (4, 1, 6):
        assert_same(executable, module, {"input": torch.randn(rows, 3)})


def test_bounds_of_free_dims_hold(tmp_path: Path) -> None:
    batch = torch.export.Dim("batch", min=2, max=6)
    length = torch.export.Dim("length", min=3)
    options: dict[str, Any] = {
        "example_inputs": (torch.randn(4, 5, 3), torch.randn(4, 3)),
        "dynamic_shapes": ({0: batch, 1: length}, {0: batch}),
        "cache": Cache(tmp_path / "cache"),
    }

    class Both(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return torch.relu(x).sum(1) * y

    both = Both().eval()
    executable = tilewright.compile(both, **options)
    free = {"batch": tilewright.Bounds(2, 6), "length": tilewright.Bounds(3)}
    assert executable.free == free
    for rows, words in ((2, 3), (6, 9)):
        assert_same(executable, both, {"x": torch.randn(rows, words, 3), "y": torch.randn(rows, 3)})
    for rows, words in ((1, 3), (7, 3), (4, 2)):
        with pytest.raises(TilewrightError, match="shape-bounds"):
            executable.run({"x": np.zeros((rows, words, 3), "f4"), "y": np.zeros((rows, 3), "f4")})
    for size, code in ((7, "shape-bounds"), ("7..9", "shape-conflict")):
        with pytest.raises(TilewrightError, match=code):
            tilewright.compile(both, **options, shapes={"batch": size, "length": 4})
    narrower = tilewright.compile(both, **options, shapes={"batch": "4..9", "length": 4})
    assert narrower.free == {"batch": tilewright.Bounds(4, 6)}


def test_changes_of_a_copy_are_no_changes() -> None:
    class Careful(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.relu_(x.t().clone()), x.reshape(3, 2, 2).permute(2, 0, 1).clone().add_(1)

    x = torch.randn(4, 3)
    assert_same(tilewright.compile(Careful().eval(), example_inputs=x), Careful(), {"x": x})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.bool])
def test_tensors_become_arrays_and_come_back(dtype: Any) -> None:
    tensor = (torch.arange(12).reshape(3, 4) - 5).to(dtype)
    for view in (tensor, tensor.t(), tensor[::2, 1:3], tensor[0, 0]):
        array = array_of(view)
        assert array.shape == tuple(view.shape)
        assert array.flags.c_contiguous
        assert torch.equal(tensor_of(array.copy()), view)


def test_an_example_may_stand_in_the_place_of_the_target() -> None:
    module, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU()).eval(), torch.randn(2, 3)
    (found,) = tilewright.compile(module, x).run(x).values()
    with torch.no_grad():
        np.testing.assert_allclose(found, module(x).numpy(), rtol=1e-5, atol=1e-6)
