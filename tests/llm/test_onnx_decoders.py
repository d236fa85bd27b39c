"""Decoders in ONNX: the weights that are read off them, and graphs that compute something else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.llm.others import (
    in_blocks,
    microsofts_onnx,
    plain_onnx,
    weights,
    write_folder,
)
from tests.llm.test_folders import EXAMPLES, greedy, reference_of
from tests.llm.test_llm import BOUND
from tilewright.errors import TilewrightError
from tilewright.frontends.language import open_decoder
from tilewright.llm import LanguageModel, compile_model
from tilewright.numerics.blocks import Blocks


def saved(model: onnx.ModelProto, path: Path) -> Path:
    onnx.save(model, path)
    return path


def numbers(weight: object) -> np.ndarray:
    found = weight.rows() if isinstance(weight, Blocks) else np.asarray(weight)
    return found.astype(np.float32)


def test_weights_of_both_kinds_of_export(tmp_path: Path) -> None:
    given = weights(3, layers=2)
    blocks, values = microsofts_onnx(given)
    for number, (model, kept) in enumerate([(plain_onnx(given), given), (blocks, values)]):
        found = open_decoder(saved(model, tmp_path / f"{number}.onnx"))
        wanted = open_decoder(write_folder(tmp_path / f"{number}", kept))
        assert found.sizes.epsilon == pytest.approx(1e-5)
        assert (found.sizes.heads, found.sizes.groups, found.sizes.inner) == (4, 2, 96)
        np.testing.assert_allclose(found.frequencies, wanted.frequencies, rtol=2e-6)
        assert found.tensors.keys() == wanted.tensors.keys()
        for name, tensor in wanted.tensors.items():
            np.testing.assert_array_equal(
                numbers(found.tensors[name].read()), numbers(tensor.read()), err_msg=name
            )
    # The table of tokens stays in blocks, which the output's product shares.
    assert isinstance(found.tensors["token_embd.weight"].read(), Blocks)


def test_greedy_tokens_of_one_in_blocks(tmp_path: Path) -> None:
    compile_model(EXAMPLES / "tiny.onnx", tmp_path / "package", context=64)
    given = {n: in_blocks(a)[2] if a.ndim == 2 else a for n, a in weights().items()}
    greedy(LanguageModel(tmp_path / "package"), reference_of(given), BOUND)


def test_the_example_is_what_the_script_writes() -> None:
    assert onnx.load(EXAMPLES / "tiny.onnx") == microsofts_onnx(weights())[0]


def test_rotations_of_neighbours(tmp_path: Path) -> None:
    given = weights()
    model, _ = microsofts_onnx(given)
    halves = open_decoder(saved(model, tmp_path / "halves.onnx"))
    for node in model.graph.node:
        if node.op_type == "GroupQueryAttention":
            node.attribute.append(helper.make_attribute("rotary_interleaved", 1))
    pairs = open_decoder(saved(model, tmp_path / "pairs.onnx"))
    order = np.arange(32).reshape(2, 8, 2).swapaxes(1, 2).reshape(-1)
    one, other = (numbers(d.tensors["blk.0.attn_k.weight"].read()) for d in (halves, pairs))
    np.testing.assert_array_equal(one[order], other)


def test_files_beside_a_model(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    write_folder(folder, weights(), max_position_embeddings=48, sliding_window=16)
    (folder / "model.safetensors").unlink()
    saved(plain_onnx(weights()), folder / "model.onnx")
    decoder = open_decoder(folder)
    assert decoder.sizes.context == 48 and decoder.sizes.window is None
    assert decoder.tokenizer is not None and decoder.tokenizer.end == [260]
    assert decoder.vocabulary_file


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"scale": 0.5}, "does not compute"),
        ({"ahead": 1}, "does not compute"),
        ({"epsilon": 1e-2}, "epsilons"),
    ],
)
def test_other_architectures(changed: dict[str, float], words: str, tmp_path: Path) -> None:
    path = saved(plain_onnx(weights(), **changed), tmp_path / "other.onnx")
    with pytest.raises(TilewrightError, match=words) as caught:
        compile_model(path, tmp_path / "package")
    assert [problem.code for problem in caught.value.problems] == ["llm-decoder"]


def test_graphs_that_are_no_decoders(tmp_path: Path) -> None:
    def refused(model: onnx.ModelProto, code: str, words: str) -> None:
        with pytest.raises(TilewrightError, match=words) as caught:
            open_decoder(saved(model, tmp_path / "other.onnx"))
        assert caught.value.problems[0].code == code

    def plain() -> onnx.ModelProto:
        return plain_onnx(weights())

    model = plain()
    del model.graph.output[1:]
    refused(model, "llm-decoder", "with its cache")
    model = plain()
    model.graph.input.append(helper.make_tensor_value_info("use_cache_branch", 9, [1]))
    refused(model, "llm-decoder", "use_cache_branch")
    model = plain()
    next(n for n in model.graph.node if n.op_type == "Softmax").op_type = "Nothing"
    refused(model, "onnx-unsupported-operator", "Nothing")
    # Another product between the layer and the output, which the refusal names.
    model = plain()
    last = next(n for n in model.graph.node if n.output[0] == "logits")
    square = np.eye(64, dtype=np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(square, "square"))
    more = helper.make_node("MatMul", [last.input[0], "square"], ["more"], "adapter")
    last.input[0] = "more"
    nodes = [*model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend([*nodes[:-1], more, nodes[-1]])
    refused(model, "llm-decoder", "adapter")
    path = tmp_path / "cut.onnx"
    data = plain().SerializeToString()
    for size in (0, 100, len(data) // 2, len(data) - 10):
        path.write_bytes(data[:size])
        with pytest.raises(TilewrightError, match=r"onnx-|llm-decoder"):
            open_decoder(path)
