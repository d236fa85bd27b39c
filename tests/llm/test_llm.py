"""Packages of language models against a reference in NumPy, on small models of random weights."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.llm.reference import Floats, Reference
from tests.llm.tiny import FIELDS, write, write_tiny
from tilewright.codegen.c.compiler import find_compiler
from tilewright.errors import TilewrightError
from tilewright.frontends.gguf.reader import read_gguf
from tilewright.llm import LanguageModel
from tilewright.llm.package import compile_model

PROMPT = [84, 256, 32, 7, 250, 19, 3, 3, 100, 255, 1, 77, 140, 33, 200, 9, 61, 62, 63, 199, 5]
"""More than a chunk."""

BOUND = 3e-4
"""Difference of logits, of the largest: products round their operand to 16 bits, of which each
block of 32 numbers has a scale."""

Weights = dict[str, Floats]


def _close(logits: np.ndarray, wanted: Floats) -> None:
    assert np.abs(logits - wanted).max() <= BOUND * np.abs(wanted).max()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Weights]:
    """A package, and the weights of its model."""
    folder = tmp_path_factory.mktemp("llm")
    weights = write_tiny(folder / "tiny.gguf")
    compile_model(folder / "tiny.gguf", folder / "package", context=48)
    return folder / "package", weights


@pytest.fixture
def model(made: tuple[Path, Weights]) -> LanguageModel:
    return LanguageModel(made[0])


def test_logits_of_a_prompt_and_of_steps(made: tuple[Path, Weights], model: LanguageModel) -> None:
    reference = Reference(FIELDS, made[1])
    _close(model.read(PROMPT), reference.forward(PROMPT)[-1])
    for token in (4, 255, 0, 17, 17):
        _close(model.read([token]), reference.forward([token])[0])


def test_a_prompt_in_any_parts_gives_the_same(model: LanguageModel) -> None:
    whole = model.read(PROMPT).copy()
    for parts in ([1] * len(PROMPT), [3, 16, 2], [20, 1]):
        model.forget()
        start = 0
        for part in parts:
            model.read(PROMPT[start : start + part])
            start += part
        np.testing.assert_allclose(model.logits, whole, rtol=0, atol=1e-5 * np.abs(whole).max())


def test_memory_may_hold_anything_at_first(model: LanguageModel) -> None:
    whole = model.read(PROMPT).copy()
    model.forget()
    model.memory[:] = 255  # Numbers that are none.
    np.testing.assert_array_equal(model.read(PROMPT), whole)


def test_the_example_is_what_the_script_writes(tmp_path: Path) -> None:
    write_tiny(tmp_path / "tiny.gguf")
    example = Path(__file__).parents[2] / "examples" / "llm" / "tiny.gguf"
    assert example.read_bytes() == (tmp_path / "tiny.gguf").read_bytes()


def test_threads_change_nothing(made: tuple[Path, Weights], model: LanguageModel) -> None:
    np.testing.assert_array_equal(
        LanguageModel(made[0], threads=2).read(PROMPT), model.read(PROMPT)
    )


def test_a_full_cache_is_an_error_that_changes_nothing(model: LanguageModel) -> None:
    before = model.read([1] * 47).copy()
    with pytest.raises(TilewrightError, match="llm-full"):
        model.read([2, 3])
    assert len(model.tokens) == 47
    np.testing.assert_array_equal(model.logits, before)
    model.read([2])
    with pytest.raises(TilewrightError, match="llm-full"):
        model.read([2])
    assert [len(list(model.generate([1] * n, 9))) for n in (48, 46)] == [1, 3]


def test_chunks_at_the_end_of_the_cache(made: tuple[Path, Weights], model: LanguageModel) -> None:
    tokens = (PROMPT * 3)[:48]
    _close(model.read(tokens), Reference(FIELDS, made[1]).forward(tokens)[-1])


@pytest.mark.parametrize("tokens", [[261], [-1], [1 << 40], []])
def test_tokens_that_there_are_not(model: LanguageModel, tokens: list[int]) -> None:
    with pytest.raises(TilewrightError, match="llm-empty" if not tokens else "llm-token"):
        model.read(tokens)


def test_generation(made: tuple[Path, Weights], model: LanguageModel) -> None:
    greedy = [piece.token for piece in model.generate(PROMPT, 12)]
    reference, tokens = Reference(FIELDS, made[1]), PROMPT
    for token in greedy:
        assert token == reference.forward(tokens)[-1].argmax()
        tokens = [token]
    assert [piece.token for piece in model.generate(PROMPT, 12)] == greedy

    def sampled(seed: int) -> list[int]:
        return [p.token for p in model.generate(PROMPT, 12, temperature=1.5, seed=seed)]

    assert sampled(1) == sampled(1) != sampled(2)


def test_text_to_tokens_and_back(model: LanguageModel) -> None:
    pytest.importorskip("tokenizers")
    tokens = model.tokenizer.encode("the tin é<|end|>")
    assert tokens == [257, 258, 259, 32, 0xC3, 0xA9, 260]
    assert model.tokenizer.decode(tokens) == "the tin é<|end|>"
    take = model.tokenizer.decoder()
    assert [take(token) for token in tokens[3:6]] == [" ", "", "é"]
    pieces = list(model.generate("the tin", 6))
    assert len(pieces) == 6


@pytest.mark.parametrize(
    ("kind", "output", "cpu"),
    [
        ("Q4_0", None, None),
        ("Q8_0", None, "avx2"),
        ("Q4_1", "Q8_0", "portable"),
        pytest.param("Q6_K", None, None, marks=pytest.mark.slow),
        pytest.param("Q6_K", None, "sse2", marks=pytest.mark.slow),
        pytest.param("Q4_1", "Q6_K", "avx2", marks=pytest.mark.slow),
        pytest.param("F16", None, None, marks=pytest.mark.slow),
        pytest.param("F32", "F16", None, marks=pytest.mark.slow),
        pytest.param("Q8_0", None, "portable", marks=pytest.mark.slow),
    ],
)
def test_kinds_of_weights(kind: str, output: str | None, cpu: str | None, tmp_path: Path) -> None:
    sizes = (
        {"embedding_length": 256, "feed_forward_length": 512} if "Q6_K" in (kind, output) else {}
    )
    weights = write_tiny(tmp_path / "tiny.gguf", kind, output, block_count=1, **sizes)
    compile_model(tmp_path / "tiny.gguf", tmp_path / "package", cpu=cpu)
    model = LanguageModel(tmp_path / "package")
    fields = FIELDS | {f"llama.{name}": size for name, size in sizes.items()}
    reference = Reference(fields | {"llama.block_count": 1}, weights)
    _close(model.read(PROMPT), reference.forward(PROMPT)[-1])
    _close(model.read([4]), reference.forward([4])[0])


def test_files_read_as_the_package_gguf_reads_them(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    for kind in ("Q4_0", "Q4_1", "Q8_0", "Q6_K"):
        path = tmp_path / f"{kind}.gguf"
        weights = write_tiny(path, kind, embedding_length=256, feed_forward_length=256)
        file, reader = read_gguf(path), gguf.GGUFReader(path)
        contents = {name: field.contents() for name, field in reader.fields.items()}
        assert file.fields == {k: v for k, v in contents.items() if not k.startswith("GGUF.")}
        for tensor in reader.tensors:
            wanted = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            np.testing.assert_allclose(weights[tensor.name], wanted, rtol=1e-5)
            if wanted.ndim == 2:
                found = file.matrix(tensor.name, wanted.shape)
                np.testing.assert_allclose(found.rows(), wanted, rtol=1e-6, atol=1e-7)


def test_a_program_in_c(made: tuple[Path, Weights], model: LanguageModel, tmp_path: Path) -> None:
    program = made[0] / "program"
    sources = [str(program / "main.c"), *map(str, sorted((program / "src").glob("*.c")))]
    flags = ["-march=native", "-std=gnu99", "-pthread", "-Wall", "-Wextra", "-Werror", "-O1"]
    flags += [f"-I{program / folder}" for folder in ("include", "src")]
    built = [*find_compiler(), *flags, *sources, "-o", str(tmp_path / "tiny"), "-lm"]
    subprocess.run(built, check=True)
    wanted = [str(piece.token) for piece in model.generate(PROMPT, 5)]
    for threads in "12":
        words = [str(program / "weights.bin"), "5", threads, *map(str, PROMPT)]
        result = subprocess.run(
            [str(tmp_path / "tiny"), *words], check=True, capture_output=True, text=True
        )
        assert result.stdout.split() == wanted
    tokens = ["1"] * 49
    words = [str(program / "weights.bin"), "5", "1", *tokens]
    assert subprocess.run([str(tmp_path / "tiny"), *words], check=False).returncode == 2


def test_files_that_are_cut_off(tmp_path: Path) -> None:
    whole, path = tmp_path / "tiny.gguf", tmp_path / "cut.gguf"
    write_tiny(whole)
    data = whole.read_bytes()
    for size in (0, 3, 10, 24, 40, *range(60, len(data), 4801), len(data) - 33):
        path.write_bytes(data[:size])
        with pytest.raises(TilewrightError, match="gguf-file"):
            read_gguf(path)


@pytest.mark.parametrize(
    "head",
    [
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60),
        b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0),
        b"GGUF" + struct.pack("<IQQ", 9, 0, 0),
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 60),
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"a" + struct.pack("<IIQ", 9, 4, 1 << 40),
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"a" + struct.pack("<IIQ", 9, 9, 1 << 40),
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"\xff" + struct.pack("<II", 4, 1),
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"a" + struct.pack("<II", 99, 1),
        b"GGUF"
        + struct.pack("<IQQQ", 3, 1, 0, 1)
        + b"a"
        + struct.pack("<I4QIQ", 4, *[1 << 40] * 4, 0, 0),
    ],
)
def test_files_that_lie(head: bytes, tmp_path: Path) -> None:
    path = tmp_path / "false.gguf"
    path.write_bytes(head + bytes(64))
    with pytest.raises(TilewrightError, match="gguf-file"):
        read_gguf(path)


def test_models_that_are_not_compiled(tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"

    def refused(code: str, words: str) -> None:
        with pytest.raises(TilewrightError, match=words) as caught:
            compile_model(path, tmp_path / "package")
        assert [problem.code for problem in caught.value.problems] == [code]
        assert not (tmp_path / "package").exists()

    write(path, FIELDS | {"general.architecture": "mamba"}, {})
    refused("llm-architecture", "mamba")
    write(path, FIELDS, {})
    refused("llm-model", "token_embd.weight")
    write_tiny(path, attention__head_count_kv=3)
    refused("llm-model", "4 heads")
    write_tiny(path, block_count=3)
    write(path, read_gguf(path).fields | {"llama.block_count": 4}, {
        "token_embd.weight": (13, b"", (256, 64)),
    })  # fmt: skip
    refused("gguf-type", "of type 13")
    (tmp_path / "none.gguf").write_text("")
    path = tmp_path / "none.gguf"
    refused("gguf-file", "GGUF")
    path = tmp_path / "missing.gguf"
    refused("gguf-file", "No such file")
