"""fold-constants, fuse-batch-norm and simplify keep the meaning of random networks."""

import pytest

from tests.graph.passes.pass_networks import (
    accelerator,
    assert_same,
    context,
    evaluate,
    inputs_of,
    random_network,
)
from tests.slow import but_fast
from tilewright.graph.passes.fold_constants import FoldConstants
from tilewright.graph.passes.fuse_batch_norm import FuseBatchNorm
from tilewright.graph.passes.simplify import Simplify
from tilewright.ir import ModulePass
from tilewright.targets.cpu.machine import machine as cpu

MACHINES = {"small": accelerator(), "cpu": cpu()}
PASSES: dict[str, tuple[ModulePass, ...]] = {
    "fold-constants": (FoldConstants(),),
    "fuse-batch-norm": (FuseBatchNorm(),),
    "simplify": (Simplify(),),
    "all": (FoldConstants(), Simplify(), FuseBatchNorm(), Simplify(), FoldConstants()),
}


@pytest.mark.parametrize("passes", PASSES)
@pytest.mark.parametrize("seed", but_fast(range(12), range(4)))
def test_meaning_is_kept(seed: int, passes: str) -> None:
    module, store = random_network(seed)
    inputs = inputs_of(module, seed)
    expected = evaluate(module, store, inputs)
    ctx = context(MACHINES["small" if seed % 2 else "cpu"], store)
    for step in PASSES[passes]:
        step.apply(ctx, module)
        module.verify()
    assert_same(expected, evaluate(module, store, inputs))
    text = str(module)
    for step in PASSES[passes]:
        step.apply(ctx, module)
    assert str(module) == text, "a second run changes nothing"
