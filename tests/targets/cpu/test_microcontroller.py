"""Packages without an operating system: built for a Cortex-M7, linked, run under an emulator."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.targets.cpu.built_networks import missing

import tilewright
from tilewright.errors import TilewrightError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("built_apart")]

ROOT = Path(__file__).parents[3]
LENET = ROOT / "examples" / "lenet5" / "lenet5.onnx"
BOARD = ROOT / "examples" / "cortex-m7"
COMPILER = "arm-none-eabi-gcc"
EMULATOR = "qemu-system-arm"

ALLOWED = {"memcpy", "memset", "expf", "logf", "tanhf", "sqrtf", "powf", "fmaxf", "fminf"}
"""What a bare package may ask its program for; and the compiler's own ``__aeabi_``."""


def mobilenet(path: Path) -> None:
    """MobileNet of a quarter of the width, on images of 48 x 48: seven separable blocks."""
    random = np.random.default_rng(3)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def conv(x: str, ci: int, co: int, kernel: int, stride: int = 1, group: int = 1) -> str:
        name = f"conv{len(nodes)}"
        shape = (co, ci // group, kernel, kernel)
        array = random.standard_normal(shape) * np.sqrt(2.0 / np.prod(shape[1:]))
        weights.append(numpy_helper.from_array(array.astype(np.float32), f"w{name}"))
        pads = [kernel // 2] * 4
        nodes.append(
            helper.make_node(
                "Conv", [x, f"w{name}"], [name], name,
                kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads, group=group,
            )
        )  # fmt: skip
        nodes.append(helper.make_node("Clip", [name, "low", "high"], [f"{name}r"], f"{name}r"))
        return f"{name}r"

    for name, value in (("low", 0.0), ("high", 6.0)):
        weights.append(numpy_helper.from_array(np.array(value, np.float32), name))
    x, width = conv("image", 3, 8, 3, 2), 8
    for more, stride in ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), (128, 1)):
        x = conv(conv(x, width, width, 3, stride, group=width), width, more, 1)
        width = more
    weights.append(numpy_helper.from_array(
        (random.standard_normal((10, width)) / 8).astype(np.float32), "dense"))  # fmt: skip
    nodes.append(helper.make_node("GlobalAveragePool", [x], ["mean"], "mean"))
    nodes.append(helper.make_node("Flatten", ["mean"], ["flat"], "flat"))
    nodes.append(helper.make_node("Gemm", ["flat", "dense"], ["scores"], "scores", transB=1))
    nodes.append(helper.make_node("Softmax", ["scores"], ["probabilities"], "softmax"))
    graph = helper.make_graph(
        nodes,
        "mobilenet",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 48, 48])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [1, 10])],
        weights,
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)


def model_of(name: str, folder: Path) -> Path:
    path = folder / f"{name}.onnx"
    if name == "lenet5":
        return LENET
    mobilenet(path)
    return path


def painted(shape: tuple[int, ...]) -> np.ndarray:
    """The image that main.c paints."""
    i = np.arange(np.prod(shape), dtype=np.int64)
    return ((i * i % 251).astype(np.float32) / np.float32(251)).reshape(shape)


