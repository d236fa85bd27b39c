"""Fusion plans as text and JSON."""

import json
from dataclasses import replace

from tilewright.network.fusion.plan import FusedGroup, FusionPlan, StayingTensor

PLAN = FusionPlan(
    "lenet5",
    "cpu",
    "exact",
    (FusedGroup("conv-pool", ("k0_conv1", "k1_pool1"), 15530.5),),
    (("k2_conv2", 17222.0),),
    (StayingTensor('a "b"', "vb0", ("k1_pool1", "k2_conv2"), 784, 20.5),),
)
TEXT = """\
fusion plan of "lenet5" for "cpu" by exact: 32752.5 cycles
fuse conv-pool: k0_conv1, k1_pool1 (15530.5 cycles)
alone: k2_conv2 (17222.0 cycles)
stays in vb0: "a \\"b\\"" for k1_pool1, k2_conv2 (784 bytes, 20.5 cycles less)
"""


def test_the_text() -> None:
    assert str(PLAN) == TEXT
    value = PLAN.to_json()
    assert (value["cycles"], value["hash"]) == (PLAN.cycles, PLAN.hash)
    assert value["groups"] == [
        {"fusion": "conv-pool", "kernels": ["k0_conv1", "k1_pool1"], "cycles": 15530.5}
    ]
    assert value["stays"][0]["readers"] == ["k1_pool1", "k2_conv2"]
    assert json.loads(json.dumps(value)) == value
    assert replace(PLAN, alone=(("k2_conv2", 17223.0),)).hash != PLAN.hash
