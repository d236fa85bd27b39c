"""A function of one number that is defined in one place computes on every kind of target."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

TARGETS = {
    "cpu": 1e-5,
    "sunway": 1e-5,
    "ascend910": 5e-3,
    "cambricon-x": 1e-2,
    "cambricon": 1e-2,
    "shidiannao": 1e-2,
    "zu2": 6e-2,
    "machine.toml": 1e-2,
}
"""Largest error of each, of the largest result: that of its numbers."""

ON_THE_HOST = ("ascend910", "zu2")
"""Targets whose vectors or sums have no such function: it goes where C or Python computes it."""

SCRIPT = '''
import importlib.util, json, sys, types
from pathlib import Path
import numpy as np

name = "tilewright.numerics.operators"
path = Path(importlib.util.find_spec(name).origin)
text = path.read_text()
first = "FUNCTIONS: dict[str, Function] = {\\n"
assert text.count(first) == 1
row = """ "swollen": Function("a + scale * F(tanh)(a)", _ACTIVATION, {"scale": 0.5}),\\n"""
sys.modules[name] = module = types.ModuleType(name)
exec(compile(text.replace(first, first + "   " + row), str(path), "exec"), vars(module))
import tilewright.numerics
tilewright.numerics.operators = module

from tilewright.numerics import tables
tables.FUNCTIONS["swollen"] = lambda x, scale: x + scale * np.tanh(x)

import tilewright
from tilewright.frontends.onnx import operators
operators.RULES["Softsign"] = lambda at: at.emit("swollen", at.tensor(0), scale=0.75)

folder, targets = Path(sys.argv[1]), sys.argv[2:]
x = np.load(folder / "x.npy")
results = {}
for target in targets:
    path = folder / target if target.endswith(".toml") else target
    executable = tilewright.compile(folder / "model.onnx", target=path)
    y = executable.run(x)["y"]
    check = executable.check(x, {"y": y})
    np.save(folder / f"{target}.npy", y)
    where = [k.on_host for k in executable.profile.kernels if "swollen" in " ".join(k.nodes)]
    results[target] = [check.passed, where]
print(json.dumps(results))
'''


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[object]]]:
    """The results of a network with the function on all targets, and what they say of it."""
    folder = tmp_path_factory.mktemp("function")
    random = np.random.default_rng(5)
    weights = {
        "w": random.normal(0, 0.2, (16, 8, 3, 3)).astype(np.float32),
        "v": random.normal(0, 0.3, (8, 16, 1, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "conv", pads=[1] * 4),
        helper.make_node("Softsign", ["a"], ["b"], "swollen"),
        helper.make_node("Conv", ["b", "v"], ["y"], "last"),
    ]
    shapes = {"x": (1, 8, 6, 6), "y": (1, 8, 6, 6)}
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items())
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "net", [x], [y], constants)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        folder / "model.onnx",
    )
    np.save(folder / "x.npy", random.normal(0, 1, shapes["x"]).astype(np.float32))
    machine = Path("examples/machines/small-npu.toml").read_text()
    listed = '["sigmoid", "tanh", "hard_swish"]'
    assert listed in machine
    (folder / "machine.toml").write_text(machine.replace(listed, '["table"]'))
    command = [sys.executable, "-c", SCRIPT, str(folder), *TARGETS]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr[-3000:]
    return folder, json.loads(said.stdout.splitlines()[-1])


def expected(folder: Path) -> np.ndarray:
    """The network by NumPy, in float64."""
    model = onnx.load(folder / "model.onnx")
    w, v = (numpy_helper.to_array(item).astype(np.float64) for item in model.graph.initializer)
    x = np.pad(np.load(folder / "x.npy").astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    a = np.einsum("nchwij,ocij->nohw", windows, w)
    return np.einsum("nchw,oc->nohw", a + 0.75 * np.tanh(a), v[:, :, 0, 0])


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_a_function_of_one_definition_runs(
    target: str, ran: tuple[Path, dict[str, list[object]]]
) -> None:
    folder, results = ran
    y, exact = np.load(folder / f"{target}.npy"), expected(folder)
    assert np.abs(y - exact).max() <= TARGETS[target] * np.abs(exact).max()
    passed, on_host = results[target]
    assert passed and on_host == [target in ON_THE_HOST]
