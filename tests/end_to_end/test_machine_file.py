"""Machines written as files: three that have little in common, and variants of one."""

import re
from pathlib import Path

import onnx
import pytest

import tilewright
from tests.end_to_end.end_to_end_models import (
    LENET,
    MACHINES,
    ROOT,
    SMALL_NPU,
    image,
    lenet,
    network,
    run_checked,
)
from tests.slow import but_fast, dealt
from tilewright.compiler.pipeline import resolve
from tilewright.errors import TilewrightError
from tilewright.graph.passes.constraints import ON_INTEGERS
from tilewright.machine.load import load_machine
from tilewright.targets.generic.families import FAMILIES
from tilewright.targets.generic.functions import FUNCTIONS

FILES = {
    "small-npu": SMALL_NPU,
    "float-box": MACHINES / "float-box.toml",
    "crumb": MACHINES / "crumb.toml",
}


@pytest.mark.parametrize(
    "name",
    but_fast(FILES, ["small-npu"]),
)
def test_lenet(name: str, tmp_path: Path) -> None:
    executable = run_checked(lenet(), str(FILES[name]), tmp_path)
    kernels = executable.profile.kernels
    assert not [k.symbol for k in kernels if k.on_host and k.nodes], "all nodes on the chip"
    assert executable.profile.clock_hz == load_machine(FILES[name]).clock_hz
    summary = executable.summary()
    # The sum of kernels' bounds is none where a kernel's weights come during the one before.
    assert summary["efficiency"] > 0.8
    assert summary["on_chip_bound_cycles"] <= summary["cycles"]


@pytest.mark.slow_cases(1)
@pytest.mark.parametrize(("model", "name"), dealt(["squeezenet", "resnet18"], list(FILES)))
def test_networks(model: str, name: str, tmp_path: Path) -> None:
    executable = run_checked(network(model, 32), str(FILES[name]), tmp_path)
    assert not [k.symbol for k in executable.profile.kernels if k.on_host and k.nodes]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "softmax"), [("small-npu", True), ("float-box", False), ("crumb", True)]
)
def test_what_a_machine_lacks_the_host_computes(name: str, softmax: bool) -> None:
    sample = image(onnx.load(LENET))
    executable = tilewright.compile(LENET, str(FILES[name]), calibration=[sample])
    outputs = executable.run(sample)
    assert executable.check(sample, outputs).equal
    hosted = [row for row in executable.manifest.kernels if row.engine == "host" and row.nodes]
    assert [row.nodes for row in hosted] == ([("softmax",)] if softmax else [])
    assert all("no primitive of" in row.reason for row in hosted)


def _without(text: str, *keys: str) -> str:
    return "\n".join(line for line in text.split("\n") if not line.startswith(keys))


def _tables_moved(text: str) -> str:
    text = re.sub(r', \["sigmoid", "tanh", "hard_swish"\]', "", text)
    text = text.replace(', "sigmoid", "tanh", "hard_swish"]', "]")
    return _without(text, "memory.tables", "load-tables")


VARIANTS = {
    "one engine": lambda t: (
        _without(t, "engine.load", "engine.store")
        .replace('"load"', '"compute"')
        .replace('"store"', '"compute"')
    ),
    "one command at a time": lambda t: 'synchronisation = "none"\n' + t,
    "flags": lambda t: 'synchronisation = { style = "flags", ids = 3 }\n' + t,
    "reply words": lambda t: 'synchronisation = { style = "replies", ids = 9 }\n' + t,
    "tokens": lambda t: 'synchronisation = "tokens"\n' + t,
    "row-major": lambda t: _without(t, "layouts"),
    "other layouts": lambda t: t.replace('"NHWC"', '"HWCN"').replace('"OHWI"', '"HWIO"'),
    "memories of 64 bytes": lambda t: t.replace("131_072", "64"),
    "no function tables": _tables_moved,
    "limits below a window": lambda t: t.replace(
        "multiples = { co = 8, ci = 8 }", "limits = { oh = 4, ow = 3, co = 8, ci = 8, kh = 3 }"
    ),
    "edges of their own": lambda t: t.replace(
        "multiples = { co = 8, ci = 8 }", 'multiples = { co = 8, ci = 8 }\nsizes = "fixed"'
    ),
    "transactions": lambda t: t.replace("latency = 40", "latency = 7, transaction = 48"),
    "float32 on two bytes' worth": lambda t: t.replace("fixed16", "float32").replace(
        "fixed32", "float32"
    ),
}


