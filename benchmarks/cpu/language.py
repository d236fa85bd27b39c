"""Language models: bytes a second of products in blocks, and tokens a second of a whole model.

    python -m benchmarks.cpu.language blocks
    python -m benchmarks.cpu.language model.gguf --threads 2 --genai FOLDER

The first multiplies matrices of 63 MB by one vector and by 16, in turns with a loop that copies as
many bytes and one that reads them, on the same thread. The second reads a prompt of 256 tokens and
makes 48, in turns with llama.cpp and OpenVINO where llama_cpp_python and openvino_genai are
installed, and with ONNX Runtime's generation of a FOLDER that onnxruntime_genai's model builder
made of the same architecture (int4 weights in blocks of 32, 8-bit products: int4_accuracy_level 4).
Best and median of all turns.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import tilewright
from tilewright.codegen.c.compiler import FLAGS, build_library
from tilewright.codegen.host.library import arena
from tilewright.frontends.emitter import NewNetwork
from tilewright.frontends.imported import Imported
from tilewright.ir import f32
from tilewright.ir.types import tensor
from tilewright.llm import LanguageModel
from tilewright.llm.package import compile_model

LOOPS = """
#include <stddef.h>
typedef long long many __attribute__((vector_size(64), aligned(8), may_alias));
void copies(char *to, const char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        *(many *)(to + i) = *(const many *)(from + i);
}
long long reads(char *to, const char *from, size_t bytes)
{
    many sum[4] = {{0}};
    (void)to;
    for (size_t i = 0; i < bytes / 4; i += 64)
        for (int j = 0; j < 4; j++)
            sum[j] += *(const many *)(from + bytes / 4 / 64 * 64 * j + i);
    return (sum[0] + sum[1] + sum[2] + sum[3])[0];
}
"""

COLUMNS, BLOCK = 2048, 32
PROMPT, MADE, TURNS = 256, 48, 6


def product(rows: int, points: int, bits: int, zero: int) -> tilewright.Executable:
    """A product with a random matrix in blocks."""
    random = np.random.default_rng(bits)
    network = NewNetwork("product", [("x", tensor((points, COLUMNS), f32))], ["y"])
    codes = random.integers(0, 256, (rows, COLUMNS * bits // 8)).astype(np.uint8)
    sides = COLUMNS // BLOCK * (1 + (zero < 0))
    scales = random.random((rows, sides)).astype(np.float16)
    operands = network.weight(codes, "codes"), network.weight(scales, "scales")
    (x,) = network.operator.block.args
    x = network.emit("block_round", [x], {"block": BLOCK}, "round")
    form = {"bits": bits, "block": BLOCK, "zero": zero}
    y = network.emit("block_matmul", [x, *operands], form, "product")
    return tilewright.compile(Imported(network.finish([y]), network.weights, "product", 0, ""))


def blocks() -> None:
    """Print the rates of products and of the loops."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "loops.c"), Path(folder, "loops.so")
        source.write_text(LOOPS)
        build_library([source], library, [], (*FLAGS, "-march=native"))
        loops = ctypes.CDLL(str(library))
    print("| form | points | product GB/s | copy GB/s | read GB/s | multiply-adds 1e9/s |")
    print("|---|---|---|---|---|---|")
    for name, bits, zero in (("Q4_1", 4, -1), ("Q8_0", 8, 128)):
        for points in (1, 16):
            rows = 49152 * 4 // bits
            executable = product(rows, points, bits, zero)
            weights = executable.runner.weights
            other = arena(weights.nbytes)
            places = [ctypes.c_void_p(a.ctypes.data) for a in (other, weights)]
            inputs = {"x": np.ones((points, COLUMNS), np.float32)}

            def run(executable: Any = executable, inputs: Any = inputs) -> float:
                profile = executable.runner.run(inputs, profile=True).profile
                return max(kernel.seconds for kernel in profile.kernels)

            def loop(name: str, places: Any = places, size: int = weights.nbytes) -> float:
                begin = time.perf_counter()
                getattr(loops, name)(*places, ctypes.c_size_t(size))
                return time.perf_counter() - begin

            ways: Mapping[str, Callable[[], float]] = {
                "product": run,
                "copy": lambda loop=loop: loop("copies") / 2,  # Bytes are read and written.
                "read": lambda loop=loop: loop("reads"),
            }
            times = {way: [] for way in ways}
            for _ in range(31):
                for way, timed in ways.items():
                    times[way].append(timed())
            rates = [
                f"{weights.nbytes / min(t) / 1e9:.1f} ({weights.nbytes / median(t) / 1e9:.1f})"
                for t in times.values()
            ]
            work = rows * COLUMNS * points / min(times["product"]) / 1e9
            print(f"| {name} | {points} | {' | '.join(rates)} | {work:.0f} |")


