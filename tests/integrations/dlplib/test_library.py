"""The shared object: the example in C, compiled without a warning, and misuse from C."""

import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewright.errors import TilewrightError
from tilewright.integrations.dlplib.library import SOURCES, operator_calls, write_library

ROOT = Path(__file__).parents[3]
STRICT = ("-Wall", "-Wextra", "-Werror", "-Wshadow", "-Wconversion")
COMPILER = shutil.which("gcc") or shutil.which("cc")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(COMPILER is None, reason="there is no C compiler"),
]

Built = Callable[[Path], Path]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Compiles a program against the library."""
    place = tmp_path_factory.mktemp("dlp")
    header, library = write_library(place)
    assert header.read_text() == (SOURCES / "dlplib.h").read_text()

    def compiled(source: Path) -> Path:
        program = place / source.stem
        command = [str(COMPILER), *STRICT, str(source), f"-I{place}", f"-L{place}", "-ldlplib"]
        subprocess.run([*command, f"-Wl,-rpath,{place}", "-o", str(program)], check=True)
        return program

    assert library.is_file()
    return compiled


def run(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path])}
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, **paths, **environment},
    )  # fmt: skip


def test_sources_have_no_warning(tmp_path: Path) -> None:
    calls = "\n".join(operator_calls((SOURCES / "dlplib.h").read_text()))
    (tmp_path / "operators.h").write_text(calls)
    strict = [*STRICT, "-Wpedantic", f"-I{tmp_path}"]
    for source in SOURCES.glob("*.c"):
        command = [str(COMPILER), "-std=c11", "-D_GNU_SOURCE", *strict, "-c"]
        subprocess.run([*command, str(source), "-o", str(tmp_path / "object.o")], check=True)


def test_example_in_c_and_in_python(build: Built, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ROOT / "examples" / "dlplib"
    program = build(folder / "convolution.c")
    in_c = run(program)
    assert in_c.returncode == 0, in_c.stderr
    runpy.run_path(str(folder / "convolution.py"))["main"]("cambricon-x")
    assert capsys.readouterr().out == in_c.stdout
    assert in_c.stdout.startswith("first ") and in_c.stdout.count("0.000000") < 3
    lost = run(program, DLPLIB_PYTHON="/nowhere/python")
    assert lost.returncode == 1 and "[dlp-lost]" in lost.stderr


MISUSE = """
#include <dlplib.h>
#include <stdio.h>
#include <string.h>

#define IS(wanted, call) \\
    do { \\
        dlpStatus got = call; \\
        if (got != wanted) { \\
            printf("%s: %d %s\\n", #call, (int)got, dlpGetErrorString(h)); \\
            return 1; \\
        } \\
    } while (0)

int main(void)
{
    dlpHandle h, other = {17};
    dlpTensorDescriptor x, unset;
    dlpActivationDescriptor relu;
    dlpAddress a, b;
    dlpFormat format;
    dlpType type;
    int fraction, n, c, height, width;
    size_t bytes;
    float in[4] = {1.5f, -2.25f, 100.0f, -0.0f}, out[4];
    int16_t raw[4];

    IS(DLP_SUCCESS, dlpCreate(&h, "cambricon-x"));
    IS(DLP_ERROR_HANDLE, dlpMalloc(other, &a, 8));
    IS(DLP_SUCCESS, dlpMalloc(h, &a, 8));
    IS(DLP_SUCCESS, dlpMalloc(h, &b, 8));
    IS(DLP_SUCCESS, dlpCreateTensorDescriptor(h, &x));
    IS(DLP_SUCCESS, dlpCreateTensorDescriptor(h, &unset));
    IS(DLP_ERROR_PARAMETER, dlpSetTensorDescriptor(h, x, DLP_NCHW, DLP_FIXED16, 8, 1, 0, 1, 1));
    IS(DLP_SUCCESS, dlpSetTensorDescriptor(h, x, DLP_NHWC, DLP_FIXED16, 8, 1, 4, 1, 1));
    IS(DLP_SUCCESS, dlpGetTensorDescriptor(h, x, &format, &type, &fraction, &n, &c, &height,
                                           &width, &bytes));
    if (format != DLP_NHWC || type != DLP_FIXED16 || fraction != 8 || c != 4 || bytes != 8)
        return 2;
    IS(DLP_SUCCESS, dlpEncode(in, 4, DLP_FIXED16, 8, raw));
    IS(DLP_SUCCESS, dlpMemcpyToDevice(h, a, raw, 8));
    IS(DLP_SUCCESS, dlpCreateActivationDescriptor(h, &relu));
    IS(DLP_ERROR_DESCRIPTOR, dlpActivationForward(h, relu, x, a, x, b));
    IS(DLP_SUCCESS, dlpSetActivationDescriptor(h, relu, DLP_RELU));
    IS(DLP_SUCCESS, dlpActivationForward(h, relu, x, a, x, b));
    IS(DLP_SUCCESS, dlpMemcpyToHost(h, raw, b, 8));
    IS(DLP_SUCCESS, dlpDecode(raw, 4, DLP_FIXED16, 8, out));
    if (out[0] != 1.5f || out[1] != 0.0f || out[2] != 100.0f || out[3] != 0.0f)
        return 3;
    IS(DLP_ERROR_DESCRIPTOR, dlpActivationForward(h, relu, unset, a, x, b));
    IS(DLP_ERROR_MEMORY, dlpMemcpyToDevice(h, a + 4, raw, 8));
    IS(DLP_ERROR_MEMORY, dlpMemcpyToHost(h, raw, 5, 8));
    IS(DLP_ERROR_MEMORY, dlpMemcpyOnDevice(h, a, a + 2, 4));
    IS(DLP_SUCCESS, dlpFree(h, a));
    IS(DLP_ERROR_MEMORY, dlpFree(h, a));
    if (strstr(dlpGetErrorString(h), "freed already") == NULL)
        return 4;
    IS(DLP_ERROR_MEMORY, dlpActivationForward(h, relu, x, a, x, b));
    IS(DLP_ERROR_CAPACITY, dlpMalloc(h, &a, (size_t)1 << 40));
    IS(DLP_SUCCESS, dlpDestroyTensorDescriptor(h, x));
    IS(DLP_ERROR_DESCRIPTOR, dlpDestroyTensorDescriptor(h, x));
    IS(DLP_ERROR_MEMORY, dlpDestroy(h));
    IS(DLP_SUCCESS, dlpFree(h, b));
    IS(DLP_SUCCESS, dlpDestroy(h));
    IS(DLP_ERROR_HANDLE, dlpDestroy(h));
    puts("done");
    return 0;
}
"""


def test_misuse_from_c(build: Built, tmp_path: Path) -> None:
    source = tmp_path / "misuse.c"
    source.write_text(MISUSE)
    ran = run(build(source))
    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stdout + ran.stderr


def test_places_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TilewrightError, match="output-failed"):
        write_library(tmp_path / "file")
    with pytest.raises(TilewrightError, match="output-failed"):
        write_library(tmp_path, python='py"thon')


def test_lenet5_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(ROOT / "examples" / "dlplib" / "lenet5.py"))
    example["main"]("cambricon-x", "20")
    said = capsys.readouterr().out
    # The model itself reads 356 of 360 digits right.
    assert int(said.split()[0]) >= 19 and "of 20 digits right" in said
