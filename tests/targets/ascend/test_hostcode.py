"""Host C of networks in the thesis's six steps: built, run, and its misuse found."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from benchmarks.papers.ascend.handovers import synchronised
from onnx import helper
from tests.slow import but_fast
from tests.targets.ascend.element_kernels import elementwise
from tests.targets.ascend.operation_networks import compiled
from tests.targets.ascend.test_ascend_networks import gram

import tilewright
from tilewright.codegen.c.compiler import find_compiler
from tilewright.targets.ascend.emit import kernel_text
from tilewright.targets.ascend.host import QUEUES, SHIM
from tilewright.targets.ascend.hostcode import core_text
from tilewright.targets.ascend.machine import ASCEND_910

LENET = Path(__file__).parents[3] / "examples" / "lenet5" / "lenet5.onnx"
ACL = Path(tilewright.__file__).parent / "targets" / "ascend" / "acl"


@pytest.mark.slow
@pytest.mark.parametrize("name", but_fast(["lenet5", "gram"], ["lenet5"]))
def test_host_code_gives_what_a_run_gives(name: str, tmp_path: Path) -> None:
    model = LENET if name == "lenet5" else gram(tmp_path / "gram.onnx", 16, 5, 3)
    package = tilewright.compile(model, "ascend910", directory=tmp_path / "package")
    folder = package.directory / "program" / "acl"
    make = ["make", "-s", f"CC={' '.join(find_compiler())}", "CFLAGS=-O1 -Werror"]
    subprocess.run(make, cwd=folder, check=True)
    (value,) = package.inputs
    for seed in range(2):
        shape = [int(size) for size in value.shape]
        x = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
        x.tofile(folder / "x.bin")
        files = ["kernels.so", "../weights.bin", "../constants.bin", "x.bin", "y.bin"]
        subprocess.run(["./main", *files], cwd=folder, check=True)
        (wanted,) = package.run({value.name: x}).values()
        np.testing.assert_array_equal(np.fromfile(folder / "y.bin", np.float32), wanted.ravel())
    # No step is missing, and they come in the thesis's order.
    text = (folder / "main.c").read_text()
    main = text[text.index("int main") :]
    steps = ("aclInit", "aclrtCreateStream", "register_object", "k0_", "aclrtDestroyStream")
    steps = (*steps, "aclrtResetDevice", "aclFinalize")
    places = [main.index(step) for step in steps]
    assert places == sorted(places)


def test_values_stay_on_the_device(tmp_path: Path) -> None:
    """Two branches of which the host computes a part: what is copied, and what comes of it."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "first"),
        helper.make_node("Exp", ["a"], ["b"], "second"),
        helper.make_node("Sin", ["b"], ["c"], "hosted"),
        helper.make_node("Add", ["c", "b"], ["d"], "third"),
        helper.make_node("Reshape", ["d", "shape"], ["e"], "view"),
        helper.make_node("Mul", ["e", "e"], ["f"], "fourth"),
        helper.make_node("Mul", ["a", "b"], ["y"], "fifth"),
    ]
    x = np.random.default_rng(5).normal(size=(6, 35)).astype(np.float32)
    network = compiled(
        *(tmp_path, nodes, {"x": x}),
        {"f": (np.float32, (210,)), "y": (np.float32, (6, 35))},
        {"shape": np.array([210])},
    )
    assert len(network.host) == 1
    package = tilewright.Executable.load(network.executable.save(tmp_path / "package"))
    folder = package.directory / "program" / "acl"
    make = ["make", "-s", f"CC={' '.join(find_compiler())}", "CFLAGS=-O1 -Werror"]
    subprocess.run(make, cwd=folder, check=True)
    x.tofile(folder / "x.bin")
    files = ["kernels.so", "../weights.bin", "../constants.bin", "x.bin", "f.bin", "y.bin"]
    subprocess.run(["./main", *files], cwd=folder, check=True)
    for name, wanted in network.executable.run({"x": x}).items():
        results = np.fromfile(folder / f"{name}.bin", np.float32)
        np.testing.assert_array_equal(results, wanted.ravel())
    text = (folder / "main.c").read_text()
    text = text[text.index("/* What a function of the device") :]
    # The input and the hosted result; what the host reads, and two outputs.
    assert text.count("copy_in(") == 2
    assert text.count("copy_out(") == 3
    assert text.count("on_device(") == 1 + text.count("constants = on_device(")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """acl.c and the host core, compiled, and a device object with one kernel, ``add``."""
    folder = tmp_path_factory.mktemp("acl")
    (folder / "core.h").write_text(core_text(ASCEND_910))
    program = synchronised(elementwise("add", "half", 64, ASCEND_910, name="add"))
    (folder / "add.c").write_text(kernel_text(program))
    sources = [ACL / "acl.c", *SHIM.glob("*.c"), QUEUES / "queues.c"]
    compiler = [*find_compiler(), "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fPIC"]
    compiler += [f"-I{each}" for each in (folder, ACL, SHIM, QUEUES)]
    subprocess.run([*compiler, "-c", *map(str, sources)], cwd=folder, check=True)
    subprocess.run([*compiler, "-shared", "add.c", "-o", "kernels.so"], cwd=folder, check=True)
    return folder


