"""Names of emitted C: none is handed out twice, whatever is asked for."""

from __future__ import annotations

import numpy as np

from tilewright.targets.sunway.emit.names import DERIVED, KEYWORDS, LOCALS, Names, header_names


def test_no_form_of_a_name_is_that_of_another() -> None:
    random = np.random.default_rng(4)
    wishes = [
        "input",
        "input2",
        "input_step2",
        "input_b",
        "get_input",
        "input_b_count",
        "co",
        "int",
    ]
    for _ in range(200):
        names, forms = Names(LOCALS), list[str]()
        for _ in range(int(random.integers(2, 12))):
            wish = str(random.choice([*wishes, *LOCALS]))
            kinds = DERIVED if random.random() < 0.5 else ("{}",)
            own = names.new(wish, kinds)
            forms += [kind.format(own) for kind in kinds]
        assert len(set(forms)) == len(forms)
        assert not set(forms) & (KEYWORDS | LOCALS)


def test_a_name_that_is_free_is_the_wish() -> None:
    names = Names()
    assert [names.new("input", DERIVED) for _ in range(3)] == ["input", "input2", "input3"]
    assert names.new("input_step2") == "input_step2"
    assert names.new("get_input2") == "get_input22"


def test_what_headers_define_is_known() -> None:
    known = header_names()
    for name in (
        "row_fma",
        "MIN",
        "box",
        "gemm_tap",
        "floatv4",
        "athread_syn",
        "exchange",
        "exp_s",
    ):
        assert name in known, name
