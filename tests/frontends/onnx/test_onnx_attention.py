"""ONNX's Attention against its definition, written out query by query."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.frontends.onnx.executed import Arrays, executed, interpreted, typed_model
from tests.frontends.onnx.quantised_models import operations_in
from tilewright.errors import TilewrightError
from tilewright.frontends.onnx import functions, import_onnx


@dataclass
class Case:
    """One node: its operands by name, and its attributes."""

    operands: dict[str, np.ndarray]
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    constants: tuple[str, ...] = ()
    """Operands that are known at import."""


Engine = Callable[[onnx.ModelProto, Arrays], Arrays]

NAMES = ("q", "k", "v", "mask", "past_key", "past_value", "count")


def case(
    seed: int,
    *,
    heads: tuple[int, int] = (2, 2),
    rows: tuple[int, int] = (4, 6),
    past: int = 0,
    mask: np.ndarray | None = None,
    count: list[int] | None = None,
    constants: tuple[str, ...] = (),
    **attributes: Any,
) -> Case:
    """Random operands of batch 2; head sizes are 8 and, for values, 5."""
    values = np.random.default_rng(seed)

    def noise(*shape: int) -> np.ndarray:
        return values.standard_normal(shape).astype(np.float32) * 1.5

    (queries, keys), (length, total) = heads, rows
    operands = {
        "q": noise(2, queries, length, 8),
        "k": noise(2, keys, total - past, 8),
        "v": noise(2, keys, total - past, 5),
    }
    if past:
        operands |= {"past_key": noise(2, keys, past, 8), "past_value": noise(2, keys, past, 5)}
    if mask is not None:
        operands["mask"] = mask
    if count is not None:
        operands["count"] = np.array(count)
    return Case(operands, attributes, constants)


def attended(case: Case) -> list[np.ndarray]:
    """Y and the scores of modes 0 to 3, in float64, as the specification says them."""
    given, a = case.operands, case.attributes
    q, k, v = (given[name].astype(np.float64) for name in "qkv")
    past = 0
    if "past_key" in given:
        past = given["past_key"].shape[2]
        k = np.concatenate([given["past_key"].astype(np.float64), k], 2)
        v = np.concatenate([given["past_value"].astype(np.float64), v], 2)
    (batch, heads, length, size), total = q.shape, k.shape[2]
    y = np.zeros((batch, heads, length, v.shape[3]))
    shown = np.zeros((4, batch, heads, length, total))
    mask = given.get("mask")
    for b, h, i in np.ndindex(batch, heads, length):
        kv = h // (heads // k.shape[1])
        raw = k[b, kv] @ q[b, h, i] * a.get("scale", 1 / np.sqrt(size))
        cap = a.get("softcap", 0.0)
        capped = np.tanh(raw / cap) * cap if cap else raw
        there = int(given["count"][b]) if "count" in given else total
        offset = past if "count" not in given else there - length
        bias = np.zeros(total)
        for j in range(total):
            seen = j < there and (not a.get("is_causal") or j <= i + offset)
            left, right = a.get("left_window_size", -1), a.get("right_window_size", -1)
            seen &= left < 0 or i + offset - j <= left
            seen &= right < 0 or j - (i + offset) <= right
            if mask is not None:
                wide = np.broadcast_to(mask, (batch, heads, length, mask.shape[-1]))[b, h, i]
                entry = wide[j] if j < len(wide) else False if mask.dtype == bool else -np.inf
                if mask.dtype == bool:
                    seen &= bool(entry)
                else:
                    bias[j] = entry
            if not seen:
                bias[j] = -np.inf
        scores, weights = capped + bias, np.zeros(total)
        if bias.max() > -np.inf:
            weights = np.exp(scores - scores.max())
            weights /= weights.sum()
        y[b, h, i] = weights @ v[b, kv]
        shown[:, b, h, i] = raw, capped, scores, weights
    return [y, *shown]


def joined(value: np.ndarray) -> np.ndarray:
    """[b, h, s, d] as [b, s, h * d]."""
    batch, _, length, _ = value.shape
    return value.transpose(0, 2, 1, 3).reshape(batch, length, -1)


def checked(
    cases: list[Case], *, flat: bool = False, opset: int = 24, engine: Engine = interpreted
) -> None:
    """The cases as nodes of one model: Y, the present and all modes of scores."""
    nodes, feeds, constants = [], dict[str, np.ndarray](), dict[str, np.ndarray]()
    want, outputs = dict[str, np.ndarray](), dict[str, int]()
    for number, each in enumerate(cases):
        mode, attributes = number % 4, dict(each.attributes)
        names: list[str] = []
        for name in NAMES:
            names.append(f"{name}{number}" if name in each.operands else "")
            if name in each.operands:
                array = each.operands[name]
                where = constants if name in each.constants else feeds
                where[names[-1]] = joined(array) if flat and name in "qkv" else array
        while not names[-1]:
            _ = names.pop()
        if flat:
            heads = [each.operands[name].shape[1] for name in "qk"]
            attributes |= {"q_num_heads": heads[0], "kv_num_heads": heads[1]}
        y, *shown = attended(each)
        results = {f"y{number}": joined(y) if flat else y, f"s{number}": shown[mode]}
        want |= results
        outputs |= dict.fromkeys(results, 1)
        attributes["qk_matmul_output_mode"] = mode
        listed = [f"y{number}", "", "", f"s{number}"]
        nodes.append(helper.make_node("Attention", names, listed, **attributes))
    got = engine(typed_model(nodes, feeds, outputs, constants, opset=opset), feeds)
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


def hiding(*shape: int, seed: int = 0) -> np.ndarray:
    """A mask of booleans, with a row that hides everything."""
    mask = np.random.default_rng((seed, *shape)).random(shape) < 0.6
    mask.reshape(-1, shape[-1])[1] = False
    return mask


def adding(*shape: int, seed: int = 0) -> np.ndarray:
    """A mask of numbers, some of them minus infinity, and a row of nothing else."""
    values = np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)
    return np.where(hiding(*shape, seed=seed), values, np.float32(-np.inf))


def test_orders_masks_and_caps() -> None:
    """Every mode of the scores; the cap comes before the mask, so that what is hidden stays so."""
    checked(
        [
            case(0, is_causal=1),
            case(1, mask=hiding(4, 6), softcap=1.5),
            case(2, mask=adding(2, 1, 4, 6), softcap=2.0, heads=(4, 2)),
            case(3, mask=adding(2, 4, 6), is_causal=1, scale=0.7),
            case(4, mask=hiding(2, 2, 4, 6), constants=("mask",), softcap=1.0),
            case(5, mask=adding(4, 6), constants=("mask",), is_causal=1),
            case(6, mask=hiding(4, 4), is_causal=1, past=2),
            case(7, mask=adding(1, 1, 4, 5), heads=(3, 1), softcap=0.5),
        ],
        opset=23,
    )


def test_counts_of_keys() -> None:
    """Causal order ends at the last key that is there; queries before the first one see nothing."""
    checked(
        [
            case(0, is_causal=1, count=[6, 5]),
            case(1, is_causal=1, count=[4, 2]),
            case(2, is_causal=1, count=[5, 3], constants=("count",)),
            case(3, count=[6, 0], softcap=1.0),
            case(4, is_causal=1, count=[3, 6], mask=hiding(4, 6)),
            case(5, is_causal=1, count=[6, 4], mask=adding(2, 1, 4, 6), constants=("mask",)),
        ]
    )


def test_c_of_what_hides_keys() -> None:
    checked(
        [
            case(0, is_causal=1, count=[6, 2], softcap=1.5),
            case(1, is_causal=1, mask=hiding(4, 6), heads=(2, 1)),
            case(2, mask=adding(2, 1, 4, 6), is_causal=1),
        ],
        engine=executed,
    )


@pytest.mark.parametrize("flat", [False, True])
def test_pasts_and_heads(flat: bool) -> None:
    checked(
        [
            case(0, past=3, is_causal=1, heads=(4, 2)),
            case(1, past=5, rows=(1, 6), is_causal=1),
            case(2, heads=(4, 1), mask=hiding(2, 1, 1, 6)),
        ],
        flat=flat,
    )


def test_windows() -> None:
    checked(
        [
            case(0, left_window_size=1, right_window_size=1),
            case(1, left_window_size=0, is_causal=1, past=2),
            case(2, right_window_size=0, left_window_size=2, count=[6, 3]),
            case(3, left_window_size=1, count=[5, 4], constants=("count",), is_causal=1),
        ],
        opset=25,
    )


def test_present_and_types() -> None:
    """Keys and values keep their own types; an empty past is none."""
    each = case(0, past=2)
    kinds = {"q": np.float16, "k": np.float16, "v": ml_dtypes.bfloat16}
    feeds: dict[str, np.ndarray] = {}
    for name, array in each.operands.items():
        kind = kinds["v" if "v" in name.split("_")[-1] else "k"]
        each.operands[name] = array.astype(kind).astype(np.float32)
        feeds[name] = each.operands[name]
    names = [name for name in NAMES if name in feeds]
    nodes = [
        helper.make_node(
            "Cast", [n], [f"{n}_"], to=16 if "v" in n.split("_")[-1] else TensorProto.FLOAT16
        )
        for n in names
    ]
    short = [f"{name}_" for name in names]
    nodes.append(helper.make_node("Attention", [*short[:3], "", *short[3:]], ["y", "pk", "pv"]))
    nodes += [helper.make_node("Cast", [n], [f"{n}f"], to=1) for n in ("y", "pk", "pv")]
    outputs = {"yf": 1, "pkf": 1, "pvf": 1, "pk": TensorProto.FLOAT16}
    got = executed(typed_model(nodes, feeds, outputs, opset=23), feeds)
    assert got["pk"].dtype == np.float16
    for name, parts in (("pkf", ("past_key", "k")), ("pvf", ("past_value", "v"))):
        np.testing.assert_array_equal(got[name], np.concatenate([feeds[p] for p in parts], 2))
    np.testing.assert_allclose(got["yf"], attended(each)[0], rtol=2e-3, atol=2e-3)


def test_it_is_one_kernel_where_a_machine_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not go by the definition of the onnx that is installed, which may be an older one."""

    def refused(*_: Any) -> None:
        raise AssertionError("the installed definition was asked for")

    monkeypatch.setattr(functions, "body_of", refused)
    each = case(0, mask=adding(2, 1, 4, 6), heads=(4, 2))
    feeds: Arrays = {name: each.operands[name] for name in ("q", "k", "v", "mask")}
    nodes = [helper.make_node("Attention", list(feeds), ["y"], is_causal=1)]
    imported = import_onnx(typed_model(nodes, feeds, {"y": 1}, opset=24))
    names = operations_in(imported.module)
    assert names.count("softmax") == 1 and names.count("matmul") == 2
    second = names.index("softmax")
    assert names[second + 1] == "matmul" and names[second + 2] == "select"


@pytest.mark.parametrize(
    ("operands", "attributes", "reason"),
    [
        ({"mask": np.zeros((2, 7), np.float32)}, {}, r"a mask of shape \[2, 7\] does not fit"),
        ({"count": np.array([1, 2, 3])}, {}, r"its number of keys has shape \[3\]"),
        ({"past_key": np.zeros((2, 2, 1, 8), np.float32)}, {}, "of a past key and a past value"),
        ({}, {"qk_matmul_output_mode": 4}, "there is no qk_matmul_output_mode 4"),
    ],
)
def test_what_does_not_fit(operands: Arrays, attributes: Any, reason: str) -> None:
    feeds = {**case(0).operands, **operands}
    names = [name if name in feeds else "" for name in NAMES]
    nodes = [helper.make_node("Attention", names, ["y", "", "", "s"], **attributes)]
    with pytest.raises(TilewrightError, match=reason):
        import_onnx(typed_model(nodes, feeds, {"y": 1, "s": 1}, opset=24))
