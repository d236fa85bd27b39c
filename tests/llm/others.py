"""A small model of random weights as a folder of Hugging Face, and as decoders in ONNX.

    python -m tests.llm.others examples/llm

writes the examples. Weights have 16 bits, so that all forms hold the same numbers.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

from tests.llm.tiny import vocabulary

Weights = dict[str, np.ndarray]

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 261,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "eos_token_id": 260,
}

SIZE, GROUPS, HEADS, WIDTH = 16, 2, 4, 64

_NAMES = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}  # fmt: skip


def weights(seed: int = 0, layers: int = 1) -> Weights:
    """Random weights by the names that transformers has for them."""
    random = np.random.default_rng(seed)
    narrow, inner = GROUPS * SIZE, CONFIG["intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (CONFIG["vocab_size"], WIDTH),
        "model.norm.weight": (WIDTH,),
    }
    each = {
        "input_layernorm": (WIDTH,), "post_attention_layernorm": (WIDTH,),
        "self_attn.q_proj": (WIDTH, WIDTH), "self_attn.k_proj": (narrow, WIDTH),
        "self_attn.v_proj": (narrow, WIDTH), "self_attn.o_proj": (WIDTH, WIDTH),
        "mlp.gate_proj": (inner, WIDTH), "mlp.up_proj": (inner, WIDTH),
        "mlp.down_proj": (WIDTH, inner),
    }  # fmt: skip
    for layer in range(layers):
        shapes |= {f"model.layers.{layer}.{n}.weight": shape for n, shape in each.items()}
    return {
        name: random.normal(len(shape) == 1, 0.1, shape).astype(np.float16)
        for name, shape in shapes.items()
    }


def by_ggufs_names(given: Weights) -> dict[str, np.ndarray]:
    """The same by GGUF's names in its order of rows, for the reference."""
    names = {other: name for name, other in _NAMES.items()}
    found = {
        "token_embd.weight": given["model.embed_tokens.weight"],
        "output_norm.weight": given["model.norm.weight"],
    }
    for name, array in given.items():
        if name.startswith("model.layers."):
            layer, rest = name.removeprefix("model.layers.").split(".", 1)
            short = names[rest.removesuffix(".weight")]
            if short in ("attn_q", "attn_k"):
                halves = array.reshape(-1, 2, SIZE // 2, array.shape[1])
                array = halves.swapaxes(1, 2).reshape(array.shape)
            found[f"blk.{layer}.{short}.weight"] = array
    return {name: array.astype(np.float64) for name, array in found.items()}


def write_folder(folder: Path, given: Weights, **config: Any) -> Path:
    """A folder as Hugging Face ships it."""
    folder.mkdir(parents=True, exist_ok=True)
    layers = sum(name.endswith("q_proj.weight") for name in given)
    fields = {**CONFIG, "num_hidden_layers": layers, **config}
    (folder / "config.json").write_text(json.dumps(fields, indent=2) + "\n")
    save_file(given, folder / "model.safetensors")
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(), ensure_ascii=False) + "\n")
    return folder


def tokenizer() -> dict[str, Any]:
    """The vocabulary of tests/llm/tiny.py, as the package tokenizers describes it."""
    words = vocabulary()
    tokens = words["tokenizer.ggml.tokens"]
    plain = {"add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    last = {"id": 260, "content": tokens[260], "special": True, "normalized": False}
    last |= {"single_word": False, "lstrip": False, "rstrip": False}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [last],
        "normalizer": None, "pre_tokenizer": {"type": "ByteLevel", **plain},
        "post_processor": None, "decoder": {"type": "ByteLevel", **plain},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "vocab": {token: number for number, token in enumerate(tokens[:260])},
            "merges": words["tokenizer.ggml.merges"],
        },
    }  # fmt: skip


