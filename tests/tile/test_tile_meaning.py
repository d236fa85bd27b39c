"""Kernel and schedule, through every pass, against the meaning of the whole kernel."""

import pytest

from tests.slow import but_fast
from tests.tile.interpreter import run
from tests.tile.tile_kernels import case, random_schedule, toy
from tilewright.ir import Parser, to_text
from tilewright.ir.passes import CompilerContext, PassRunner
from tilewright.tile.build import build
from tilewright.tile.dialect import load_into, programs_of
from tilewright.tile.passes import pipeline


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", but_fast(range(90), range(8)))
def test_every_pass_keeps_the_meaning(seed: int) -> None:
    example, machine = case(seed), toy(seed)
    schedule = random_schedule(example, machine, seed)
    module = build(example.kernel, schedule, machine)
    context = CompilerContext(machine)
    load_into(context)
    module.verify()
    example.check(run(programs_of(module)[0], example.feeds)["y"])
    for entry in pipeline(machine):
        PassRunner(context).run(module, [entry])
        program = programs_of(module)[0]
        example.check(run(program, example.feeds, machine)["y"])
        text = to_text(module)
        again = Parser(context, text).parse_module()
        again.verify()
        assert to_text(again) == text
    if machine.synchronisation.style != "none":
        for number in range(3):
            result = run(program, example.feeds, machine, interleave=seed * 10 + number)
            example.check(result["y"])
