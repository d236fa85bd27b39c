"""Texts of tile programs that name what the machine has not, or break its rules, are refused."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tilewright.cli.optimise import optimise_text
from tilewright.compiler.pipeline import resolve
from tilewright.compiler.representation import representation
from tilewright.errors import TilewrightError

LENET = Path(__file__).parents[2] / "examples" / "lenet5" / "lenet5.onnx"


@cache
def text_for(target: str) -> str:
    return representation(LENET, *resolve(target), "tile")


BROKEN = {
    "a memory": ('in "cc"', 'in "cd"', "tile-machine.*no memory cd.*one of gm, "),
    "a level's memory": (
        'levels ["gm", "ub"]',
        'levels ["gm", "uc"]',
        "tile-machine.*k8_cast_image.*no memory uc.*one of gm, .*ub",
    ),
    "a slot's memory": ('4, "cbuf"]', '4, "cbug"]', "tile-machine.*no memory cbug.*one of gm, "),
    "a loop's memory": ('for "gm"', 'for "gn"', "tile-machine.*no memory gn.*one of gm, "),
    "a move": ('in "ub" slots', 'in "cc" slots', "tile-machine.*no move from gm to cc"),
    "a move's engine": ('on "mte2"', 'on "mte3"', "tile-machine.*run on mte2, not on mte3"),
    "a compute's engine": ('"cast" on "v"', '"cast" on "m"', "tile-machine.*runs on v, not on m"),
    "a primitive": ('"mad" on', '"madd" on', "tile-machine.*no primitive madd.*one of mad, "),
    "an operation": ('tile.stage "cast"', 'tile.stage "casts"', "tile-machine.*is named casts"),
    "an address": ("address 512 bytes 256", "address 448 bytes 256", "tile-capacity.*shares addr"),
    "a level": ('levels ["gm", "ub"]', 'levels ["gm", 3]', "text-invalid.*level 3 names no"),
    "slots": ('slots [["convert_layout", 2]', 'slots [["image"]', "text-invalid.*slots are an op"),
    "a dim": ('tile.loop "oh"', 'tile.loop "oz"', "text-invalid.*no dim oz"),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("name", BROKEN)
def test_broken_texts_are_refused_with_the_reason(name: str) -> None:
    text = text_for("ascend910")
    old, new, reason = BROKEN[name]
    assert old in text
    with pytest.raises(TilewrightError, match=f"(?s){reason}"):
        optimise_text(text.replace(old, new, 1), "check", "ascend910")


def test_parts_of_the_machine_are_asked_for_before_any_pass() -> None:
    """Without the pass ``check``, too: others look a primitive up by its name."""
    text = text_for("ascend910").replace('"mad" on', '"madd" on', 1)
    with pytest.raises(TilewrightError, match=r"tile-machine.*no primitive madd"):
        optimise_text(text, "allocate", "ascend910")


WAITS = {
    "a wait": (
        'waits ["ready quantise", ',
        "waits [",
        "tile-race.*must wait for 'ready quantise'",
    ),
    "a name": ('waits ["ready quantise"', 'waits ["ready picture"', "text-invalid.*no buffer"),
}


@pytest.mark.parametrize("name", WAITS)
def test_broken_waits_are_refused_where_programs_have_some(name: str) -> None:
    text = text_for("cambricon-x")
    old, new, reason = WAITS[name]
    assert old in text
    with pytest.raises(TilewrightError, match=f"(?s){reason}"):
        optimise_text(text.replace(old, new, 1), "check", "cambricon-x")


@pytest.mark.parametrize("target", ["ascend910", "cambricon-x"])
def test_a_network_is_as_its_machine_asks(target: str) -> None:
    text = text_for(target)
    assert optimise_text(text, "check", target).rstrip("\n") == text.rstrip("\n")


def test_programs_of_another_machine_are_refused() -> None:
    with pytest.raises(TilewrightError, match=r"tile-machine.*shidiannao has no"):
        optimise_text(text_for("ascend910"), "check", "shidiannao")
