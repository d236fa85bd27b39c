"""Names: of packages and of all that is in them; two packages in one program; their weights."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.targets.cpu.built_networks import missing

import tilewright
from tilewright.errors import TilewrightError
from tilewright.graph.names import network_name
from tilewright.runtime.manifest import Manifest
from tilewright.system.typed_json import from_json

pytestmark = pytest.mark.usefixtures("built_apart")


def save_model(path: Path, seed: int) -> Path:
    """What torch.onnx writes, by its name: every one is ``main_graph``."""
    random = np.random.default_rng(seed)
    w = random.standard_normal((8, 3, 3, 3)).astype(np.float32)
    dense = random.standard_normal((5, 8)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["a"], "conv", kernel_shape=[3, 3]),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("GlobalAveragePool", ["b"], ["c"], "mean"),
        helper.make_node("Flatten", ["c"], ["d"], "flat"),
        helper.make_node("Gemm", ["d", "dense"], ["scores"], "dense", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "main_graph",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 10, 12])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 5])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(dense, "dense")],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def run_on_onnxruntime(path: Path, image: np.ndarray) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"image": image})[0])


IMAGE = np.random.default_rng(9).standard_normal((1, 3, 10, 12)).astype(np.float32)

PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include "first.h"
#include "second.h"

static unsigned char space[FIRST_WORKSPACE_BYTES + SECOND_WORKSPACE_BYTES + 64]
    __attribute__((aligned(64)));

static void *file(const char *name, size_t bytes)
{
    void *p = NULL;
    FILE *f = fopen(name, "rb");
    if (!f || posix_memalign(&p, 64, bytes) || fread(p, 1, bytes, f) != bytes || fclose(f))
        exit(2);
    return p;
}

int main(int count, char **names)
{
    if (count != 5)
        return 2;
    void *one = file(names[1], FIRST_WEIGHT_BYTES), *two = file(names[2], SECOND_WEIGHT_BYTES);
    float *image = file(names[3], sizeof(float) * FIRST_IN_IMAGE_ELEMENTS);
    float scores[FIRST_OUT_SCORES_ELEMENTS + SECOND_OUT_SCORES_ELEMENTS];
    if (first_check_weights(one) || second_check_weights(two))
        return 3;
    if (!first_check_weights(two) || !second_check_weights(one))
        return 4;
    first_run(one, space, image, scores);
    second_run(two, space, image, scores + FIRST_OUT_SCORES_ELEMENTS);
    FILE *f = fopen(names[4], "wb");
    fwrite(scores, sizeof scores, 1, f);
    return fclose(f);
}
"""

PROJECT = """
cmake_minimum_required(VERSION 3.13)
project(user LANGUAGES C)
add_subdirectory({0}/program {0})
add_subdirectory({1}/program {1})
add_executable(user user.c)
target_compile_options(user PRIVATE -Wall -Wextra -Werror)
target_link_libraries(user PRIVATE {0} {1})
"""


