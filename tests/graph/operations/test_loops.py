"""Loops: what the verifier refuses, their text, and what they mean."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graph.dialect import network_of
from tilewright.graph.interpreter import interpret
from tilewright.graph.operations import LoopOp, parse
from tilewright.graph.values import value_names
from tilewright.graph.weights import Weights
from tilewright.ir import ParseError, VerifyException, to_text

GOOD = {
    "rounds": "3",
    "carried": "1",
    "axes": "[1]",
    "backwards": "[true]",
    "stacked": "[false]",
    "state": "tensor<4xf32>",
    "part": "tensor<4xf32>",
    "given": "tensor<4xf32>",
    "yields": "%c, %b : tensor<4xf32>, tensor<4xf32>",
    "result": "tensor<16xf32>",
}


def text(**changes: str) -> str:
    """A network of one loop: new = (state + part) * given, and a row before the factor."""
    at = GOOD | changes
    return f"""
graph.network "net" attributes {{input_names = ["h", "x", "k"], output_names = ["y"]}} {{
^bb0(%h: tensor<4xf32>, %x: tensor<4x3xf32>, %k: tensor<4xf32>):
  %y = graph.loop (%h, %x, %k) : (tensor<4xf32>, tensor<4x3xf32>, tensor<4xf32>) -> {at["result"]}
    attributes {{rounds = {at["rounds"]}, carried = {at["carried"]}, axes = {at["axes"]},
                backwards = {at["backwards"]}, stacked_backwards = {at["stacked"]}}} {{
  ^bb1(%state: {at["state"]}, %part: {at["part"]}, %given: {at["given"]}):
    %b = graph.add %state, %part {{node = "sum"}} : ({at["state"]}, {at["part"]}) -> tensor<4xf32>
    %c = graph.mul %b, %given {{node = "scale"}} : (tensor<4xf32>, {at["given"]}) -> tensor<4xf32>
    %d = graph.cast %c {{to = "int32"}} : (tensor<4xf32>) -> tensor<4xi32>
    %e = graph.reshape %c {{shape = [2, 2]}} : (tensor<4xf32>) -> tensor<2x2xf32>
    graph.yield {at["yields"]}
  }}
  graph.output %y : {at["result"]}
}}
"""


def test_text_is_read_again() -> None:
    module = parse(text())
    assert to_text(parse(to_text(module))) == to_text(module)


def test_rounds_carry_stack_and_read_backwards() -> None:
    module = parse(text())
    random = np.random.default_rng(0)
    h, k = random.normal(size=(2, 4)).astype(np.float32)
    x = random.normal(size=(4, 3)).astype(np.float32)
    state, rows = h, []
    for number in (2, 1, 0):
        rows.append(state + x[:, number])
        state = rows[-1] * k
    got = interpret(module, Weights(), {"h": h, "x": x, "k": k})["y"]
    np.testing.assert_array_equal(got, np.concatenate([state, *rows]))


def test_the_first_round_may_be_stacked_last() -> None:
    arrays = {
        name: np.arange(size, dtype=np.float32).reshape(shape)
        for name, size, shape in (("h", 4, (4,)), ("x", 12, (4, 3)), ("k", 4, (4,)))
    }
    plain, turned = (
        interpret(parse(text(stacked=flag)), Weights(), arrays)["y"]
        for flag in ("[false]", "[true]")
    )
    np.testing.assert_array_equal(plain[:4], turned[:4])
    np.testing.assert_array_equal(plain[4:].reshape(3, 4)[::-1], turned[4:].reshape(3, 4))


def test_values_of_a_body_have_the_name_of_the_loop() -> None:
    names = value_names(parse(text())).values()
    assert {"loop", "loop.state", "loop.sum", "loop.scale"} <= set(names)


REFUSED = {
    "no round": ({"rounds": "0"}, "rounds must be an integer"),
    "another number of rounds": ({"rounds": "4"}, "has no 4 indices along axis 1"),
    "an axis beyond the rank": ({"axes": "[2]"}, "along axis 2"),
    "too few directions": ({"backwards": "[]"}, "backwards must be a list of 1 booleans"),
    "numbers for flags": ({"stacked": "[1]"}, "stacked_backwards must be a list of 1 booleans"),
    "more operands carried than there are": ({"carried": "4"}, "carried must be an integer"),
    "a part of another shape": ({"part": "tensor<1xf32>"}, "argument 1 of its body"),
    "a given value of another shape": ({"given": "tensor<1xf32>"}, "argument 2 of its body"),
    "a state that changes its shape": (
        {"yields": "%e, %b : tensor<2x2xf32>, tensor<4xf32>"},
        "what is carried",
    ),
    "rows of another element type": (
        {"yields": "%c, %d : tensor<4xf32>, tensor<4xi32>"},
        "differs in element type",
    ),
    "nothing that is carried": (
        {"yields": "%c : tensor<4xf32>", "carried": "2", "axes": "[]", "backwards": "[]"},
        "argument 1 of its body|yields too little",
    ),
    "a result of another size": ({"result": "tensor<12xf32>"}, "the shape rule gives"),
    "a value of the network around": (
        {"yields": "%c, %h : tensor<4xf32>, tensor<4xf32>"},
        "uses a value before it is computed, or one from outside",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_loop_is_refused(case: str) -> None:
    changes, reason = REFUSED[case]
    with pytest.raises((VerifyException, ParseError), match=reason):
        parse(text(**changes))


def test_parts_lie_one_after_another() -> None:
    (loop,) = [op for op in network_of(parse(text())).operations if isinstance(op, LoopOp)]
    assert loop.parts == [(0, (4,)), (4, (3, 4))]
