"""The host that a machine file describes: its time is predicted, wherever the run takes place."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from tilewright.errors import TilewrightError
from tilewright.machine import Machine, load_machine
from tilewright.machine.host import Host
from tilewright.machine.load import to_toml

ROOT = Path(__file__).parents[2]
NPU = ROOT / "examples" / "machines" / "small-npu.toml"


def model(path: Path) -> Path:
    """A product of 8 x 16 and its sine, which the machine leaves to the host."""
    weight = np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32) / 8
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Sin", ["y"], ["z"])],
        "sines",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 16])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [4, 8])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    return path


def with_host(host: Host) -> Machine:
    return load_machine(NPU).model_copy(update={"host": host})


def test_iterations_are_charged_by_operation(tmp_path: Path) -> None:
    host = Host(
        name="core", clock_hz=1e6, cycles_per_operation=0, cycles_per_element=0, cycles={"sin": 50}
    )
    executable = tilewright.compile(model(tmp_path / "m.onnx"), "generic", machine=with_host(host))
    executable.run({"x": np.ones((4, 16), np.float32)})
    summary = executable.summary()
    # Of all that the host does, an element of the sine alone takes time.
    assert summary["host_seconds"] == pytest.approx(4 * 8 * 50 / 1e6)
    assert summary["host"] == {"name": "core", "clock_hz": 1e6}
    rows = {row["name"]: row for row in summary["kernels"]}
    (sine,) = (row for name, row in rows.items() if "z" in name or "sin" in name.lower())
    assert sine["time"] == pytest.approx(1.6e-3)
    assert "predicted for core at 1 MHz" in executable.report()
    assert summary["elapsed_seconds"] == pytest.approx(
        summary["accelerator_seconds"] + summary["host_seconds"]
    )


def test_a_processor_plans_the_kernels_and_its_clock_divides(tmp_path: Path) -> None:
    path = model(tmp_path / "m.onnx")
    seconds: dict[float, float] = {}
    for clock in (1e8, 4e8):
        host = Host(name="M7", clock_hz=clock, cpu="cortex-m7")
        executable = tilewright.compile(path, "generic", machine=with_host(host))
        seconds[clock] = executable.summary()["host_seconds"]
    assert seconds[1e8] == pytest.approx(4 * seconds[4e8])
    assert seconds[1e8] > 0


def test_a_host_survives_the_file_and_can_be_varied() -> None:
    machine = with_host(Host(name="core", clock_hz=1e6, cpu="neon", cycles={"sin": 3.5}))
    assert load_machine(to_toml(machine)) == machine
    varied = machine.with_values({"host.clock_hz": 2e6, "host.cpu": "cortex-m7"})
    assert varied.host is not None
    assert (varied.host.clock_hz, varied.host.cpu) == (2e6, "cortex-m7")


@pytest.mark.parametrize(
    ("text", "code", "where"),
    [
        ('name = "a"\nclock_hz = 1e9', "machine-invalid", "host"),
        ('name = "a"\nclock_hz = 0\ncpu = "neon"', "machine-invalid", "host.clock_hz"),
        ('name = "a"\nclock_hz = 1e9\ncpu = "neno"', "cpu-processor", ""),
        (
            'name = "a"\nclock_hz = 1e9\ncpu = "neon"\ncycles = { sine = 2 }',
            "machine-invalid",
            "host.cycles.sine",
        ),
        ('name = "a"\nclock_hz = 1e9\ncpu = "neon"\nclock = 2', "machine-invalid", "host.clock"),
    ],
)
def test_what_is_no_host_is_refused(tmp_path: Path, text: str, code: str, where: str) -> None:
    file = tmp_path / "machine.toml"
    file.write_text(f"{NPU.read_text()}\n[host]\n{text}\n")
    with pytest.raises(TilewrightError) as caught:
        tilewright.compile(model(tmp_path / "m.onnx"), str(file))
    assert caught.value.problems[0].code == code
    assert where in caught.value.problems[0].where
