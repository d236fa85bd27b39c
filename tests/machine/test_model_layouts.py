"""Which layout a primitive's operand has in main memory."""

import pytest

from tilewright.machine import Engine, Machine, Memory, Primitive, Storage


def primitive(name: str, layouts: dict[str, str], **more: object) -> Primitive:
    return Primitive.model_validate(
        {
            "name": name,
            "operations": ("conv",),
            "engine": "core",
            "operands": {r: Storage(memory="dram", layout=text) for r, text in layouts.items()},
            "cycles": "1",
            "peak": "1",
            **more,
        }
    )


BLOCKED = primitive(
    "conv", {"input": "NCHW16c", "weight": "OIHW16i16o", "bias": "O16o", "output": ""}
)
FIRST = primitive("conv_first", {"input": "NCHW", "output": "any"}, extents={"ci": (1, 4)})
MACHINE = Machine(
    name="m",
    clock_hz=1e9,
    memories=(Memory(name="dram"),),
    engines=(Engine(name="core"),),
    primitives=(FIRST, BLOCKED),
    layouts={"activation": "NHWC", "weight": "OHWI"},
)


@pytest.mark.parametrize(
    ("chosen", "role", "rank", "layout"),
    [
        (BLOCKED, "input", 4, "NCHW16c"),
        (BLOCKED, "input", 2, ""),
        (BLOCKED, "weight", 4, "OIHW16i16o"),
        (BLOCKED, "bias", 1, "O16o"),
        (BLOCKED, "output", 4, "NHWC"),
        (BLOCKED, "residual", 4, "NHWC"),
        (FIRST, "input", 4, "NCHW"),
        (FIRST, "output", 4, "any"),
        (FIRST, "output", 2, "any"),
        (FIRST, "weight", 4, "OHWI"),
        (FIRST, "bias", 1, ""),
    ],
)
def test_layout_of(chosen: Primitive, role: str, rank: int, layout: str) -> None:
    assert MACHINE.layout_of(chosen, role, rank) == layout


def test_serves() -> None:
    assert FIRST.serves("conv", {"ci": 3})
    assert not FIRST.serves("conv", {"ci": 5})
    assert not FIRST.serves("max_pool", {"ci": 3})
    assert BLOCKED.serves("conv", {"ci": 3})
