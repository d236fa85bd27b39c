"""Causal language models of the library transformers, as modules or folders of Hugging Face.

A folder has ``config.json``, weights in ``model.safetensors`` (or several files, which an index
names) and perhaps ``tokenizer.json``. Nothing in it is executed, and torch is not needed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from tilewright.errors import TilewrightError, refuse
from tilewright.frontends.language.decoder import (
    FILE,
    Decoder,
    Sizes,
    Tensor,
    TokenizerData,
    frequencies,
)
from tilewright.frontends.limits import shown
from tilewright.ir.types import Array

KNOWN = ("llama", "mistral", "qwen2", "qwen3")
"""Values of ``model_type`` that are compiled; SmolLM and SmolLM2 are ``llama``."""

WEIGHTS = "model.safetensors"

FLOATS = ("F16", "F32", "BF16", "F64", "float16", "float32", "bfloat16", "float64")
"""Elements of weights that are read, as safetensors and NumPy name them."""

Vocabulary = tuple[TokenizerData, str]
"""Tokens that end texts, and the text of a ``tokenizer.json``, which may be empty."""

_ATTENTION = {"q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output"}


@dataclass(frozen=True)
class Config:
    """The fields of a model's configuration, checked as they are read."""

    title: str
    fields: Mapping[str, Any]

    def refuse(self, reason: str, *, code: str = "llm-model", help: str = "") -> TilewrightError:
        """The refusal of the model; ``raise config.refuse(...)``."""
        return refuse(code, reason, self.title, help)

    def get(self, key: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """A field, checked for its type; refuses one that is absent unless there is a default."""
        value = self.fields.get(key)
        value = default if value is None else value
        if value is None:
            raise self.refuse(f"its configuration does not state {key}")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.refuse(f"its configuration has {key} {shown(str(value))}")
        return value

    def sizes(self) -> Sizes:
        """The model's sizes; refuses (``llm-architecture``) models that differ from Llama's."""
        kind, get = self.fields.get("model_type"), self.get
        if kind not in KNOWN:
            raise self.refuse(
                f"its architecture is {shown(str(kind))}", code="llm-architecture",
                help=f"{', '.join(KNOWN)} are compiled",
            )  # fmt: skip
        for key, wanted in (("hidden_act", "silu"), ("partial_rotary_factor", 1)):
            if self.fields.get(key, wanted) != wanted:
                reason = f"{key} {shown(str(self.fields[key]))} is not compiled"
                raise self.refuse(reason, code="llm-architecture")
        if self.fields.get("quantization_config"):
            help = "give the weights in floats, and quantise them here"
            raise self.refuse("its weights are quantised", code="llm-architecture", help=help)
        heads, width = get("num_attention_heads", int), get("hidden_size", int)
        size = get("head_dim", int, max(width // max(heads, 1), 1))
        return Sizes(
            get("num_hidden_layers", int), width, get("intermediate_size", int),
            heads, get("num_key_value_heads", int, heads), size,
            get("vocab_size", int), get("max_position_embeddings", int),
            float(get("rms_norm_eps", (int, float))),
            self.window(),
        )  # fmt: skip

    def window(self) -> int | None:
        """Tokens that attention sees; None if it sees all."""
        layers = {str(each) for each in self.get("layer_types", list, [])}
        if layers - {"full_attention", "sliding_attention"}:
            raise self.refuse(f"layers of {shown(str(sorted(layers)))}", code="llm-architecture")
        slides = self.fields.get("use_sliding_window", self.fields.get("model_type") == "mistral")
        if "sliding_attention" in layers or (slides and self.fields.get("sliding_window")):
            return self.get("sliding_window", int)
        return None

    def turns(self, size: int) -> Array:
        """Frequencies of rotations: plain ones, divided by a factor, or as Llama 3.1 has them."""
        rope = self.fields.get("rope_parameters") or self.fields.get("rope_scaling") or {}
        if not isinstance(rope, dict):
            raise self.refuse(f"its rotations are {shown(str(rope))}")
        stated = Config(self.title, {"rope_theta": self.fields.get("rope_theta"), **rope})
        kind = str(rope.get("rope_type", rope.get("type", "default")))
        plain = frequencies(float(stated.get("rope_theta", (int, float), 10000.0)), size)
        if kind == "default":
            return plain

        def number(key: str) -> float:
            value = float(stated.get(key, (int, float)))
            if not (math.isfinite(value) and value > 0):
                raise self.refuse(f"its rotations have {key} {value}")
            return value

        if kind == "linear":
            return plain / number("factor")
        if kind != "llama3":
            reason = f"rotations of kind {shown(kind)} are not compiled"
            help = "default, linear and llama3 are"
            raise self.refuse(reason, code="llm-architecture", help=help)
        low, high = number("low_freq_factor"), number("high_freq_factor")
        turned = number("original_max_position_embeddings") * plain / (2 * np.pi)
        if low >= high:
            raise self.refuse(f"its rotations have factors {low} and {high}")
        share = ((turned - low) / (high - low)).clip(0, 1)
        return plain * (share + (1 - share) / number("factor"))

    def names(self, layers: int) -> dict[str, str]:
        """The model's names of its tensors, by GGUF's."""
        kind, flag = self.fields.get("model_type"), partial(self.get, kind=bool, default=False)
        biased = flag("attention_bias")
        names = {"token_embd.weight": "model.embed_tokens.weight"}
        names["output_norm.weight"] = "model.norm.weight"
        if not flag("tie_word_embeddings"):
            names["output.weight"] = "lm_head.weight"
        for layer in range(layers):
            one, other = f"blk.{layer}.", f"model.layers.{layer}."
            names[f"{one}attn_norm.weight"] = f"{other}input_layernorm.weight"
            names[f"{one}ffn_norm.weight"] = f"{other}post_attention_layernorm.weight"
            for letter, name in _ATTENTION.items():
                names[f"{one}{name}.weight"] = f"{other}self_attn.{letter}_proj.weight"
                if biased or (kind == "qwen2" and letter != "o"):
                    names[f"{one}{name}.bias"] = f"{other}self_attn.{letter}_proj.bias"
                if kind == "qwen3" and letter in "qk":
                    names[f"{one}{name}_norm.weight"] = f"{other}self_attn.{letter}_norm.weight"
            for part in ("gate", "up", "down"):
                names[f"{one}ffn_{part}.weight"] = f"{other}mlp.{part}_proj.weight"
                if flag("mlp_bias"):
                    names[f"{one}ffn_{part}.bias"] = f"{other}mlp.{part}_proj.bias"
        return names

    def decoder(self, found: Mapping[str, Tensor], vocabulary: Vocabulary) -> Decoder:
        """The model, of tensors by the library's names."""
        sizes = self.sizes()
        made = Decoder(self.title, sizes, self.turns(sizes.size), {}).checked()
        names = self.names(sizes.layers)
        if missing := [name for name in names.values() if name not in found]:
            raise made.refuse(f"it has no tensor {missing[0]}")
        unread = (".rotary_emb.inv_freq", "lm_head.weight")  # The latter where it is tied.
        more = sorted(
            name for name in set(found) - set(names.values()) if not name.endswith(unread)
        )
        if more:
            raise made.refuse(
                f"it has a tensor {shown(more[0])}, of which its configuration knows not"
            )
        tensors = {name: found[other] for name, other in names.items()}
        return Decoder(self.title, sizes, made.frequencies, tensors, *vocabulary)


def vocabulary(text: str, *ends: Any) -> Vocabulary:
    """A vocabulary, and the first of what may be the tokens that end texts."""
    stated = next((each for each in ends if each is not None), [])
    stated = stated if isinstance(stated, list) else [stated]
    whole = [end for end in stated if isinstance(end, int) and not isinstance(end, bool)]
    return TokenizerData(FILE if text else "", end=whole), text


def _tensor(config: Config, name: str, kind: str, shape: Any, read: Callable[[], Array]) -> Tensor:
    if kind not in FLOATS:
        raise config.refuse(f"{shown(name)} has elements of {kind}, not floats", code="llm-type")
    return Tensor(tuple(shape), read, name)


def decoder_of_module(module: Any, tokenizer: Any = None) -> Decoder:
    """A module of transformers, whose class ends with ForCausalLM, and perhaps its tokenizer."""
    kind = type(module).__name__
    if not kind.endswith("ForCausalLM") or not hasattr(module, "config"):
        raise refuse(
            "llm-architecture", "it is no causal language model of transformers", kind,
            "give a LlamaForCausalLM, a GGUF or ONNX file, or a folder of Hugging Face",
        )  # fmt: skip
    from tilewright.frontends.torch.tensors import array_of

    config = Config(kind, module.config.to_dict())
    found = {
        name: _tensor(
            config, name, str(tensor.dtype).removeprefix("torch."), tensor.shape,
            partial(array_of, tensor, f"{kind}: {name}"),
        )
        for name, tensor in module.state_dict().items()
    }  # fmt: skip
    text = "" if tokenizer is None else getattr(tokenizer, "backend_tokenizer", tokenizer).to_str()
    ends = getattr(getattr(module, "generation_config", None), "eos_token_id", None)
    return config.decoder(found, vocabulary(text, ends, config.fields.get("eos_token_id")))


def decoder_of_folder(folder: Path) -> Decoder:
    """A folder as Hugging Face ships it."""
    config = Config(shown(str(folder)), read_json(folder / "config.json"))
    stated = config.get("architectures", list, []) or ["ForCausalLM"]
    if not any(str(each).endswith("ForCausalLM") for each in stated):
        reason = f"its architecture is {shown(str(stated[0]))}, no causal language model"
        raise config.refuse(reason, code="llm-architecture")
    found: dict[str, Tensor] = {}
    for path in _weight_files(folder, config):
        try:
            file = safetensors.safe_open(path, "numpy")
            for name in file.keys():  # noqa: SIM118 (it is no mapping)
                part = file.get_slice(name)
                read = partial(file.get_tensor, name)
                found[name] = _tensor(config, name, part.get_dtype(), part.get_shape(), read)
        except (OSError, safetensors.SafetensorError) as error:
            reason = f"is no whole file of safetensors: {' '.join(str(error).split())[:200]}"
            raise refuse("llm-file", reason, shown(str(path))) from error
    return config.decoder(found, vocabulary_of_folder(folder, config.fields))


def vocabulary_of_folder(folder: Path, fields: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary in a folder, if there is one."""
    text = json.dumps(read_json(folder / FILE)) if (folder / FILE).is_file() else ""
    generation = folder / "generation_config.json"
    stated = read_json(generation).get("eos_token_id") if generation.is_file() else None
    return vocabulary(text, stated, fields.get("eos_token_id"))


def _weight_files(folder: Path, config: Config) -> list[Path]:
    """The files of a folder's weights."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    index = folder / f"{WEIGHTS}.index.json"
    if not index.is_file():
        raise config.refuse(
            f"it has no {WEIGHTS}", code="llm-file",
            help="weights in pickles are not read: save_pretrained writes safetensors"
            if any(folder.glob("*.bin")) else "",
        )  # fmt: skip
    named = read_json(index).get("weight_map")
    names = sorted({str(name) for name in named.values()}) if isinstance(named, dict) else []
    if not names or any(Path(name).name != name for name in names):
        raise refuse("llm-file", "it names no files beside it", shown(str(index)))
    return [folder / name for name in names]


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file of JSON."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "is no whole JSON file"
        raise refuse("llm-file", reason, shown(str(path))) from error
    if not isinstance(content, dict):
        raise refuse("llm-file", "is no object of JSON", shown(str(path)))
    return content