@pytest.mark.slow_cases(2)
@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_variants(variant: str, tmp_path: Path) -> None:
    machine = load_machine(VARIANTS[variant](SMALL_NPU.read_text()) + "\n")
    run_checked(lenet(), "generic", tmp_path, machine=machine)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('operands.bias = { memory = "weight", joined = "weight" }\n', "", "conv takes no bias"),
        (', ["requantise"]', "", "gives 32-bit results"),
        ('"conv", "matmul"', '"matmul"', "no primitive of small-npu computes conv"),
    ],
)
def test_the_reason_names_what_the_file_lacks(old: str, new: str, reason: str) -> None:
    text = SMALL_NPU.read_text().replace(old, new)
    if new == '"matmul"':  # Expressions may name dims of the primitive's operations alone.
        text = text.replace("n*g*b0*b1*m*oh*ow*ceil(co/8)*ceil(ci/8)*kh*kw", "n*b0*b1*m*co*ci/64")
        text = text.replace("n*g*b0*b1*m*oh*ow*co*ci*kh*kw/64", "n*b0*b1*m*co*ci/64")
    machine = load_machine(text)
    sample = image(lenet())
    executable = tilewright.compile(LENET, "generic", machine=machine, calibration=[sample])
    outputs = executable.run(sample)
    assert executable.check(sample, outputs).equal
    rows = {node: row for row in executable.manifest.kernels for node in row.nodes}
    assert rows["conv1"].engine == "host"
    assert reason in rows["conv1"].reason


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ('{ input = "feature", residual', '{ input = "dram", residual', "isa-in-place"),
        ("memory.tables", "memory.table", "machine-invalid"),
        ('[move]\nload-feature', '[move]\npool', "isa-name"),
        ('epilogue = [["add"]', 'epilogue_any = true\nepilogue = [["add"]', "machine-capability"),
    ],
)  # fmt: skip
def test_what_the_derived_instructions_cannot_say_is_refused(old: str, new: str, code: str) -> None:
    text = SMALL_NPU.read_text()
    assert old in text
    with pytest.raises(TilewrightError) as caught:
        machine = load_machine(text.replace(old, new))
        tilewright.compile(LENET, "generic", machine=machine, calibration=[image(lenet())])
    assert caught.value.problems[0].code == code


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ('"NHWC", weight', '"NHHC", weight', "layouts.activation"),
        ('weight = "OHWI"', 'weight = "OHWI0i"', "layouts.weight"),
        ('operands.input = "feature"',
         'operands.input = { memory = "feature", layout = "nchw" }',
         "primitive.conv.operands.input.layout"),
        ('operands.input = "feature"',
         'operands.input = { memory = "feature", elements = ["fixed17"] }',
         "primitive.conv.operands.input.elements"),
    ],
)  # fmt: skip
def test_words_that_mean_nothing_are_refused_when_the_file_is_read(
    old: str, new: str, where: str, tmp_path: Path
) -> None:
    text = SMALL_NPU.read_text()
    assert old in text
    file = tmp_path / "machine.toml"
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(TilewrightError) as caught:
        resolve(str(file))
    (problem,) = caught.value.problems
    assert (problem.code, problem.where) == ("machine-invalid", f"{file}: {where}")


@pytest.mark.slow
def test_layouts_that_instructions_cannot_address_send_kernels_to_the_host() -> None:
    text = SMALL_NPU.read_text().replace('"NHWC", weight = "OHWI"', '"NCHW8c", weight = "OIHW"')
    sample = image(lenet())
    machine = load_machine(text)
    executable = tilewright.compile(LENET, "generic", machine=machine, calibration=[sample])
    assert executable.check(sample, executable.run(sample)).equal
    rows = {node: row for row in executable.manifest.kernels for node in row.nodes}
    assert rows["conv1"].engine == "host"
    assert "lower-layout" in rows["conv1"].reason


def test_functions_by_table_need_their_memory() -> None:
    text = _without(SMALL_NPU.read_text(), "memory.tables", "load-tables")
    with pytest.raises(TilewrightError) as caught:
        tilewright.compile(LENET, "generic", machine=load_machine(text + "\n"))
    assert caught.value.problems[0].code == "isa-tables"


def test_the_page_lists_the_operations() -> None:
    page = (ROOT / "docs" / "machine-file.md").read_text()
    rows = re.findall(r"^\| ((?:floats|int8)[a-z0-9 ,]*) \| (.*) \|$", page, re.MULTILINE)
    listed = {
        on: sorted(" ".join(re.findall(r"`([a-z0-9_ ]+)`", operations)).split())
        for on, operations in rows
    }
    expected: dict[str, list[str]] = {}
    for name, function in FUNCTIONS.items():
        on_integers = name in ON_INTEGERS
        if name == "dequantise_linear":
            on = "int8 to floats"
        elif function.on_fixed:
            on = "floats, fixed point" + ", int8" * on_integers
        else:
            on = "int8" if on_integers else "floats"
        expected.setdefault(on, []).append(name)
    assert listed == {on: sorted(names) for on, names in expected.items()}
    anchors = {operation for family in FAMILIES.values() for operation in family.operations}
    assert all(f"`{name}`" in page for name in anchors - set(FUNCTIONS))