def command(*arguments: str | Path, cwd: Path) -> str:
    ran = subprocess.run(arguments, cwd=cwd, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr  # The emulator passes on what is said as an error.


@pytest.mark.parametrize("name", ["lenet5", "mobilenet"])
def test_a_network_on_a_cortex_m7(
    name: str, tmp_path: Path, record_property: pytest.FixtureRequest
) -> None:
    if reason := missing(COMPILER, "make"):
        pytest.skip(f"{reason} (Debian: gcc-arm-none-eabi, libnewlib-arm-none-eabi)")
    model = model_of(name, tmp_path)
    made = tilewright.compile(model, cpu="cortex-m7", bare=True, directory=tmp_path / "package")
    program = made.directory / "program"
    assert not list(program.rglob("*.bin")) and not list(program.rglob("*.hpp"))
    tools = ["CC=arm-none-eabi-gcc", "AR=arm-none-eabi-ar"]
    command("make", "-s", "-j2", *tools, "CFLAGS=-O2 -Wall -Wextra -Werror", cwd=program)
    library = f"lib{name}.a"
    listed = command("arm-none-eabi-nm", library, cwd=program).splitlines()
    symbols = [line.split()[-2:] for line in listed if len(line.split()) > 1]
    defined = {symbol for kind, symbol in symbols if kind in "TRDB"}
    assert defined and all(symbol.startswith(f"{name}_") for symbol in defined)
    wanted = {symbol for kind, symbol in symbols if kind == "U"} - defined
    assert [s for s in wanted - ALLOWED if not s.startswith("__aeabi_")] == []
    assert not [line for line in listed if line.split()[-2:-1] in (["D"], ["B"], ["d"], ["b"])]
    main = (BOARD / "main.c").read_text().replace("lenet5", name).replace("LENET5", name.upper())
    (program / "board_main.c").write_text(main)
    flags = "-std=gnu99 -O2 -mcpu=cortex-m7 -mfpu=fpv5-sp-d16 -mfloat-abi=hard -ffreestanding"
    command(
        COMPILER, *flags.split(), "--specs=nano.specs", "-nostartfiles", "-Iinclude",
        "board_main.c", BOARD / "start.c", library, "-T", BOARD / "board.ld",
        "-Wl,--gc-sections", "-lm", "-o", "board.elf", cwd=program,
    )  # fmt: skip
    whole = command("arm-none-eabi-nm", "board.elf", cwd=program).split()
    assert not {"malloc", "_sbrk", "fopen", "pthread_create", "printf", "write"} & set(whole)
    sizes = command("arm-none-eabi-size", "board.elf", cwd=program).splitlines()[1].split()
    flash, ram = int(sizes[0]) + int(sizes[1]), int(sizes[1]) + int(sizes[2])
    print(f"{name}: {flash:,} bytes of flash, {ram:,} of RAM")
    weights = sum(a.nbytes for a in map(made._read_reference()[1].get, made._read_reference()[1]))
    assert flash < 1.1 * weights + (100 << 10)
    assert ram < 1.1 * made.manifest.activation_bytes + (32 << 10)
    if reason := missing(EMULATOR):
        pytest.skip(f"built and linked, but to run it {reason} (Debian: qemu-system-arm)")
    said = command(
        EMULATOR, "-M", "mps2-an500", "-nographic", "-monitor", "none", "-serial", "none",
        "-semihosting-config", "enable=on,target=native", "-kernel", "board.elf", cwd=program,
    )  # fmt: skip
    found = np.array([int(line, 16) for line in said.split()], np.uint32).view(np.float32)
    inputs = {"image": painted(made.manifest.inputs[0].shape)}
    expected = made.reference(inputs)["probabilities"].reshape(-1)
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-6)
    assert expected.std() > 1e-4


def test_the_page_for_microcontrollers(tmp_path: Path) -> None:
    """Its commands give what it says that they give."""
    if reason := missing(COMPILER, EMULATOR, "make"):
        pytest.skip(reason)
    page = (ROOT / "docs" / "microcontrollers.md").read_text()
    lines = [line[4:] for line in page.splitlines() if line.startswith("    ")]
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    said = subprocess.run(
        ["bash", "-euc", "\n".join(lines)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path)},
    )
    assert said.returncode == 0, said.stdout + said.stderr
    bits = [int(line, 16) for line in said.stderr.split("\n")[-11:-1]]
    made = tilewright.compile(LENET)
    expected = made.reference({"image": painted((1, 1, 32, 32))})["probabilities"].reshape(-1)
    np.testing.assert_allclose(
        np.array(bits, np.uint32).view(np.float32), expected, rtol=2e-4, atol=1e-6
    )


def test_bare_packages_run_here_too(tmp_path: Path) -> None:
    """Of the processor at hand, on one thread."""
    made = tilewright.compile(LENET, bare=True, directory=tmp_path / "package")
    inputs = {"image": painted((1, 1, 32, 32))}
    outputs = made.run(inputs)
    assert made.check(inputs, outputs).equal
    with pytest.raises(TilewrightError, match="option-threads"):
        made.runner.threads = 2
    plain = tilewright.compile(LENET).run(inputs)
    np.testing.assert_array_equal(outputs["probabilities"], plain["probabilities"])


@pytest.mark.parametrize(
    "options",
    [
        {"weights": "stone"},
        {"weights": "file", "bare": True},
        {"target": "cambricon-x", "bare": True},
        {"target": "shidiannao", "weights": "array"},
    ],
)
def test_forms_that_there_are_not_are_refused(options: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(TilewrightError, match="option-form"):
        tilewright.compile(LENET, directory=tmp_path / "package", **options)
    assert not (tmp_path / "package").exists()