def tilewright_model(path: Path, threads: int) -> Callable[[list[int]], tuple[float, float]]:
    """Read a prompt and make tokens by our package: seconds of both."""
    with tempfile.TemporaryDirectory() as folder:
        compile_model(path, Path(folder, "package"), context=PROMPT + MADE)
        model = LanguageModel(Path(folder, "package"), threads=threads)

    def run(prompt: list[int]) -> tuple[float, float]:
        model.forget()
        begin = time.perf_counter()
        logits = model.read(prompt)
        middle = time.perf_counter()
        for _ in range(MADE):
            logits = model.read([int(logits.argmax())])
        return middle - begin, time.perf_counter() - middle

    return run


def llama_model(path: Path, threads: int) -> Callable[[list[int]], tuple[float, float]] | None:
    """The same by llama.cpp; None where it is not installed."""
    try:
        import llama_cpp
    except ImportError:
        return None
    model = llama_cpp.Llama(
        str(path), n_ctx=1024, n_threads=threads, n_threads_batch=threads, verbose=False
    )
    vocabulary = model.n_vocab()

    def run(prompt: list[int]) -> tuple[float, float]:
        model.reset()
        begin = time.perf_counter()
        model.eval(prompt)
        middle = time.perf_counter()
        for _ in range(MADE):
            logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits(model.ctx), (vocabulary,))
            model.eval([int(logits.argmax())])
        return middle - begin, time.perf_counter() - middle

    return run


def openvino_model(path: Path, threads: int) -> Callable[[list[int]], tuple[float, float]] | None:
    """The same by OpenVINO, which says the times; None where it is not installed."""
    try:
        import openvino
        import openvino_genai
    except ImportError:
        return None
    pipeline = openvino_genai.LLMPipeline(str(path), "CPU", INFERENCE_NUM_THREADS=threads)

    def run(prompt: list[int]) -> tuple[float, float]:
        ids, mask = (openvino.Tensor(a) for a in (np.array([prompt]), np.ones((1, PROMPT), int)))
        inputs = openvino_genai.TokenizedInputs(ids, mask)
        # The first token is the prompt's.
        made = pipeline.generate(
            inputs, max_new_tokens=MADE + 1, ignore_eos=True, do_sample=False
        ).perf_metrics
        return made.get_ttft().mean / 1e3, made.get_tpot().mean / 1e3 * MADE

    return run


def genai_model(folder: Path, threads: int) -> Callable[[list[int]], tuple[float, float]] | None:
    """The same by ONNX Runtime; None where its generation is not installed."""
    try:
        import onnxruntime_genai
    except ImportError:
        return None
    settings = json.loads((folder / "genai_config.json").read_text())
    settings["model"]["decoder"]["session_options"]["intra_op_num_threads"] = threads
    (folder / "genai_config.json").write_text(json.dumps(settings))
    model = onnxruntime_genai.Model(str(folder))

    def run(prompt: list[int]) -> tuple[float, float]:
        parameters = onnxruntime_genai.GeneratorParams(model)
        parameters.set_search_options(max_length=PROMPT + MADE, do_sample=False)
        generator = onnxruntime_genai.Generator(model, parameters)
        begin = time.perf_counter()
        generator.append_tokens(np.array(prompt, np.int32))
        middle = time.perf_counter()
        for _ in range(MADE):
            generator.generate_next_token()
        return middle - begin, time.perf_counter() - middle

    return run


def compare(path: Path, threads: int, genai: Path | None) -> None:
    """Print tokens a second of the prompt and of steps."""
    found = {
        "Tilewright": tilewright_model(path, threads),
        "llama.cpp": llama_model(path, threads),
        "OpenVINO": openvino_model(path, threads),
        "ONNX Runtime": None if genai is None else genai_model(genai, threads),
    }
    ways = {name: run for name, run in found.items() if run is not None}
    random = np.random.default_rng(0)
    times = {name: [] for name in ways}
    for turn in range(TURNS + 1):
        # Another prompt each time: OpenVINO keeps what it has read.
        prompt = random.integers(100, 40_000, PROMPT).tolist()
        for name, run in ways.items():
            took = run(prompt)
            if turn:
                times[name].append(took)
    print("| | prompt, tokens a second | steps a second |\n|---|---|---|")
    for name, taken in times.items():
        rates = [
            f"{count / min(part):.0f} ({count / median(part):.0f})"
            for count, part in zip((PROMPT, MADE), zip(*taken, strict=True), strict=True)
        ]
        print(f"| {name} | {' | '.join(rates)} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", help="blocks, or a GGUF file")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--genai", type=Path, help="a folder of onnxruntime_genai")
    given = parser.parse_args()
    if given.model == "blocks":
        blocks()
    else:
        compare(Path(given.model), given.threads, given.genai)