def run(*command: object, cwd: Path) -> str:
    ran = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two packages, one named after its file, one as asked, and a program of both."""
    folder = tmp_path_factory.mktemp("pair")
    path = save_model(folder / "first.onnx", 1)
    tilewright.compile(path, directory=folder / "first", cpu="portable")
    model = save_model(folder / "other.onnx", 2)
    tilewright.compile(model, directory=folder / "second", name="second", cpu="portable")
    (folder / "user.c").write_text(PROGRAM)
    IMAGE.tofile(folder / "image.bin")
    return folder


def check_program(folder: Path, program: Path) -> None:
    weights = [folder / name / "program/weights.bin" for name in ("first", "second")]
    run(program, *weights, folder / "image.bin", folder / "scores.bin", cwd=folder)
    found = np.fromfile(folder / "scores.bin", np.float32).reshape(2, 5)
    for number, name in enumerate(("first", "other")):
        expected = run_on_onnxruntime(folder / f"{name}.onnx", IMAGE)[0]
        np.testing.assert_allclose(found[number], expected, rtol=1e-4, atol=1e-5)
    assert np.abs(found[0] - found[1]).max() > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("order", [("first", "second"), ("second", "first")])
@pytest.mark.parametrize("how", ["make", "cmake", "one folder"])
def test_two_packages_in_one_program(
    pair: Path, tmp_path: Path, order: tuple[str, str], how: str
) -> None:
    if reason := missing("cc", "make", "cmake", "nm"):
        pytest.skip(reason)
    folder = Path(shutil.copytree(pair, tmp_path / "pair"))
    includes = [f"-I{name}/program/include" for name in order]
    strict = ["-std=gnu99", "-Wall", "-Wextra", "-Werror", "-static"]
    if how == "cmake":
        (folder / "CMakeLists.txt").write_text(PROJECT.format(*order))
        run("cmake", "-S", ".", "-B", "build", cwd=folder)
        run("cmake", "--build", "build", "-j2", cwd=folder)
        check_program(folder, folder / "build/user")
        return
    if how == "one folder":
        for name in order:  # Whoever copies both packages' sources into a project.
            for path in [*(folder / name).glob("program/*/*.[ch]")]:
                assert not (folder / "all" / path.name).exists()
                (folder / "all").mkdir(exist_ok=True)
                shutil.copy(path, folder / "all")
        sources = sorted((folder / "all").glob("*.c"))
        flags = ["-O1", "-march=native", "-fno-math-errno", "-pthread"]
        run("cc", *strict, *flags, "-Iall", "user.c", *sources, "-o", "user", "-lm", cwd=folder)
        check_program(folder, folder / "user")
        return
    libraries: list[str] = []
    for name in order:
        run("make", "-s", "-j2", "-C", f"{name}/program", f"lib{name}.a", cwd=folder)
        libraries.append(f"{name}/program/lib{name}.a")
        listed = run("nm", "-g", "--defined-only", libraries[-1], cwd=folder).splitlines()
        symbols = [line.split()[-1] for line in listed if len(line.split()) == 3]
        assert f"{name}_run" in symbols
        assert [symbol for symbol in symbols if not symbol.startswith(f"{name}_")] == []
    run("cc", *strict, "-pthread", *includes, "user.c", *libraries, "-o", "user", "-lm", cwd=folder)
    check_program(folder, folder / "user")


@pytest.mark.slow
def test_make_takes_the_compiler_that_it_is_told(tmp_path: Path, pair: Path) -> None:
    log = tmp_path / "log"
    script = tmp_path / "mycc"
    script.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec cc "$@"\n')
    script.chmod(0o755)
    for place, command in (
        ("environment", ["env", f"CC={script}", "make", "-s"]),
        ("option", ["make", "-s", f"CC={script}"]),
    ):
        folder = Path(shutil.copytree(pair / "first/program", tmp_path / place))
        log.write_text("")
        run(*command, "libfirst.a", cwd=folder)
        assert "first_k00_" in log.read_text(), place


def test_wrong_weights_are_an_error(pair: Path, tmp_path: Path) -> None:
    """The program's own main, and another network's weights of the same size."""
    program = Path(shutil.copytree(pair / "first/program", tmp_path / "program"))
    run("make", "-s", "-j2", "first", cwd=program)
    good = (program / "weights.bin").read_bytes()
    other = (pair / "second/program/weights.bin").read_bytes()
    assert len(good) == len(other)
    changed = bytearray(good)
    changed[len(good) // 2] ^= 1
    for content, status in ((good, 0), (other, 1), (bytes(changed), 1), (good[:-1], 1)):
        (program / "w.bin").write_bytes(content)
        command = ["./first", "w.bin", pair / "image.bin", "scores.bin"]
        ran = subprocess.run(command, cwd=program, capture_output=True, text=True, check=False)
        assert ran.returncode == status
        assert not status or "w.bin: " in ran.stderr


def test_weights_are_kept_once_and_read_back_bit_for_bit(pair: Path) -> None:
    package = tilewright.Executable.load(pair / "first")
    sizes = {name: entry.bytes for name, entry in package.manifest.files.items()}
    weights = sizes["program/weights.bin"]
    assert sum(size for name, size in sizes.items() if "weights." in name) < weights + 512
    _, stored = package._read_reference()
    arrays = {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in onnx.load(pair / "first.onnx").graph.initializer
    }
    for array in arrays.values():  # Whatever their axes are now.
        assert any(
            np.array_equal(np.sort(stored.get(symbol), None), np.sort(array, None))
            for symbol in stored
        )
    found = package.run({"image": IMAGE})
    assert package.check({"image": IMAGE}, found).equal


def test_array_and_file_give_the_same(pair: Path, tmp_path: Path) -> None:
    place = tmp_path / "array"
    made = tilewright.compile(pair / "first.onnx", directory=place, weights="array", cpu="portable")
    assert not (place / "program/weights.bin").exists()
    from_file = tilewright.Executable.load(pair / "first").run({"image": IMAGE})["scores"]
    np.testing.assert_array_equal(made.run({"image": IMAGE})["scores"], from_file)
    assert made.check({"image": IMAGE}, made.run({"image": IMAGE})).equal
    run("make", "-s", "-j2", "first", cwd=place / "program")
    run("./first", pair / "image.bin", "scores.bin", cwd=place / "program")
    scores = np.fromfile(place / "program/scores.bin", np.float32)
    np.testing.assert_allclose(scores, from_file.reshape(-1), rtol=1e-5)


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("stem", "name"),
    [
        ("my-net.v2", "my_net_v2"),
        ("3d", "network_3d"),
        ("for", "for_network"),
        ("math", "math_network"),
        ("String", "String_network"),
        ("main", "main_network"),
        ("模型", "network"),
        ("__a__b__", "a_b"),
        ("_", "network"),
    ],
)
def test_default_names(stem: str, name: str, tmp_path: Path) -> None:
    path = save_model(tmp_path / f"{stem}.onnx", 1)
    made = tilewright.compile(path, directory=tmp_path / "package")
    assert made.manifest.model == name
    assert (tmp_path / "package/program/include" / f"{name}.h").exists()
    assert made.run({"image": IMAGE})
    assert network_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "for", "main", "math", "3d", "a-b", "_a", "a__b", "a_", "né", "x" * 65, "a b"]
)
def test_names_that_cannot_be_are_refused(name: str, tmp_path: Path) -> None:
    path = save_model(tmp_path / "net.onnx", 1)
    with pytest.raises(TilewrightError, match="option-name"):
        tilewright.compile(path, directory=tmp_path / "package", name=name)
    assert not (tmp_path / "package").exists()


def test_names_of_packages_with_free_dims(tmp_path: Path) -> None:
    model = onnx.load(save_model(tmp_path / "net.onnx", 1))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(model, tmp_path / "batches.onnx")
    shapes = {"batch": "1..4"}
    for name, wanted in ((None, "batches"), ("other", "other")):
        place = tmp_path / wanted
        made = tilewright.compile(
            tmp_path / "batches.onnx", shapes=shapes, directory=place, name=name
        )
        inside = made.specialise({"batch": 2})
        assert inside.manifest.model == made.manifest.model == wanted
        assert (inside.directory / f"program/include/{wanted}.h").exists()
        text = (place / "manifest.json").read_text()
        assert from_json(Manifest, text).model == wanted
