"""Folders of Hugging Face against the reference in NumPy, and what is wrong with them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.llm.others import CONFIG, by_ggufs_names, weights, write_folder
from tests.llm.reference import Reference
from tests.llm.test_llm import BOUND, PROMPT
from tests.llm.tiny import FIELDS
from tilewright.errors import TilewrightError
from tilewright.frontends.language import open_decoder
from tilewright.frontends.language.network import chunk_network
from tilewright.llm import LanguageModel, compile_model
from tilewright.numerics.blocks import Blocks, quantised

EXAMPLES = Path(__file__).parents[2] / "examples" / "llm"

STEPS = 32


def greedy(model: LanguageModel, reference: Reference, bound: float, steps: int = STEPS) -> None:
    """Compare a prompt's and all steps' logits, and each likeliest token, unless two nearly tie."""
    tokens = PROMPT
    for _ in range(steps):
        logits, wanted = model.read(tokens), reference.forward(tokens)[-1]
        near = bound * np.abs(wanted).max()
        assert np.abs(logits - wanted).max() <= near
        token = int(logits.argmax())
        assert wanted[token] >= wanted.max() - 2 * near
        tokens = [token]


def reference_of(given: dict[str, np.ndarray]) -> Reference:
    layers = sum(name.endswith("q_proj.weight") for name in given)
    return Reference(FIELDS | {"llama.block_count": layers}, by_ggufs_names(given))


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of a folder in floats of 16 bits."""
    folder = tmp_path_factory.mktemp("folder")
    compile_model(write_folder(folder / "model", weights(layers=2)), folder / "made", context=64)
    return folder / "made"


def test_a_folder_in_floats_which_are_held_once(package: Path) -> None:
    given, model = weights(layers=2), LanguageModel(package)
    greedy(model, reference_of(given), 1e-5)
    assert model.manifest.name == "model"
    # Two bytes a number; the table is held as rows and as an operand of the output's product.
    count = sum(array.size for array in given.values()) + given["model.embed_tokens.weight"].size
    assert model.manifest.weight_bytes < 2.5 * count


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["q8_0", "q4_0"])
def test_a_folder_quantised(kind: str, tmp_path: Path) -> None:
    given = weights(layers=1)
    folder = write_folder(tmp_path / "model", given)
    compile_model(folder, tmp_path / "package", context=64, quantise=kind)
    for name, array in given.items():
        if array.ndim == 2:
            bits = 8 if kind == "q8_0" or "embed" in name else 4
            given[name] = quantised(array.astype(np.float32), bits).rows()
    greedy(LanguageModel(tmp_path / "package"), reference_of(given), BOUND)


@pytest.mark.parametrize("bits", [4, 8])
def test_blocks_are_those_of_llama_cpp(bits: int) -> None:
    random = np.random.default_rng(bits)
    matrix = random.normal(0, 1, (5, 96)).astype(np.float32)
    matrix[2, 32:64] = 0
    found = quantised(matrix, bits)
    rows = found.rows().reshape(5, 3, 32)
    scales = np.abs(found.scales.astype(np.float64))[..., None]
    assert found.scales.dtype == np.float16
    most = np.abs(matrix.reshape(rows.shape)).max(-1, keepdims=True)
    np.testing.assert_allclose(scales, most / (127 if bits == 8 else 8), rtol=1e-3)
    # The end of the range that the largest number is not at is one step nearer to 0.
    difference = np.abs(rows - matrix.reshape(rows.shape))
    assert (difference <= (0.51 if bits == 8 else 1.01) * scales).all()
    assert (difference <= 0.51 * scales).mean() > 0.97
    huge = quantised(np.full((1, 32), 1e7, np.float32), bits)
    np.testing.assert_allclose(huge.rows(), 1e7, rtol=1e-6)