class _Writer:
    """Nodes and constants of a graph."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.stored: dict[str, onnx.TensorProto] = {}

    def __call__(self, operator: str, *inputs: Any, outputs: Any = 1, **attributes: Any) -> Any:
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        made = outputs
        if isinstance(outputs, int):
            made = [f"v{len(self.nodes)}_{number}" for number in range(outputs)]
        name = f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, names, made, name, **attributes))
        return made[0] if len(made) == 1 else made

    def constant(self, value: Any) -> str:
        array = np.asarray(value)
        name = f"c{len(self.stored)}"
        self.stored[name] = numpy_helper.from_array(array, name)
        return name

    def model(self, layers: int) -> onnx.ModelProto:
        def tensor(name: str, shape: list[Any], kind: int = TensorProto.FLOAT) -> Any:
            return helper.make_tensor_value_info(name, kind, shape)

        caches = [f"{n}.{kind}" for n in range(layers) for kind in ("key", "value")]
        read = {name for node in self.nodes for name in node.input}
        inputs = [
            tensor(name, ["b", size], TensorProto.INT64)
            for name, size in (("input_ids", "s"), ("attention_mask", "t"), ("position_ids", "s"))
            if name in read
        ]
        inputs += [tensor(f"past_key_values.{n}", ["b", GROUPS, "p", SIZE]) for n in caches]
        outputs = [tensor("logits", ["b", "s", CONFIG["vocab_size"]])]
        outputs += [tensor(f"present.{n}", ["b", GROUPS, "t", SIZE]) for n in caches]
        graph = helper.make_graph(self.nodes, "tiny", inputs, outputs, [*self.stored.values()])
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def plain_onnx(given: Weights, **changed: float) -> onnx.ModelProto:
    """A decoder of ONNX's own operators, as exporters of transformers write it.

    ``changed`` makes it another architecture: a factor of scores, another epsilon of one norm,
    keys after a query that it sees.
    """
    w = {name: array.astype(np.float32) for name, array in given.items()}
    at, layers = _Writer(), sum(name.endswith("q_proj.weight") for name in given)
    turns = (10000.0 ** (-np.arange(0, SIZE, 2) / SIZE)).astype(np.float32)
    places = at("Cast", at("Unsqueeze", "position_ids", np.array([2])), to=TensorProto.FLOAT)
    angles = at("Mul", places, turns[None, None])
    angles = at("Unsqueeze", at("Concat", angles, angles, axis=2), np.array([1]))
    cosines, sines = at("Cos", angles), at("Sin", angles)
    total = at("Gather", at("Shape", "attention_mask"), np.array(1))
    keys = at("Range", np.array(0), total, np.array(1))
    queries = at("Unsqueeze", "position_ids", np.array([1, 3]))
    queries = at("Add", queries, np.array(int(changed.get("ahead", 0))))
    seen = at("LessOrEqual", keys, queries)
    mask = at("Where", seen, np.float32(0), np.float32(-3.4e38))

    def norm(x: str, name: str) -> str:
        mean = at("ReduceMean", at("Pow", x, np.float32(2)), np.array([-1]))
        epsilon = changed.get("epsilon", 1e-5) if name == "model.norm" else 1e-5
        root = at("Sqrt", at("Add", mean, np.float32(epsilon)))
        x = at("Mul", x, at("Reciprocal", root))
        return at("Mul", w[f"{name}.weight"], x)

    def product(x: str, name: str) -> str:
        return at("MatMul", x, np.ascontiguousarray(w[f"{name}.weight"].T))

    def turned(x: str) -> str:
        half, end = SIZE // 2, np.array([1 << 40])
        left = at("Slice", x, np.array([0]), np.array([half]), np.array([3]))
        right = at("Slice", x, np.array([half]), end, np.array([3]))
        swapped = at("Concat", at("Neg", right), left, axis=3)
        return at("Add", at("Mul", x, cosines), at("Mul", swapped, sines))

    x = at("Gather", w["model.embed_tokens.weight"], "input_ids")
    for layer in range(layers):
        name = f"model.layers.{layer}"
        y = norm(x, f"{name}.input_layernorm")
        q, k, v = (
            at(
                "Transpose",
                at("Reshape", product(y, f"{name}.self_attn.{p}_proj"), np.array([0, 0, n, SIZE])),
                perm=[0, 2, 1, 3],
            )
            for p, n in (("q", HEADS), ("k", GROUPS), ("v", GROUPS))
        )
        wide: list[str] = []
        for kind, new in (("key", turned(k)), ("value", v)):
            past, present = f"past_key_values.{layer}.{kind}", f"present.{layer}.{kind}"
            all_of = at("Concat", past, new, axis=2, outputs=[present])
            each = at("Unsqueeze", all_of, np.array([2]))
            repeated = at("Concat", *[each] * (HEADS // GROUPS), axis=2)
            wide.append(at("Reshape", repeated, np.array([0, HEADS, -1, SIZE])))
        scores = at("MatMul", turned(q), at("Transpose", wide[0], perm=[0, 1, 3, 2]))
        scores = at("Mul", scores, np.float32(SIZE**-0.5 * changed.get("scale", 1)))
        y = at("MatMul", at("Softmax", at("Add", scores, mask), axis=3), wide[1])
        y = at("Reshape", at("Transpose", y, perm=[0, 2, 1, 3]), np.array([0, 0, WIDTH]))
        x = at("Add", x, product(y, f"{name}.self_attn.o_proj"))
        y = norm(x, f"{name}.post_attention_layernorm")
        gate = product(y, f"{name}.mlp.gate_proj")
        up = product(y, f"{name}.mlp.up_proj")
        y = at("Mul", at("Mul", gate, at("Sigmoid", gate)), up)
        x = at("Add", x, product(y, f"{name}.mlp.down_proj"))
    table = np.ascontiguousarray(w["model.embed_tokens.weight"].T)
    at("MatMul", norm(x, "model.norm"), table, outputs=["logits"])
    return at.model(layers)


def in_blocks(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bytes and scales of a matrix for MatMulNBits in 4 bits, and the numbers that they are."""
    parts = matrix.astype(np.float32).reshape(len(matrix), -1, 32)
    scales = np.abs(parts).max(-1) / np.float32(7)
    codes = (np.rint(parts / scales[..., None]) + 8).astype(np.uint8)
    values = (codes.astype(np.float32) - 8) * scales[..., None]
    return codes[..., ::2] | codes[..., 1::2] << 4, scales, values.reshape(matrix.shape)


