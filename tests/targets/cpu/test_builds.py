"""Packages in other people's hands: compilers, processors, build systems, C++, threads."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tests.targets.cpu.built_networks import (
    CROSS_COMPILER,
    EMULATOR,
    expected,
    image,
    missing,
    package,
    run_program,
)

import tilewright
from tilewright.codegen.c.compiler import CHOICE, FLAGS
from tilewright.errors import TilewrightError
from tilewright.targets.cpu import builds, processors
from tilewright.targets.cpu.processors import PROCESSORS
from tilewright.targets.cpu.runner import CpuRunner

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("built_apart")]

STRICT = " ".join((*CHOICE, "-Werror"))


def close(found: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected(), rtol=2e-4, atol=1e-6)
    assert expected().std() > 1e-4  # the outputs do differ from one another


def make(program: Path, *options: str) -> None:
    ran = subprocess.run(
        ["make", "-s", "-j2", "-C", program, *options], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert not ran.stderr


def runs_here(name: str) -> bool:
    try:
        builds.refuse_foreign(PROCESSORS[name])
    except TilewrightError:
        return False
    return True


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("cpu", ["amx", "avx512", "avx2", "sse2", "portable"])
def test_every_processor_with_every_compiler(tmp_path: Path, cpu: str, compiler: str) -> None:
    if reason := missing(compiler, "make"):
        pytest.skip(reason)
    if not runs_here(cpu) and processors.PROCESSORS[cpu].architecture:
        pytest.skip(f"this machine does not run {cpu}")
    program = package(tmp_path, cpu)
    make(program, f"CC={compiler}", f"CFLAGS={STRICT}")
    close(run_program(program))


def test_neon_under_an_emulator(tmp_path: Path) -> None:
    if reason := missing(CROSS_COMPILER, "make"):
        pytest.skip(reason)
    program = package(tmp_path, "neon")
    # A static program can be run by an emulator that has no system of that kind at hand.
    make(program, f"CC={CROSS_COMPILER}", f"CFLAGS={STRICT} -static", "pictures")
    if reason := missing(EMULATOR):
        pytest.skip(f"compiled, but to run it {reason}")
    close(run_program(program, wrapper=[EMULATOR]))


def test_what_is_made_for_another_processor_is_refused_here(tmp_path: Path) -> None:
    directory = package(tmp_path, "neon").parent
    executable = tilewright.Executable.load(directory)
    with pytest.raises(TilewrightError) as caught:
        executable.run({"image": image()})
    assert caught.value.problems[0].code == "cpu-foreign"
    with pytest.raises(TilewrightError) as caught:
        package(tmp_path, "z80")
    assert caught.value.problems[0].code == "cpu-processor"
    assert "avx2" in caught.value.problems[0].help


def test_results_do_not_depend_on_threads(tmp_path: Path) -> None:
    program = package(tmp_path, "avx2" if runs_here("avx2") else "portable")
    sources = "".join(path.read_text() for path in (program / "src").glob("*.c"))
    assert sources.count("long parts)") >= 3, "nothing is divided"
    flags = (*FLAGS, *processors.this_processor().flags)
    runner = CpuRunner(program, flags)
    alone = runner.run({"image": image()}).outputs["probabilities"]
    close(alone)
    for threads in (2, 3, 4, 7, 1):
        runner.threads = threads
        for _ in range(10):
            shared = runner.run({"image": image()}).outputs["probabilities"]
            assert np.array_equal(shared, alone), threads
    with pytest.raises(TilewrightError) as caught:
        runner.threads = 0
    assert caught.value.problems[0].code == "option-threads"


def test_runners_with_teams_run_side_by_side(tmp_path: Path) -> None:
    program = package(tmp_path, None)
    runners = [CpuRunner(program) for _ in range(3)]
    for runner in runners:
        runner.threads = 2
    alone = CpuRunner(program).run({"image": image()}).outputs["probabilities"]

    def several(runner: CpuRunner) -> list[np.ndarray]:
        return [runner.run({"image": image()}).outputs["probabilities"] for _ in range(20)]

    with ThreadPoolExecutor(3) as pool:
        for found in pool.map(several, runners):
            assert all(np.array_equal(one, alone) for one in found)


USER = """
#include "pictures.hpp"
#include <cstdio>
#include <vector>

int main(int count, char **arguments)
{
    std::vector<float> image(PICTURES_IN_IMAGE_ELEMENTS);
    std::vector<float> found(PICTURES_OUT_PROBABILITIES_ELEMENTS);
    std::FILE *file = std::fopen(arguments[2], "rb");
    if (count != 4 || !file || std::fread(image.data(), 4, image.size(), file) != image.size())
        return 2;
    std::fclose(file);
    pictures_network::Network network(arguments[1], 2);
    network.run(image.data(), found.data());
    file = std::fopen(arguments[3], "wb");
    std::fwrite(found.data(), 4, found.size(), file);
    return std::fclose(file);
}
"""


def test_a_cpp_program_through_pkg_config(tmp_path: Path) -> None:
    if reason := missing("g++", "make", "pkg-config"):
        pytest.skip(reason)
    program = package(tmp_path, None)
    installed = tmp_path / "installed"
    make(program, "install", f"PREFIX={installed}")
    (program / "user.cpp").write_text(USER)
    found = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "pictures"],
        env={"PATH": "/usr/bin:/bin", "PKG_CONFIG_PATH": str(installed / "lib/pkgconfig")},
        capture_output=True,
        text=True,
        check=True,
    )
    strict = ["-std=c++11", "-Wall", "-Wextra", "-Werror"]
    link = [*found.stdout.split(), f"-Wl,-rpath,{installed / 'lib'}"]
    command = ["g++", *strict, program / "user.cpp", "-o", program / "user", *link]
    subprocess.run(command, check=True)
    close(run_program(program, "user"))


PROJECT = """
cmake_minimum_required(VERSION 3.13)
project(user LANGUAGES C CXX)
add_subdirectory(package/program pictures)
add_executable(user user.cpp)
target_compile_options(user PRIVATE -Wall -Wextra -Werror)
target_link_libraries(user PRIVATE pictures)
"""


def test_a_project_of_cmake(tmp_path: Path) -> None:
    if reason := missing("cmake", "g++"):
        pytest.skip(reason)
    program = package(tmp_path, None)
    (tmp_path / "user.cpp").write_text(USER)
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    build = tmp_path / "build"
    for command in (
        ["cmake", "-S", tmp_path, "-B", build, "-DCMAKE_C_FLAGS=-Werror"],
        ["cmake", "--build", build, "-j2"],
        ["cmake", "--install", build, "--prefix", tmp_path / "installed"],
    ):
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    (build / "user").rename(program / "user")
    close(run_program(program, "user"))
    assert (tmp_path / "installed/include/pictures.hpp").exists()
