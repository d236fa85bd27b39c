"""Networks on the core, bit for bit the graph's meaning, and packages that are damaged."""

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.end_to_end.end_to_end_models import image, lenet, network, run_checked

import tilewright
from tilewright.errors import TilewrightError
from tilewright.runtime import Executable
from tilewright.targets.base import find_target


class Net:
    """Builds an ONNX model node by node, with random weights."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(5)

    def tensor(self, array) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
        return name

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def conv(self, x: str, channels: int, outputs: int, kernel: int, then="Relu", **attributes):
        inputs = channels // attributes.get("group", 1)
        scale = (2 / (inputs * kernel * kernel)) ** 0.5
        weight = self.tensor(self.random.normal(0, scale, (outputs, inputs, kernel, kernel)))
        bias = self.tensor(self.random.normal(0, 0.1, outputs))
        attributes.setdefault("pads", [kernel // 2] * 4)
        y = self.op("Conv", x, weight, bias, kernel_shape=[kernel, kernel], **attributes)
        if then == "Clip":
            return self.op("Clip", y, self.tensor(0), self.tensor(6))
        return self.op(then, y) if then else y

    def model(self, y: str) -> onnx.ModelProto:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)
        out = helper.make_tensor_value_info(y, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "net", [x], [out], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        return model


def mixed() -> onnx.ModelProto:
    """Strides, a residual, siblings that are concatenated, a depthwise layer, pools, a product."""
    net = Net(1, 3, 26, 26)
    x = net.conv("x", 3, 20, 5, strides=[2, 2])
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    y = net.conv(net.conv(x, 20, 9, 1), 9, 20, 3, then="")
    x = net.op("Relu", net.op("Add", x, y))
    parts = [net.conv(x, 20, 13, 1), net.conv(x, 20, 8, 3)]
    x = net.op("Concat", *parts, axis=1)
    x = net.conv(x, 21, 21, 3, then="Clip", group=21, strides=[2, 2])
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    weight = net.tensor(net.random.normal(0, 0.3, (10, 21)))
    return net.model(net.op("Gemm", x, weight, net.tensor(np.arange(10) / 50), transB=1))


@pytest.fixture(scope="module")
def executable(tmp_path_factory):
    return run_checked(mixed(), "zu2", tmp_path_factory.mktemp("mixed"))


def test_a_network_of_all_kinds_runs_on_the_core(executable) -> None:
    hosts = [k.symbol for k in executable.profile.kernels if k.on_host and k.nodes]
    assert not hosts
    assert executable.profile.cycles > 0
    assert 0 < executable.summary()["efficiency"] <= 1


def test_packages_list_assemble_and_trace(executable, tmp_path: Path) -> None:
    package = tmp_path / "package"
    executable.save(package)
    loaded = Executable.load(package)
    target = find_target("zu2")
    program = next(package.rglob("program.bin"))
    text = target.listing(program.parent)
    assert text.count("; kernel ") == sum(not k.on_host for k in executable.profile.kernels)
    assert target.assemble(text, target.machine()) == program.read_bytes()
    trace = tmp_path / "trace.json"
    loaded.run({"x": np.zeros((1, 3, 26, 26), np.float32)}, trace=trace)
    events = json.loads(trace.read_text())["traceEvents"]
    assert {event.get("name") for event in events} >= {"load", "save", "conv", "elew"}


@pytest.mark.parametrize("damage", ["short", "opcode", "end", "core", "place"])
def test_damaged_packages_are_refused(executable, damage: str, tmp_path: Path) -> None:
    package = tmp_path / "package"
    executable.save(package)
    folder = next(package.rglob("program.bin")).parent
    words = (folder / "program.bin").read_bytes()
    target = "zu2"
    if damage == "short":
        words = words[: len(words) // 2]
    elif damage == "opcode":
        words = b"\xff" * 4 + words[4:]
    elif damage == "end":
        words = words[:-4]
    elif damage == "core":
        target = "dpu-b4096"
    else:
        text = (folder / "network.mlir").read_text()
        placed = [line for line in text.splitlines() if "graph.kernel" in line]
        other = re.sub(r", placement = .*\]\]\}", "}", placed[0])
        assert other != placed[0]
        (folder / "network.mlir").write_text(text.replace(placed[0], other))
    (folder / "program.bin").write_bytes(words)
    with pytest.raises(TilewrightError, match=r"package-invalid"):
        find_target(target).load(folder)


def test_what_the_core_cannot_do_runs_on_the_host(tmp_path: Path) -> None:
    net = Net(1, 8, 14, 14)
    x = net.conv("x", 8, 16, 3, pads=[2, 2, 2, 2], dilations=[2, 2])
    x = net.op("AveragePool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    x = net.conv(x, 16, 8, 1)
    executable = run_checked_loosely(net.model(x), tmp_path)
    reasons = executable.explain() if hasattr(executable, "explain") else ""
    hosts = {node for k in executable.profile.kernels if k.on_host for node in k.nodes}
    assert {"conv0", "averagepool2"} <= hosts and "conv3" not in hosts, reasons


def test_phases_of_a_transposed_convolution_are_saved_where_they_belong(tmp_path: Path) -> None:
    """Every second pixel of every second row; the slice of an odd result costs nothing."""
    net = Net(1, 8, 5, 6)
    weight = net.tensor(net.random.normal(0, 0.2, (8, 16, 3, 3)))
    x = net.op("ConvTranspose", "x", weight, strides=[2, 2], pads=[1] * 4)
    executable = run_checked(net.model(net.conv(net.op("Relu", x), 16, 4, 1)), "zu2", tmp_path)
    hosts = [k.symbol for k in executable.profile.kernels if k.on_host]
    assert len(hosts) == 2 and all("quantise" in symbol for symbol in hosts)
    executable.save(tmp_path / "package")
    folder = next((tmp_path / "package").rglob("program.bin")).parent
    kernels = find_target("zu2").listing(folder).split("; kernel ")[1:]
    phases = "".join(kernel for kernel in kernels if "convtranspose0" in kernel.splitlines()[0])
    saves = re.findall(r"^ *save .*length=(\d+), channel=(\d+), .*", phases, re.M)
    # 9 x 11 pixels of 16 channels, every one once.
    assert sum(int(length) * int(channels) for length, channels in saves) == 9 * 11 * 16
    assert len(re.findall(r"^ *save .*jump_write=32, ", phases, re.M)) == len(saves)


def run_checked_loosely(model: onnx.ModelProto, folder: Path):
    """Compile and check a network of which the host computes a part in float32."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    sample = {"x": np.random.default_rng(0).normal(size=(1, 8, 14, 14)).astype(np.float32)}
    executable = tilewright.compile(path, "zu2", calibration=[sample])
    assert executable.check(sample, executable.run(sample, check_races=True)).equal
    return executable


