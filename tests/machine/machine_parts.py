"""A small machine to vary in tests."""

from tilewright.machine import Engine, Machine, Memory, Move, Primitive, Storage


def small_machine(**changes):
    parts = {
        "name": "small",
        "clock_hz": 1e9,
        "memories": (
            Memory(name="dram", bytes_per_cycle=8),
            Memory(name="near", bytes=1024, granule=16),
            Memory(name="far", bytes=512),
        ),
        "moves": (
            Move(name="in", source="dram", target="near", engine="load", bytes_per_cycle=8),
            Move(
                name="out",
                source="near",
                target="dram",
                engine="load",
                bytes_per_cycle=4,
                efficiency=((64, 0.5), (256, 1.0)),
            ),
        ),
        "engines": (Engine(name="load"), Engine(name="compute", queue=2)),
        "primitives": (
            Primitive(
                name="conv",
                operations=("conv", "matmul"),
                engine="compute",
                operands={
                    "input": Storage(memory="near"),
                    "weight": Storage(memory="near", multiples={"co": 8}),
                    "bias": Storage(memory="near", joined="weight"),
                    "output": Storage(memory="near"),
                },
                epilogue=(("relu",), ("requantise",)),
                cycles="ceil(co/8)*ci",
                peak="co*ci/8",
                multiples={"co": 8},
                limits={"co": 64},
                whole=("kh",),
                extents={"ci": (1, 4)},
            ),
        ),
        "layouts": {"activation": "NHWC"},
    }
    return Machine(**{**parts, **changes})