def test_texts_by_a_tokenizer_file(package: Path, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    model = LanguageModel(package)
    tokens = model.tokenizer.encode("the tin é<|end|>")
    assert tokens == [257, 258, 259, 32, 0xC3, 0xA9, 260]
    assert model.tokenizer.decode(tokens) == "the tin é<|end|>"
    take = model.tokenizer.decoder(tokens[:3])
    assert [take(token) for token in tokens[3:6]] == [" ", "", "é"]
    assert model.manifest.tokenizer is not None and model.manifest.tokenizer.end == [260]
    shutil.copytree(package, tmp_path / "package")
    (tmp_path / "package" / "tokenizer.json").write_text("{}")
    with pytest.raises(TilewrightError, match="llm-tokenizer"):
        _ = LanguageModel(tmp_path / "package").tokenizer


def test_the_example_is_what_the_script_writes(tmp_path: Path) -> None:
    made = write_folder(tmp_path / "tiny", weights())
    for name in ("config.json", "tokenizer.json"):
        assert (made / name).read_text() == (EXAMPLES / "tiny" / name).read_text()
    stored = (load_file(folder / "model.safetensors") for folder in (made, EXAMPLES / "tiny"))
    for one, other in zip(*(sorted(each.items()) for each in stored), strict=True):
        assert one[0] == other[0]
        np.testing.assert_array_equal(one[1], other[1])


def test_weights_in_several_files(tmp_path: Path) -> None:
    given = weights()
    folder = write_folder(tmp_path / "model", given)
    names = sorted(given)
    parts = {"a.safetensors": names[:4], "b.safetensors": names[4:]}
    for file, part in parts.items():
        save_file({name: given[name] for name in part}, folder / file)
    (folder / "model.safetensors").unlink()
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {n: f for f, part in parts.items() for n in part}}))
    tensors = open_decoder(folder).tensors
    found = tensors["blk.0.ffn_down.weight"].read()
    np.testing.assert_array_equal(found, given["model.layers.0.mlp.down_proj.weight"])
    index.write_text(json.dumps({"weight_map": {"a": "../a.safetensors"}}))
    with pytest.raises(TilewrightError, match="llm-file"):
        open_decoder(folder)
    (folder / "pytorch_model.bin").touch()
    index.unlink()
    with pytest.raises(TilewrightError, match=r"llm-file.*pickles"):
        open_decoder(folder)