def test_other_banks_are_refused() -> None:
    with pytest.raises(TilewrightError, match=r"machine-capability.*memory.vb0.bytes"):
        tilewright.compile(lenet(), "zu2", values={"memory.vb0.bytes": 1 << 20})


@pytest.mark.slow
@pytest.mark.parametrize("target", ["zu2", "zu9", "dpu-b512", "dpu-b4096-isa0"])
def test_lenet(target: str, tmp_path: Path) -> None:
    executable = run_checked(lenet(), target, tmp_path)
    assert not [k.symbol for k in executable.profile.kernels if k.on_host and k.nodes]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["squeezenet"])
def test_networks_of_the_benchmarks(model: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(network(model, 64), path)
    sample = image(onnx.load(path))
    executable = tilewright.compile(path, "zu2", calibration=[sample])
    check = executable.check(sample, executable.run(sample, check_races=True))
    assert check.exact and check.equal
    assert not [k.symbol for k in executable.profile.kernels if k.on_host and k.nodes]


def test_leaky_slopes_near_26_256_stay_on_the_core(tmp_path: Path) -> None:
    net = Net(1, 5, 11, 9)
    x = net.conv("x", 5, 14, 3, then="")
    x = net.op("LeakyRelu", x, alpha=0.1)
    x = net.conv(x, 14, 6, 1, then="")
    model = net.model(net.op("LeakyRelu", x, alpha=0.1))
    executable = run_checked(model, "zu2", tmp_path)
    assert not [k.symbol for k in executable.profile.kernels if k.on_host and k.nodes]


def quantised(points: dict[str, int], scale: float = 1.0, zero: int = 0) -> onnx.ModelProto:
    """Two convolutions between pairs of QuantizeLinear and DequantizeLinear, as AMD writes them."""
    net = Net(1, 6, 12, 12)

    def pair(x: str, point: int) -> str:
        number = len(net.weights)
        net.weights.append(numpy_helper.from_array(np.float32(scale * 2.0**-point), f"s{number}"))
        net.weights.append(numpy_helper.from_array(np.int8(zero), f"z{number}"))
        q = net.op("QuantizeLinear", x, f"s{number}", f"z{number}")
        return net.op("DequantizeLinear", q, f"s{number}", f"z{number}")

    def constant(shape: tuple[int, ...], point: int) -> str:
        name = f"q{len(net.weights)}"
        values = net.random.integers(-128, 128, shape).astype(np.int8)
        net.weights.append(numpy_helper.from_array(values, name))
        net.weights.append(numpy_helper.from_array(np.float32(2.0**-point), f"{name}s"))
        net.weights.append(numpy_helper.from_array(np.int8(0), f"{name}z"))
        return net.op("DequantizeLinear", name, f"{name}s", f"{name}z")

    x = pair("x", points["x"])
    y = net.op("Conv", x, constant((9, 6, 3, 3), 9), constant((9,), 6), pads=[1, 1, 1, 1])
    y = pair(net.op("Relu", y), points["y"])
    z = net.op("Conv", y, constant((5, 9, 1, 1), 8), constant((5,), 5))
    return net.model(pair(z, points["z"]))


def points_of(executable) -> dict[str, int]:
    """Binary points of what the accelerator's computes make, by the last node."""
    from tilewright.graph.dialect import KernelOp, network_of
    from tilewright.ir.types import fraction_of

    return {
        compute[-1].node_name: fraction_of(compute[-1].result)
        for op in network_of(executable.graph).block.ops
        if isinstance(op, KernelOp) and not op.on_host
        for compute in op.computes
    }


@pytest.mark.parametrize("points", [{"x": 5, "y": 3, "z": 2}, {"x": 7, "y": 5, "z": 4}])
def test_a_quantised_model_keeps_its_points(points: dict[str, int], tmp_path: Path) -> None:
    import onnxruntime

    model = quantised(points)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    sample = {"x": np.random.default_rng(0).normal(0, 1, (1, 6, 12, 12)).astype(np.float32)}
    executable = tilewright.compile(path, "zu2")
    assert sorted(points_of(executable).values()) == sorted([points["y"], points["z"]])
    assert any("3 tensors keep" in note for note in executable.manifest.notes)
    outputs = executable.run(sample, check_races=True)
    assert executable.check(sample, outputs).exact
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (want,) = session.run(None, sample)
    (found,) = outputs.values()
    # ONNX rounds halves to even, the core upwards: results differ by one unit at most.
    units = np.abs(found - want) * 2.0 ** points["z"]
    assert units.max() <= 1 and (units == 0).mean() > 0.9 and np.std(want) > 0


def test_shifts_that_the_core_lacks_are_named(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(quantised({"x": 5, "y": 3, "z": 14}), path)
    notes = tilewright.compile(path, "zu2").manifest.notes
    assert any("states binary point 14 and is computed with 11" in note for note in notes), notes


@pytest.mark.parametrize(
    ("values", "reason"),
    [({"scale": 1.1}, "is no power of two"), ({"zero": 3}, "zero point is 3")],
)
def test_other_quantisers_are_named_and_run_on_the_host(values, reason, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(quantised({"x": 5, "y": 3, "z": 2}, **values), path)
    sample = {"x": np.random.default_rng(0).normal(0, 1, (1, 6, 12, 12)).astype(np.float32)}
    executable = tilewright.compile(path, "zu2", calibration=[sample])
    assert any(reason in note for note in executable.manifest.notes), executable.manifest.notes
    assert executable.check(sample, executable.run(sample)).equal


@pytest.mark.slow
def test_the_host_works_beside_the_core(tmp_path: Path) -> None:
    """Two branches: one with gaps in its windows, which the host computes; one on the core."""
    net = Net(1, 8, 14, 14)
    left = net.conv("x", 8, 16, 3, pads=[2, 2, 2, 2], dilations=[2, 2])
    right = net.conv(net.conv("x", 8, 24, 3), 24, 16, 3)
    model = net.model(net.op("Concat", left, right, axis=1))
    executable = run_checked_loosely(model, tmp_path)
    facts = executable.summary()  # Of a run after the first.
    profile = executable.profile
    core, host = profile.cycles / profile.clock_hz, profile.host_seconds
    gap = next(k.seconds for k in profile.kernels if "conv0" in k.nodes)
    assert profile.elapsed_seconds == pytest.approx(core + host - min(core, gap))
    assert facts["elapsed_seconds"] == profile.elapsed_seconds
    assert "both at once" in " ".join(executable.report().split())
