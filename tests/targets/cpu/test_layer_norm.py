"""Layer normalisation against its meaning: lengths with remainders, strides, what follows it.

Behind the tiles of a product it gives the bits of the two kernels that it replaces.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.cpu.kernel_harness import PLAIN, Maker, check, compare

from tilewright.codegen.c.compiler import FLAGS
from tilewright.graph.operations import BY_NAME
from tilewright.graph.operations.binary import AddOp
from tilewright.graph.operations.layer_norm import LayerNormOp
from tilewright.graph.operations.matrix import MatMulOp
from tilewright.graph.operations.pointwise import ReluOp
from tilewright.ir import SSAValue
from tilewright.machine import Machine
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.processors import this_processor
from tilewright.targets.cpu.runner import CpuRunner
from tilewright.targets.cpu.target import CpuTarget


def norm(
    m: Maker, shape: tuple[int, ...], operands: int = 3, layout: str = "", **attributes: object
) -> SSAValue:
    inputs: list[SSAValue | int] = [m.input(shape, layout, scale=3.0)]
    inputs += [m.weight(shape[-1:]) for _ in range(operands - 1)]
    residual = m.input(shape, layout)
    chain = [(LayerNormOp, inputs, attributes), (AddOp, [0, residual], {}), (ReluOp, [1], {})]
    return m.kernel(chain, layout)  # type: ignore[arg-type]


CASES = {
    "wide": lambda m: norm(m, (1, 5, 768)),
    "remainder": lambda m: norm(m, (3, 197)),
    "root_mean_square": lambda m: norm(m, (7, 100), 2, centred=False, epsilon=1e-6),
    "short": lambda m: norm(m, (2, 3, 5), 1),
    "one": lambda m: norm(m, (4, 1)),
    "blocked": lambda m: norm(m, (1, 20, 3, 37), 3, "NCHWLc"),
    "vectors": lambda m: norm(m, (2, 64), 2),
}


@pytest.mark.parametrize("made", [machine(), PLAIN], ids=["native", "four lanes"])
def test_layer_norm(made: Machine) -> None:
    m = Maker(made, seed=3)
    m.finish(*(case(m) for case in CASES.values()))
    flags = () if made is PLAIN else this_processor().flags
    check(m, flags=(*FLAGS, *flags, "-Werror"))


def behind(
    m: Maker,
    shape: tuple[int, ...],
    width: int,
    schedule: tuple[dict[str, int], ...],
    order: str,
    offset: float = 0.0,
    operands: int = 3,
    residual: bool = True,
    shared: str = "",
    **attributes: Any,
) -> tuple[SSAValue, SSAValue]:
    """A product, a sum and its normalisation as one kernel, and the same as two.

    ``schedule`` has the tiles' sizes, of blocks of rows first where there are two; ``order`` is
    that of the loops over tiles.
    """
    rows, outer = ("n", {}) if len(shape) == 2 else ("m", {"b0": 1})
    block = f"OI{m.lanes}o"
    x, w = m.input(shape), m.weight((width, shape[-1]), block)
    b, r = m.weight((width,), "OLo"), m.input((*shape[:-1], width))
    if residual:
        m.inputs[f"in{len(m.inputs) - 1}"] += np.float32(offset)
    others = [m.weight((width,), scale=1.0) for _ in range(operands - 1)]
    *blocks, tile = schedule
    sizes = {**outer, "ci": shape[-1], "co": width, rows: shape[-2]}
    levels = [
        Level("l2", tuple(sorted({**sizes, **one}.items())), (*outer, rows)) for one in blocks
    ]
    sizes = {**sizes, **(blocks[-1] if blocks else {}), **tile}
    levels.append(Level("registers", tuple(sorted(sizes.items())), (*outer, *order.split())))
    made = Schedule("matmul", tuple(levels), shared=shared)

    def front() -> list[Any]:
        last = (AddOp, [0, r], {}) if residual else (BY_NAME["gelu"], [0], {})
        return [(MatMulOp, [x, w, b], {"transpose_b": True}), last]

    one = m.kernel([*front(), (LayerNormOp, [1, *others], attributes)])
    m.schedules[m.kernels[-1].symbol.data] = made
    sums = m.kernel(front())
    alone = replace(made, shared="") if shared else made
    m.schedules[m.kernels[-1].symbol.data] = alone
    return one, m.kernel([(LayerNormOp, [sums, *others], attributes)])


BEHIND = {
    "weights outside": lambda m: behind(
        m, (1, 19, 40), 51, ({"co": 2 * m.lanes, "m": 3},), "co ci m"
    ),
    "rows outside": lambda m: behind(m, (2, 13, 30), 37, ({"co": m.lanes, "m": 4},), "m co ci"),
    "blocks of rows": lambda m: behind(
        m, (1, 21, 24), 50, ({"m": 8}, {"co": m.lanes, "m": 3}), "co ci m", centred=False
    ),
    "reduction in parts": lambda m: behind(
        m, (17, 96), 43, ({"co": m.lanes, "n": 4, "ci": 64},), "ci co n", offset=-50.0
    ),
    "far from zero": lambda m: behind(
        m, (1, 11, 32), 129, ({"co": m.lanes, "m": 5},), "co ci m", offset=1000.0
    ),
    "all of it one tile": lambda m: behind(m, (3, 20), m.lanes - 1, ({},), "", operands=1),
    "no residual": lambda m: behind(
        m, (7, 20), 3 * m.lanes, ({"n": 2},), "n", operands=2, residual=False, epsilon=1e-3
    ),
    "one row": lambda m: behind(m, (1, 1, 50), 70, ({"co": m.lanes},), "co ci m"),
}


FEW = ("weights outside", "blocks of rows", "reduction in parts", "far from zero")


@pytest.mark.parametrize("names", but_fast([tuple(BEHIND), FEW], [FEW]), ids=["all", "few"])
@pytest.mark.parametrize("made", but_fast([machine(), PLAIN], [machine()]), ids=["native", "four"])
def test_behind_a_product(made: Machine, names: tuple[str, ...]) -> None:
    m = Maker(made, seed=5)
    pairs = [BEHIND[name](m) for name in names]
    m.finish(*(value for pair in pairs for value in pair))
    flags = () if made is PLAIN else this_processor().flags
    found, expected = m.run((*FLAGS, *flags, "-Werror")), m.expected()
    for number, name in enumerate(names):
        one, two = f"out{2 * number}", f"out{2 * number + 1}"
        np.testing.assert_array_equal(found[one], found[two], err_msg=name)
        # Sums near 1000 are rounded by 6e-5, beside which rows spread by about 1; the square of
        # the mean, of 1e6, has lost all that mean squares differ from it by.
        tolerance = 2e-4 if name in ("far from zero", "reduction in parts") else 1e-5
        compare({name: found[one]}, {name: expected[one]}, tolerance)


ROWS = {
    "weights outside": (({"m": 3, "co": 4},), "co ci m"),
    "rows outside": (({"m": 3, "co": 4},), "m co ci"),
    "blocks of rows": (({"m": 6}, {"m": 2, "co": 4}), "co ci m"),
    "one tile and a rest": (({"m": 13, "co": 4},), "co ci m"),
}


@pytest.mark.parametrize("name", but_fast(ROWS, ["weights outside", "blocks of rows"]))
def test_cores_divide_rows(name: str, tmp_path: Path) -> None:
    case, order = ROWS[name]
    m = Maker(PLAIN, seed=6)
    one, two = behind(m, (1, 20, 12), 22, case, order, shared="m")
    m.finish(one, two)
    CpuTarget().emit(m.compilation(), tmp_path)
    runner = CpuRunner(tmp_path)
    alone = runner.run(m.inputs).outputs
    compare(alone, m.expected(), 1e-5)
    for threads in (2, 3, 4, 7):
        runner.threads = threads
        runner.workspace[:] = 255  # NaN
        found = runner.run(m.inputs).outputs
        assert np.array_equal(found["out0"], alone["out1"]), threads
