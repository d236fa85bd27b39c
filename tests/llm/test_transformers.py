"""Modules of transformers, their folders and their exports to ONNX, against their own logits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.llm.others import CONFIG, tokenizer
from tilewright.errors import TilewrightError
from tilewright.frontends.language import open_decoder
from tilewright.llm import LanguageModel, compile_model

pytestmark = [
    pytest.mark.slow,
    # The exporter that traces warns in ways of its own of whatever depends on shapes.
    pytest.mark.filterwarnings("ignore"),
]

PROMPT, STEPS = 21, 32

NEAR = 1e-5
"""Difference of logits, of the largest: both compute in float32."""

LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
}  # fmt: skip

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"tie_word_embeddings": True}),
    "llama3": ("Llama", {"rope_parameters": LLAMA3, "attention_bias": True, "mlp_bias": True}),
    "mistral": ("Mistral", {"sliding_window": 64, "head_dim": 24}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
}


def module_of(name: str) -> Any:
    """A small module of random weights, all of which matter."""
    modules = pytest.importorskip("tests.frontends.torch.modules")
    library, torch = modules.package("transformers"), modules.torch
    kind, more = MODELS[name]
    sizes = {key: CONFIG[key] for key in ("hidden_size", "intermediate_size", "vocab_size")}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}
    sizes |= {"initializer_range": 0.1, "max_position_embeddings": 96, "eos_token_id": None}
    torch.manual_seed(0)
    config = getattr(library, f"{kind}Config")(**sizes, **more)
    module = getattr(library, f"{kind}ForCausalLM")(config).eval()
    with torch.no_grad():
        for label, parameter in module.named_parameters():
            if parameter.ndim == 1:
                noise = 0.2 * torch.randn(parameter.shape)
                parameter.copy_(noise if "bias" in label else 1 + noise)
    return module


def compare(module: Any, package: Path) -> None:
    """Compare logits of a prompt and of greedy steps, and each token, unless two nearly tie."""
    torch = pytest.importorskip("torch")
    model = LanguageModel(package)
    read = np.random.default_rng(0).integers(0, CONFIG["vocab_size"], PROMPT).tolist()
    new = read
    for _ in range(STEPS):
        logits = model.read(new)
        with torch.no_grad():
            wanted = module(torch.tensor([read])).logits[0, -1].numpy()
        near = NEAR * np.abs(wanted).max()
        assert np.abs(logits - wanted).max() <= near
        token = int(logits.argmax())
        assert wanted[token] >= wanted.max() - 2 * near
        new = [token]
        read = read + new


@pytest.mark.parametrize("name", MODELS)
def test_modules_and_their_folders(name: str, tmp_path: Path) -> None:
    module = module_of(name)
    compile_model(module, tmp_path / "package", context=64)
    compare(module, tmp_path / "package")
    module.save_pretrained(tmp_path / "folder")
    one, other = open_decoder(module), open_decoder(tmp_path / "folder")
    assert one.sizes == other.sizes
    np.testing.assert_array_equal(one.frequencies, other.frequencies)
    assert one.tensors.keys() == other.tensors.keys()
    for key, tensor in one.tensors.items():
        np.testing.assert_array_equal(tensor.read(), other.tensors[key].read())


def exported(module: Any, path: Path, *, dynamo: bool, opset: int) -> None:
    """Export a module with its cache, as Optimum does."""
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("transformers")

    class Wrapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, ids: Any, mask: Any, positions: Any, *past: Any) -> Any:
            past = past[0] if len(past) == 1 else past
            pairs = list(zip(past[::2], past[1::2], strict=True))
            result = self.inner(
                input_ids=ids, attention_mask=mask, position_ids=positions,
                past_key_values=library.DynamicCache(pairs), use_cache=True,
            )  # fmt: skip
            layers = result.past_key_values.layers
            return (result.logits, *(x for layer in layers for x in (layer.keys, layer.values)))

    config = module.config
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    past = [torch.randn(1, 2, 3, size) for _ in range(4)]
    given = (torch.ones(1, 5).long(), torch.ones(1, 8).long(), torch.arange(3, 8)[None], *past)
    names = ["input_ids", "attention_mask", "position_ids"]
    caches = [f"{layer}.{kind}" for layer in range(2) for kind in ("key", "value")]
    shared: dict[str, Any] = {
        "input_names": names + [f"past_key_values.{n}" for n in caches],
        "output_names": ["logits", *(f"present.{n}" for n in caches)],
        "dynamo": dynamo, "opset_version": opset,
    }  # fmt: skip
    if dynamo:
        free = torch.export.Dim.DYNAMIC
        shapes = (*[{1: free}] * 3, tuple({2: free} for _ in past))
        torch.onnx.export(
            Wrapped(), given, path, dynamic_shapes=shapes, external_data=False, **shared
        )
        return
    axes: dict[str, dict[int, str]] = {name: {0: "batch", 1: f"{name}_1"} for name in names}
    axes |= {f"past_key_values.{n}": {0: "batch", 2: "past"} for n in caches}
    torch.onnx.export(Wrapped(), given, str(path), dynamic_axes=axes, **shared)


@pytest.mark.parametrize(
    ("name", "dynamo", "opset"),
    [("llama", True, 20), ("mistral", True, 23), ("llama3", False, 17), ("qwen2", False, 14)],
)
def test_exports_to_onnx(name: str, dynamo: bool, opset: int, tmp_path: Path) -> None:
    module = module_of(name)
    exported(module, tmp_path / "model.onnx", dynamo=dynamo, opset=opset)
    compile_model(tmp_path / "model.onnx", tmp_path / "package", context=64)
    compare(module, tmp_path / "package")


def test_heads_that_are_normalised_are_not_read_from_onnx(tmp_path: Path) -> None:
    exported(module_of("qwen3"), tmp_path / "model.onnx", dynamo=True, opset=20)
    with pytest.raises(TilewrightError, match=r"llm-decoder.*does not compute"):
        open_decoder(tmp_path / "model.onnx")


def test_quantised_weights(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    module = module_of("llama")
    compile_model(module, tmp_path / "package", context=64, quantise="q8_0")
    tokens = np.random.default_rng(1).integers(0, CONFIG["vocab_size"], 40)
    with torch.no_grad():
        wanted = module(torch.tensor(tokens)[None]).logits[0, -1].numpy()
    found = LanguageModel(tmp_path / "package").read(tokens.tolist())
    assert np.abs(found - wanted).max() <= 0.03 * np.abs(wanted).max()


def test_a_module_with_its_tokenizer(tmp_path: Path) -> None:
    library = pytest.importorskip("tokenizers")
    made = library.Tokenizer.from_str(json.dumps(tokenizer()))
    module = module_of("llama")
    module.generation_config.eos_token_id = [260, 7]
    compile_model(module, tmp_path / "package", context=48, tokenizer=made, name="tiny")
    model = LanguageModel(tmp_path / "package")
    assert model.manifest.name == "tiny" and model.manifest.tokenizer is not None
    assert model.manifest.tokenizer.end == [260, 7]
    assert model.tokenizer.encode("the tin") == made.encode("the tin").ids
    assert len(list(model.generate("the tin", 4))) <= 4


def test_modules_that_are_no_language_models() -> None:
    modules = pytest.importorskip("tests.frontends.torch.modules")
    library = modules.package("transformers")
    with pytest.raises(TilewrightError, match=r"llm-architecture.*Linear"):
        open_decoder(modules.torch.nn.Linear(2, 2))
    sizes = {"n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 50}
    other = library.GPT2LMHeadModel(library.GPT2Config(**sizes))
    with pytest.raises(TilewrightError, match=r"llm-architecture.*GPT2"):
        open_decoder(other)