def microsofts_onnx(given: Weights) -> tuple[onnx.ModelProto, Weights]:
    """A decoder as ONNX Runtime GenAI writes it, in blocks of 4 bits, and its weights."""
    at, layers = _Writer(), sum(name.endswith("q_proj.weight") for name in given)
    own, domain, values = {}, {"domain": "com.microsoft"}, dict[str, np.ndarray]()
    for name, array in given.items():
        own[name] = array.astype(np.float32)
        values[name] = own[name]
        if array.ndim == 2:
            *own[name], values[name] = in_blocks(array)
    angles = np.arange(64)[:, None] * 10000.0 ** (-np.arange(0, SIZE, 2) / SIZE)
    tables = [at.constant(f(angles).astype(np.float32)) for f in (np.cos, np.sin)]
    counts = at("ReduceSum", "attention_mask", np.array([1]), keepdims=1)
    counts = at("Cast", at("Sub", counts, np.array([1])), to=TensorProto.INT32)
    total = at("Gather", at("Shape", "attention_mask"), np.array(1))
    total = at("Cast", total, to=TensorProto.INT32)

    def product(x: str, parts: list[Any], outputs: Any = 1) -> str:
        codes, scales = parts
        sizes = {"N": len(codes), "K": codes.shape[1] * 32, "bits": 4, "block_size": 32}
        return at("MatMulNBits", x, codes, scales, outputs=outputs, **sizes, **domain)

    table = own["model.embed_tokens.weight"]
    x = at(
        "GatherBlockQuantized", table[0].reshape(len(table[0]), -1), "input_ids", table[1],
        bits=4, block_size=32, gather_axis=0, quantize_axis=1, **domain,
    )  # fmt: skip
    name, norm = "model.layers.0.input_layernorm.weight", {"epsilon": 1e-5}
    y = at("SimplifiedLayerNormalization", x, own[name], axis=-1, **norm)
    for layer in range(layers):
        name = f"model.layers.{layer}"
        three = [own[f"{name}.self_attn.{part}_proj.weight"] for part in "qkv"]
        packed = product(y, [np.concatenate([part[n] for part in three]) for n in range(2)])
        past = [f"past_key_values.{layer}.{kind}" for kind in ("key", "value")]
        outputs = [f"y{layer}", *(f"present.{layer}.{kind}" for kind in ("key", "value"))]
        y, *_ = at(
            "GroupQueryAttention", packed, "", "", *past, counts, total, *tables, outputs=outputs,
            num_heads=HEADS, kv_num_heads=GROUPS, do_rotary=1, **domain,
        )  # fmt: skip
        y = product(y, own[f"{name}.self_attn.o_proj.weight"])
        scale = own[f"{name}.post_attention_layernorm.weight"]
        skip = "SkipSimplifiedLayerNormalization"
        y, _, _, x = at(skip, x, y, scale, outputs=4, **norm, **domain)
        gate = product(y, own[f"{name}.mlp.gate_proj.weight"])
        up = product(y, own[f"{name}.mlp.up_proj.weight"])
        y = at("Mul", at("Mul", gate, at("Sigmoid", gate)), up)
        y = product(y, own[f"{name}.mlp.down_proj.weight"])
        after = own.get(f"model.layers.{layer + 1}.input_layernorm.weight")
        after = own["model.norm.weight"] if after is None else after
        y, _, _, x = at(skip, x, y, after, outputs=4, **norm, **domain)
    product(y, table, ["logits"])
    return at.model(layers), values


if __name__ == "__main__":
    place = Path(sys.argv[1])
    write_folder(place / "tiny", weights())
    onnx.save(microsofts_onnx(weights())[0], place / "tiny.onnx")
