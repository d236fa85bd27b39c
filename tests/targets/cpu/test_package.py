"""Packages: bytes, names, the Makefile and main, memory safety, and what is refused."""

import json
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tests.targets.cpu.kernel_harness import PLAIN, Maker
from tests.targets.cpu.primitive_cases import CASES
from tests.targets.cpu.primitive_cases.cases import B
from tests.targets.cpu.primitive_cases.convolutions import convolution

from tilewright.codegen.c import compiler
from tilewright.codegen.host.calls import KERNEL
from tilewright.errors import TilewrightError
from tilewright.graph.operations.normalisation import SoftmaxOp
from tilewright.graph.operations.pointwise import ReluOp
from tilewright.ir import ArrayAttr, StringAttr
from tilewright.ir.types import element_dtype, layout_of, shape_of, tensor_type
from tilewright.planning.layout import Layout
from tilewright.targets.cpu import TARGET
from tilewright.targets.cpu.headers import KERNEL_HEADERS, header
from tilewright.targets.cpu.runner import CpuRunner
from tilewright.targets.cpu.walk import kernel_source
from tilewright.tile.dialect import programs_of

pytestmark = pytest.mark.usefixtures("built_apart")

HOSTILE = 'a"; */ int x; /*\n??/ \\ \u202e\x00 for'


def small(plain: bool = True, seed: int = 3) -> Maker:
    m = Maker(PLAIN if plain else None, seed)
    first = convolution(m, (1, 3, 9, 9), 8, (3, 3), plain=True, pads=(1, 1, 1, 1))
    w = m.weight((10, 8, 9, 9), "OIHWLiLo")
    from tilewright.graph.operations.convolution import ConvOp

    m.finish(m.kernel([(ConvOp, [first, w], {}), (SoftmaxOp, [0], {"axis": 1})][:1], B))
    return m


def files_of(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def test_two_emits_give_identical_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        TARGET.emit(small(plain=False).compilation(), tmp_path / name)
    first, second = files_of(tmp_path / "a"), files_of(tmp_path / "b")
    assert first == second
    assert {"weights.bin", "Makefile", "src/net.c"} <= first.keys()


def test_equal_kernels_share_a_function(tmp_path: Path) -> None:
    m = Maker(PLAIN)
    x = m.input((1, 8, 5, 5), B)
    for _ in range(3):
        x = m.kernel([(ReluOp, [x], {})], B)
    m.finish(x)
    TARGET.emit(m.compilation(), tmp_path)
    sources = sorted(path.name for path in (tmp_path / "src").glob("net_k*.c"))
    assert sources == ["net_k00_relu.c"]
    assert (tmp_path / "src/net.c").read_text().count("net_k00_relu(") == 3


def test_make_builds_a_program_that_runs_on_files(tmp_path: Path) -> None:
    m = small()
    TARGET.emit(m.compilation(), tmp_path)
    program = tmp_path
    flags = "-std=c11 -O1 -Wall -Wextra -Werror"
    subprocess.run(
        ["make", "-s", "-C", program, "-j2", f"CFLAGS={flags} -fPIC -D_GNU_SOURCE"], check=True
    )
    m.inputs["in0"].tofile(tmp_path / "x.bin")
    command = [program / "net", program / "weights.bin", tmp_path / "x.bin", tmp_path / "y.bin"]
    subprocess.run(command, check=True)
    found = np.fromfile(tmp_path / "y.bin", np.float32)
    expected = m.expected()["out0"]
    np.testing.assert_allclose(found.reshape(expected.shape), expected, atol=1e-5)
    assert subprocess.run(command[:2], capture_output=True, check=False).returncode == 2
    command[2] = tmp_path / "missing.bin"
    ran = subprocess.run(command, capture_output=True, check=False)
    assert ran.returncode == 1
    assert b"missing.bin" in ran.stderr


def test_names_from_models_never_become_code(tmp_path: Path) -> None:
    m = small()
    m.network.properties["symbol"] = StringAttr("vectors")
    m.network.properties["input_names"] = ArrayAttr([StringAttr(HOSTILE)])
    m.network.properties["output_names"] = ArrayAttr([StringAttr("int")])
    m.inputs = {HOSTILE: m.inputs["in0"]}
    for kernel in m.kernels:
        for op in kernel.operations:
            op.node = StringAttr(HOSTILE)
    TARGET.emit(m.compilation(), tmp_path)
    runner = CpuRunner(tmp_path, (*compiler.FLAGS, "-Werror"))
    assert runner.inputs[0].name == HOSTILE
    result = runner.run(m.inputs)
    np.testing.assert_allclose(result.outputs["int"], m.expected()["int"], atol=1e-5)
    assert result.profile.kernels[0].nodes == (HOSTILE,)


def test_runs_are_profiled_and_inputs_checked(tmp_path: Path) -> None:
    m = small()
    TARGET.emit(m.compilation(), tmp_path)
    runner = TARGET.load(tmp_path)
    result = runner.run(m.inputs, trace=tmp_path / "trace.json")
    assert [kernel.symbol for kernel in result.profile.kernels] == ["k0", "k1"]
    assert all(kernel.seconds and kernel.seconds > 0 for kernel in result.profile.kernels)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [event["args"]["kernel"] for event in events] == ["k0", "k1"]
    with pytest.raises(TilewrightError, match="input-shape"):
        runner.run({"in0": np.zeros((1, 3, 9, 8), np.float32)})
    with pytest.raises(TilewrightError, match="input-dtype"):
        runner.run({"in0": np.zeros((1, 3, 9, 9), np.float64)})
    with pytest.raises(TilewrightError, match="input-missing"):
        runner.run({})


def test_runs_side_by_side_do_not_disturb_each_other(tmp_path: Path) -> None:
    m = small()
    TARGET.emit(m.compilation(), tmp_path)
    random = np.random.default_rng(0)
    images = [random.standard_normal((1, 3, 9, 9)).astype(np.float32) for _ in range(4)]
    alone = CpuRunner(tmp_path)
    expected = [alone.run({"in0": image}).outputs["out0"] for image in images]
    assert not np.array_equal(expected[0], expected[1])
    runners = [CpuRunner(tmp_path), CpuRunner(tmp_path), alone, alone]

    def work(number: int) -> bool:
        found = [runners[number].run({"in0": images[number]}).outputs for _ in range(200)]
        return all(np.array_equal(f["out0"], expected[number]) for f in found)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [True] * 4


def test_damaged_packages_are_refused(tmp_path: Path) -> None:
    TARGET.emit(small().compilation(), tmp_path)
    manifest = tmp_path / "program.json"
    good = manifest.read_text()
    for bad in (
        "",
        "[]",
        "{}",
        good.replace('"net"', '"../net"'),
        good.replace('"net"', '"other"'),
        good.replace("float32", "x"),
        good.replace('"float32"', "[]"),
    ):
        manifest.write_text(bad)
        with pytest.raises(TilewrightError, match="package-invalid"):
            TARGET.load(tmp_path)
    manifest.write_text(good)
    with (tmp_path / "weights.bin").open("ab") as file:
        file.write(b"x")
    with pytest.raises(TilewrightError, match="package-invalid"):
        TARGET.load(tmp_path)


def test_a_missing_compiler_is_said_plainly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TARGET.emit(small().compilation(), tmp_path)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))  # Others may have built it.
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(TilewrightError, match=r"cpu-compiler.*install"):
        TARGET.load(tmp_path)