RIGHT = """\
aclInit(NULL);
aclrtSetDevice(0);
aclrtCreateStream(&stream);
aclrtMalloc(&x, 160, ACL_MEM_MALLOC_HUGE_FIRST);
aclrtMalloc(&y, 160, ACL_MEM_MALLOC_HUGE_FIRST);
aclrtMalloc(&z, 160, ACL_MEM_MALLOC_HUGE_FIRST);
aclrtMemcpy(x, 160, halves, 128, ACL_MEMCPY_HOST_TO_DEVICE);
aclrtMemcpy(y, 160, halves, 128, ACL_MEMCPY_HOST_TO_DEVICE);
rtDevBinaryRegister(&binary, &handle);
rtFunctionRegister(handle, &stub, "add", "add", 0);
rtKernelLaunch(&stub, 1, (void *[]){x, y, z}, 24, NULL, stream);
aclrtSynchronizeStream(stream);
aclrtMemcpy(halves, 160, z, 128, ACL_MEMCPY_DEVICE_TO_HOST);
aclrtFree(x);
aclrtFree(y);
aclrtFree(z);
aclrtDestroyStream(stream);
aclrtResetDevice(0);
aclFinalize();
"""

MISUSE = {
    "no init": ("aclInit(NULL);\n", "", "aclrtSetDevice before aclInit"),
    "no device": ("aclrtSetDevice(0);\n", "", "before aclrtSetDevice"),
    "no stream": ("aclrtCreateStream(&stream);\n", "", "what is no stream"),
    "no object": ("rtDevBinaryRegister(&binary, &handle);\n", "", "before rtDevBinaryRegister"),
    "no function": ('"add", "add"', '"sub", "sub"', "no function sub"),
    "not registered": ('rtFunctionRegister(handle, &stub, "add", "add", 0);\n', "", "registered"),
    "too small a copy": ("(&z, 160", "(&z, 64", "argument|room for|beyond"),
    "a copy too large": ("(x, 160, halves, 128", "(x, 160, halves, 161", "room for 160"),
    "from the device to the device": ("(y, 160, halves", "(y, 160, x", "no memory of the host"),
    "a copy too early": (
        "aclrtSynchronizeStream(stream);\n",
        "aclrtMemcpy(x, 160, halves, 128, ACL_MEMCPY_HOST_TO_DEVICE);\n",
        "may still use before aclrtSynchronize",
    ),
    "a launch after free": ("rtKernelLaunch", "aclrtFree(y);\nrtKernelLaunch", "argument 2"),
    "a result too soon": ("aclrtSynchronizeStream(stream);\n", "", "before aclrtSynchronize"),
    "freed twice": ("aclrtFree(x);\n", "aclrtFree(x);\naclrtFree(x);\n", "not allocated"),
    "never freed": ("aclrtFree(y);\n", "", r"1 allocations are not free.*main\.c:"),
    "a stream that stays": ("aclrtDestroyStream(stream);\n", "", "before aclrtDestroyStream"),
    "two arguments": ("{x, y, z}, 24", "{x, y, z}, 20", "20 bytes of arguments"),
    "no blocks": ("&stub, 1", "&stub, 0", "on 0 blocks"),
    "blocks that write the same": ("&stub, 1", "&stub, 2", "MTE3 of another block, line"),
}


def outcome(folder: Path, steps: str, name: str) -> subprocess.CompletedProcess[str]:
    """What a program of these steps says."""
    lines = "\n".join(f"    {line}" for line in steps.splitlines())
    (folder / name).mkdir()
    source = folder / name / "main.c"
    source.write_text(f"""\
#include <stdio.h>
#include "acl.h"
static char object[1 << 20];
int main(void)
{{
    static uint16_t halves[128] = {{0x3c00, 0x4000}}; /* 1 and 2 */
    static char stub;
    void *x = NULL, *y = NULL, *z = NULL, *handle = NULL;
    aclrtStream stream = NULL;
    FILE *file = fopen("kernels.so", "rb");
    rtDevBinary_t binary = {{RT_DEV_BINARY_MAGIC_ELF, 0, object, 0}};
    binary.length = fread(object, 1, sizeof object, file);
    fclose(file);
{lines}
    printf("%x %x\\n", halves[0], halves[1]);
    (void)stub, (void)handle;
    return 0;
}}
""")
    objects = [str(path) for path in folder.glob("*.o")]
    command = [*find_compiler(), f"-I{ACL}", "-rdynamic", str(source), *objects, "-lm", "-ldl"]
    subprocess.run([*command, "-o", str(source.with_suffix(""))], check=True)
    program = str(source.with_suffix(""))
    return subprocess.run([program], cwd=folder, capture_output=True, text=True)


def test_the_right_order_computes(built: Path) -> None:
    done = outcome(built, RIGHT, "right")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "4000 4400\n"  # 2 and 4


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_is_an_error_with_its_place(name: str, built: Path) -> None:
    old, new, words = MISUSE[name]
    assert old in RIGHT
    done = outcome(built, RIGHT.replace(old, new, 1), name.replace(" ", "-"))
    assert done.returncode == 3
    assert re.search(rf"main\.c:\d+: .*({words})", done.stderr), done.stderr