def test_rotations_of_other_kinds() -> None:
    from tilewright.frontends.language.transformers import Config

    plain = 500.0 ** (-np.arange(8) / 8)
    linear = {"rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 4}}
    np.testing.assert_allclose(Config("", linear).turns(16), plain / 4)
    llama3 = {
        "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
    }  # fmt: skip
    found = Config("", {"rope_parameters": llama3}).turns(16)
    # By the definition: waves of more than 64 tokens are slowed down, of less than 16 are not.
    waves = 2 * np.pi / plain
    np.testing.assert_allclose(found[waves < 16], plain[waves < 16])
    np.testing.assert_allclose(found[waves > 64], plain[waves > 64] / 8)
    assert ((found <= plain) & (found >= plain / 8)).all()


def _without(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        given = load_file(folder / "model.safetensors")
        del given[name]
        save_file(given, folder / "model.safetensors")

    return change


def _with(name: str, array: np.ndarray) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        given = load_file(folder / "model.safetensors")
        save_file(given | {name: array}, folder / "model.safetensors")

    return change


def _cut(file: str, size: int) -> Callable[[Path], None]:
    return lambda folder: (folder / file).write_bytes((folder / file).read_bytes()[:size])  # type: ignore


K = "model.layers.0.self_attn.k_proj"


@pytest.mark.parametrize(
    ("config", "change", "code", "words"),
    [
        ({"model_type": "mamba"}, None, "llm-architecture", "mamba"),
        ({"model_type": ["llama"]}, None, "llm-architecture", "architecture"),
        ({"architectures": ["LlamaModel"]}, None, "llm-architecture", "LlamaModel"),
        ({"architectures": 2}, None, "llm-model", "architectures"),
        ({"hidden_act": "gelu"}, None, "llm-architecture", "gelu"),
        ({"rope_scaling": {"rope_type": "yarn"}}, None, "llm-architecture", "yarn"),
        ({"quantization_config": {"bits": 4}}, None, "llm-architecture", "quantised"),
        ({"layer_types": ["linear_attention"]}, None, "llm-architecture", "linear_attention"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, None, "llm-model", "factor"),
        ({"rope_scaling": 7}, None, "llm-model", "rotations"),
        ({"rope_theta": -1.0}, None, "llm-model", "rotations"),
        ({"hidden_size": None}, None, "llm-model", "hidden_size"),
        ({"hidden_size": "64"}, None, "llm-model", "hidden_size"),
        ({"hidden_size": 128}, None, "llm-model", "has shape"),
        ({"vocab_size": 260}, None, "llm-model", "embed_tokens"),
        ({"num_hidden_layers": 2}, None, "llm-model", "layers.1"),
        ({"num_hidden_layers": 1 << 23}, None, "llm-model", "layers"),
        ({"num_attention_heads": 0}, None, "llm-model", "heads"),
        ({"num_key_value_heads": 3}, None, "llm-model", "4 heads"),
        ({"rms_norm_eps": 2}, None, "llm-model", "epsilon"),
        ({"tie_word_embeddings": False}, None, "llm-model", "lm_head"),
        ({"attention_bias": True}, None, "llm-model", "bias"),
        ({}, _without(f"{K}.weight"), "llm-model", "k_proj"),
        ({}, _with(f"{K}.bias", np.zeros(32, np.float32)), "llm-model", "k_proj.bias"),
        ({}, _with(f"{K}.weight", np.zeros((32, 64), np.int8)), "llm-type", "I8"),
        ({}, _with(f"{K}.weight", np.zeros((32, 60), np.float16)), "llm-model", "k_proj"),
        ({}, _cut("config.json", 40), "llm-file", "config.json"),
        ({}, _cut("model.safetensors", 5000), "llm-file", "model.safetensors"),
        ({}, _cut("model.safetensors", 0), "llm-file", "model.safetensors"),
        ({}, _cut("tokenizer.json", 100), "llm-file", "tokenizer.json"),
        ({}, lambda f: (f / "config.json").unlink(), "llm-file", "config.json"),
        ({}, lambda f: (f / "config.json").write_text("[]"), "llm-file", "config.json"),
        ({}, lambda f: (f / "model.safetensors").unlink(), "llm-file", "model.safetensors"),
        ({"sliding_window": 32, "model_type": "mistral"}, None, "llm-context", "32 tokens"),
    ],
)
def test_folders_that_are_not_compiled(
    config: dict[str, Any], change: Any, code: str, words: str, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "model", weights(), **config)
    if change is not None:
        change(folder)
    with pytest.raises(TilewrightError, match=words) as caught:
        compile_model(folder, tmp_path / "package")
    assert [problem.code for problem in caught.value.problems] == [code]
    assert not (tmp_path / "package").exists()


def test_a_window_that_the_context_does_not_reach(tmp_path: Path) -> None:
    config = {"sliding_window": 32, "model_type": "mistral"}
    decoder = open_decoder(write_folder(tmp_path / "model", weights(), **config))
    assert decoder.sizes.window == 32
    whole = {"use_sliding_window": False, "model_type": "qwen2", "sliding_window": 32}
    with pytest.raises(TilewrightError, match=r"q_proj\.bias"):
        open_decoder(write_folder(tmp_path / "other", weights(), **whole))


def test_kinds_of_blocks_that_there_are_none_of(tmp_path: Path) -> None:
    decoder = open_decoder(EXAMPLES / "tiny")
    with pytest.raises(TilewrightError, match="llm-quantise"):
        decoder.quantised("q5_1")
    given = weights()
    name = "model.layers.0.mlp.down_proj.weight"
    for part in ("gate", "up"):
        other = name.replace("down", part)
        given[other] = given[other][:90]
    given[name] = given[name][:, :90].copy()
    folder = write_folder(tmp_path / "model", given, intermediate_size=90)
    with pytest.raises(TilewrightError, match=r"llm-quantise.*rows of 90"):
        chunk_network(open_decoder(folder).quantised("q8_0"), rows=1, context=16, name="n")
    assert chunk_network(open_decoder(folder), rows=1, context=16, name="n")


def test_blocks_of_a_file_stay_as_they_are() -> None:
    decoder = open_decoder(EXAMPLES / "tiny.gguf").quantised("q8_0")
    weight = decoder.tensors["blk.0.ffn_up.weight"].read()
    assert isinstance(weight, Blocks) and weight.bits == 4
    assert CONFIG["model_type"] == "llama"