@pytest.mark.slow
def test_every_primitive_stays_within_its_tensors(tmp_path: Path) -> None:
    """Each tensor in an allocation of its own, under the address and undefined sanitizers."""
    m = Maker(PLAIN, seed=7)
    m.finish(*(make(m) for make in CASES.values()))
    calls: list[str] = []
    texts: list[str] = []
    for number, kernel in enumerate(m.compilation().kernels):
        assert kernel.program is not None
        source = kernel_source(kernel.program, m.lanes)
        tensors = programs_of(kernel.program)[0].tensors
        texts.append(f"/* {number} */\n" + source.text.replace(KERNEL, f"kernel_{number}"))
        names: list[str] = []
        for argument in source.parameters:
            value = tensors[argument.tensor].result
            layout = Layout.parse(layout_of(value), len(shape_of(value)))
            size = layout.size(shape_of(value))
            size *= element_dtype(tensor_type(value).element_type).itemsize
            names.append(f"space({size})")
        calls.append(f"    kernel_{number}({', '.join(names)});")
    prototypes = [
        kernel_source(k.program, m.lanes).prototype.replace(KERNEL, f"kernel_{n}") + ";"
        for n, k in enumerate(m.compilation().kernels)
        if k.program is not None
    ]
    for name in KERNEL_HEADERS:
        (tmp_path / name).write_text(header(name))
    head = '#define LANES 4\n#include <stdlib.h>\n#include "vectors.h"\n'
    half = len(texts) // 2
    (tmp_path / "a.c").write_text(head + "\n".join(_renamed(t) for t in texts[:half]))
    (tmp_path / "b.c").write_text(head + "\n".join(_renamed(t) for t in texts[half:]))
    main = [head, *prototypes, "static void *space(size_t n)"]
    main += ["{ float *p = malloc(n); memset(p, 0, n); return p; }", "int main(void) {"]
    (tmp_path / "main.c").write_text("\n".join([*main, *calls, "    return 0;", "}", ""]))
    flags = ["-g", "-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    builds = [
        subprocess.Popen(["cc", *flags, "-w", "-c", f"{name}.c", "-o", f"{name}.o"], cwd=tmp_path)
        for name in ("a", "b", "main")
    ]
    assert [build.wait() for build in builds] == [0, 0, 0]
    objects = ["a.o", "b.o", "main.o"]
    subprocess.run(["cc", *flags, *objects, "-lm", "-o", "all"], cwd=tmp_path, check=True)
    ran = subprocess.run(
        [tmp_path / "all"],
        capture_output=True,
        text=True,
        check=False,
        env={"ASAN_OPTIONS": "detect_leaks=0"},
    )
    assert ran.returncode == 0, ran.stderr[:3000]


def _renamed(text: str) -> str:
    """The text with its static functions named after the kernel, so that files can be joined."""
    number = text.split("*/")[0].split()[1]
    import re

    functions = re.findall(r"^(?:(?:static|INLINE|SELDOM) )+void (\w+)\(", text, re.MULTILINE)
    for name in dict.fromkeys(functions):
        text = re.sub(rf"\b{name}\b", f"{name}_of_{number}", text)
    return text
