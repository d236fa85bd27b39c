"""Products in pieces of what is infinite, no number, or nearly too large, against direct ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tests.slow import but_fast
from tests.targets.cpu.piece_networks import (
    BUILDS,
    EVERYWHERE,
    LOWERED,
    Case,
    Expected,
    lacking,
    lowered,
    product,
)

import tilewright
from tilewright.ir.types import Array
from tilewright.numerics.pieces import TWO
from tilewright.targets.cpu import capabilities
from tilewright.targets.cpu.passes.choose_methods import ChooseMethods
from tilewright.targets.cpu.piece_primitives import PIECE_PRIMITIVES
from tilewright.targets.cpu.runner import CpuRunner

CASES = {
    "windows": Case((2, 40, 9, 11), 40, (3, 3), pads=(1, 1, 1, 1), bias=True),
    "strided": Case((1, 33, 12, 13), 17, (3, 2), strides=(2, 2), pads=(0, 1, 2, 1)),
    "rows": Case((37, 70), 50, bias=True, rows=True),
    "weights": Case((21, 70), 50, bias=True, rows=True),
}
"""The last has weights that are not finite, or nearly too large; of the others inputs change."""

GREATEST = float(np.finfo(np.float32).max)
ROUNDED = 255.5 * 2.0**120
"""The least number whose nearest bfloat16 is infinite."""

CUT = 1.25
"""Error of two pieces that are cut, which lack 2**-16 of a number, by what the analysis allows of
those that are rounded: 2**-16 + 2**-16 + 2**-17 by 2**-16 + 2**-17 + 2**-17 of a product."""

VALUES = {
    "infinity": (np.inf,),
    "minus infinity": (-np.inf,),
    "no number": (np.nan,),
    "no number of ones": (float(np.array(0x7FFFFFFF, np.uint32).view(np.float32)),),
    "both infinities": (np.inf, -np.inf),
    "infinity and no number": (np.inf, np.nan),
    "1e30": (1e30,),
    "3e38": (3e38,),
    "the greatest that is rounded": (float(np.nextafter(np.float32(ROUNDED), np.float32(0))),),
    "the least that is cut": (ROUNDED,),
    "3.39e38": (-3.39e38,),
    "the greatest": (GREATEST,),
}
"""What takes the place of inputs of one point."""


@dataclass(frozen=True)
class Odd:
    """The program of ``CASES``, of so many pieces, and image, weights and bias of each."""

    program: Path
    pieces: int
    data: Mapping[str, tuple[Array, Array, Array]]

    def expected(self, name: str, x: Array) -> Expected:
        """In float64, directly."""
        case, (_, w, b) = CASES[name], self.data[name]
        bias = b[:, None, None] if case.windows else b
        with np.errstate(invalid="ignore"):
            exact = product(case, x, w) + bias
            magnitude = product(case, np.abs(x), np.abs(w)) + np.abs(bias)
        return Expected(exact, exact, magnitude, int(np.prod(w.shape[1:])), self.pieces)


def arrays(name: str) -> tuple[Array, Array, Array]:
    case, random = CASES[name], np.random.default_rng(len(name))
    taps = () if case.rows else case.window
    x = random.standard_normal(case.shape).astype(np.float32)
    w = random.standard_normal((case.co, case.channels, *taps)).astype(np.float32)
    b = random.standard_normal(case.co).astype(np.float32) * case.bias
    w[1] = 1  # Of which the greatest number is a finite sum.
    if name == "weights":
        odd = {
            (19, 5): np.inf,
            (17, 40): -np.inf,
            (20, 6): np.nan,
            (36, 69): GREATEST,
            (49, 0): 3e38,
        }
        for place, value in odd.items():
            w[place] = value
        w[44, [1, 34]] = np.inf, -np.inf
        w[[30, 33]], b[[30, 33]] = w[2], b[2]
        w[47, 12] = ROUNDED
        x[:, 12] /= 8
    return x, w, b


@pytest.fixture(scope="module", params=but_fast(PIECE_PRIMITIVES, [TWO]))
def odd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Odd:
    """A model of convolutions and products side by side."""
    data = {name: arrays(name) for name in CASES}
    result = Odd(tmp_path_factory.mktemp("odd"), request.param, data)
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []
    for name, case in CASES.items():
        _, w, b = data[name]
        kind = "Gemm" if case.rows else "Conv"
        attributes: dict[str, Any] = {"pads": case.pads, "strides": case.strides}
        if case.rows:
            attributes = {"transB": 1}
        constants += [numpy_helper.from_array(a, f"{name} {k}") for k, a in (("w", w), ("b", b))]
        nodes.append(
            helper.make_node(kind, [name, f"{name} w", f"{name} b"], [f"{name} y"], **attributes)
        )
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "odd",
        [value(name, 1, case.shape) for name, case in CASES.items()],
        [value(f"{n} y", 1, result.expected(n, data[n][0]).exact.shape) for n in CASES],
        constants,
    )
    path = result.program / "odd.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    conv, matmul = names = PIECE_PRIMITIVES[request.param]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capabilities, "ChooseMethods", lambda: ChooseMethods(method=names))
        made = tilewright.compile(path, machine=EVERYWHERE, directory=result.program / "package")
    assert isinstance(made, tilewright.Executable)
    used = [kernel.schedule.partition(" ")[0] for kernel in made.manifest.kernels]
    assert [name for name in used if name in names] == [*[conv] * 2, *[matmul] * 2]
    return Odd(made.directory / "program", result.pieces, data)


def close(found: Array, expected: Expected, cut: bool) -> None:
    """Infinite and no number where float32 is, else as near as the analysis says."""
    with np.errstate(over="ignore"):
        wanted = expected.exact.astype(np.float32)
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(found[~finite], wanted[~finite])
    error = np.abs(found[finite].astype(np.float64) - expected.exact[finite])
    assert (error <= expected.bound[finite] * (CUT if cut else 1)).all()


@pytest.mark.few(1)
@pytest.mark.parametrize("build", but_fast([LOWERED, *BUILDS], [LOWERED, "tiles"]))
def test_what_is_not_finite_is_as_in_float32_and_stays_in_its_windows(
    odd: Odd, tmp_path: Path, build: str
) -> None:
    if reason := lacking(build):
        pytest.skip(reason)
    program, flags = lowered(odd.program, tmp_path / "lowered")
    if build != LOWERED:
        program, flags = odd.program, BUILDS[build][0]
    runner = CpuRunner(program, flags)
    plain = {name: arrays[0] for name, arrays in odd.data.items()}
    usual = {name: array.copy() for name, array in runner.run(plain).outputs.items()}
    for name in CASES:
        close(
            usual[f"{name} y"],
            odd.expected(name, plain[name]),
            odd.pieces == TWO and name == "weights",
        )
    # Of a vector of output channels those alone are computed again that are not finite.
    alike = usual["weights y"][:, [2, 30, 33]]
    assert (alike == alike[:, :1]).all()
    random = np.random.default_rng(7)
    infinite = 0
    for case, values in VALUES.items():
        inputs = {name: array.copy() for name, array in plain.items()}
        reached: dict[str, Array] = {}
        for name, (_, w, _) in odd.data.items():
            if name == "weights":
                continue
            # The last axis of rows is channels; of images the second is.
            axis = -1 if CASES[name].rows else 1
            points = np.moveaxis(inputs[name], axis, -1)
            place = tuple(random.integers(points.shape[:-1]))
            channels = random.choice(points.shape[-1], len(values), replace=False)
            points[(*place, channels)] = values
            mark = np.zeros_like(points)
            mark[place] = 1
            reached[name] = product(
                CASES[name], np.moveaxis(mark, -1, axis), np.ones_like(w)
            ).astype(bool)
        runner.workspace[:] = 255
        outputs = runner.run(inputs).outputs
        assert outputs["weights y"].tobytes() == usual["weights y"].tobytes()
        for name, inside in reached.items():
            found, before = outputs[f"{name} y"], usual[f"{name} y"]
            assert inside.any() and not inside.all(), (case, name)
            assert found[~inside].tobytes() == before[~inside].tobytes(), (case, name)
            cut = odd.pieces == TWO and np.abs(values[0]) >= ROUNDED
            close(found, odd.expected(name, inputs[name]), bool(cut))
            infinite += np.isinf(found).sum()
    assert infinite
