"""GroupQueryAttention gives ONNX Runtime's results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright
from tests.frontends.onnx.onnx_models import onnxruntime_of
from tests.frontends.onnx.test_onnx_microsoft import check, model_of, noise
from tilewright.errors import TilewrightError
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.interpreter import interpret

HEADS, FEWER, SIZE = 6, 2, 16


def attention(
    length: int,
    past: int,
    total: int,
    tokens: list[int],
    *,
    packed: bool = False,
    positions: np.ndarray | None = None,
    added: np.ndarray | None = None,
    buffer: int = 0,
    outputs: int = 3,
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of one node; ``tokens`` of each sequence are there with the new ones."""
    batch = len(tokens)
    columns = [HEADS * SIZE, FEWER * SIZE, FEWER * SIZE]
    parts = [noise(batch, length, width, seed=n) for n, width in enumerate(columns)]
    operands: list[np.ndarray | None] = [*parts]
    if packed:
        operands = [np.concatenate(parts, axis=2), None, None]
    held = max(past, buffer)
    operands += [noise(batch, FEWER, held, SIZE, seed=n) if held else None for n in (3, 4)]
    operands += [np.array(tokens, np.int32) - 1, np.array(total, np.int32)]
    angles = noise(64, SIZE // 2)
    rotary = bool(attributes.get("do_rotary"))
    operands += [np.cos(angles), np.sin(angles)] if rotary else [None, None]
    operands += [positions, added]
    while operands[-1] is None:
        operands.pop()
    return model_of(
        "GroupQueryAttention",
        operands,
        outputs,
        tuple(n for n in (6, 7, 8) if n < len(operands)),
        num_heads=HEADS,
        kv_num_heads=FEWER,
        **attributes,
    )


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "rotary", [{}, {"do_rotary": 1}, {"do_rotary": 1, "rotary_interleaved": 1}]
)
def test_a_prompt(packed: bool, rotary: dict[str, Any]) -> None:
    check(*attention(5, 0, 5, [5, 5], packed=packed, **rotary))


@pytest.mark.parametrize(
    "more", [{}, {"scale": 0.2}, {"softcap": 1.5}, {"local_window_size": 3, "do_rotary": 1}]
)
def test_a_token_after_a_past(more: dict[str, Any]) -> None:
    check(*attention(1, 7, 8, [8, 8], **more))
    check(*attention(1, 7, 8, [8], **more))


def check_tokens(
    model: onnx.ModelProto, feeds: dict[str, np.ndarray], tokens: Sequence[int]
) -> None:
    """Compare the result, and keys and values of tokens: what ONNX Runtime leaves in the rest of a
    buffer that no run shares with it is its own."""
    imported = import_onnx(model)
    got = interpret(imported.module, imported.weights, feeds)
    want = onnxruntime_of(model, feeds)
    np.testing.assert_allclose(got["y0"], want["y0"], rtol=2e-5, atol=2e-5)
    for name in ("y1", "y2"):
        assert got[name].shape == want[name].shape
        for row, (mine, its) in enumerate(zip(got[name], want[name], strict=True)):
            count = tokens[row]
            np.testing.assert_allclose(mine[:, :count], its[:, :count], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("rotary", [0, 1])
def test_sequences_of_different_lengths(rotary: int) -> None:
    tokens = [7, 4, 2]
    check_tokens(*attention(1, 0, 7, tokens, buffer=12, do_rotary=rotary), tokens)


def test_several_tokens_after_a_past() -> None:
    check(*attention(3, 6, 9, [9], do_rotary=1))
    check_tokens(*attention(3, 0, 9, [9], do_rotary=1, buffer=16), [9])


def test_a_prompt_into_a_buffer() -> None:
    check_tokens(*attention(5, 0, 5, [5, 5], buffer=9, do_rotary=1), [5, 5])


def test_scores_to_add_and_positions() -> None:
    added = noise(1, 1, 1, 8, seed=9)
    check(*attention(1, 7, 8, [8], added=added))
    positions = np.array([[7]], np.int64)
    check(*attention(1, 7, 8, [8], do_rotary=1, positions=positions))


def test_compiled(tmp_path: Path) -> None:
    model, feeds = attention(1, 15, 16, [16], do_rotary=1)
    onnx.save(model, tmp_path / "token.onnx")
    got = tilewright.compile(tmp_path / "token.onnx").run(feeds)
    for name, want in onnxruntime_of(model, feeds).items():
        np.testing.assert_allclose(got[name], want, rtol=1e-4, atol=1e-4)


def test_refusals() -> None:
    model, _ = attention(1, 7, 8, [8])
    stored = next(each for each in model.graph.initializer if each.name == "x6")
    model.graph.initializer.remove(stored)
    kind = onnx.TensorProto.INT32
    model.graph.input.append(onnx.helper.make_tensor_value_info("x6", kind, []))
    with pytest.raises(TilewrightError, match="total length"):
        import_onnx(model)
    with pytest.raises(TilewrightError, match="a sink beside the keys"):
        import_onnx(attention(1, 7, 8, [8], smooth_softmax=1)[0])
