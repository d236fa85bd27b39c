"""Moves that gather windows: convolutions on a unit that multiplies matrices alone."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.slow import but_fast
from tests.targets.generic import test_deep_machine as deep
from tests.targets.generic import test_int8_machine as int8
from tests.targets.generic.c.c_kernels import emitted, with_c
from tests.targets.generic.kernel_cases import Case, conv_case, lower_case, matmul_case
from tests.tile.interpreter import run

import tilewright
from tilewright.errors import TilewrightError
from tilewright.ir import Parser, VerifyException, to_text
from tilewright.machine import Machine
from tilewright.machine.load import load_machine
from tilewright.planning import Budget, Plan, Planner
from tilewright.targets.generic.isa import derive
from tilewright.targets.generic.timer import timer
from tilewright.targets.generic.timing import check_races, time_program
from tilewright.tile.dialect import BufferOp, MoveOp, context, programs_of
from tilewright.tile.lower import tile, tile_module

FILE = Path(__file__).parents[3] / "examples" / "machines" / "img2col.toml"
MACHINE = load_machine(FILE)


def straight() -> Machine:
    """The machine with one level: windows are gathered on the way from main memory."""
    (direct,) = (move for move in MACHINE.moves if move.name == "load-windows")
    direct = direct.model_copy(update={"source": "dram", "bytes_per_cycle": 16.0})
    moves = tuple(move for move in MACHINE.moves if move.name != "load-windows")
    return MACHINE.model_copy(update={"moves": (*moves, direct)})


def of_8_bits() -> Machine:
    values = {"element": "fixed8", "accumulator": "fixed32"}
    return MACHINE.with_values(values).model_copy(
        update={"primitives": tuple(p for p in MACHINE.primitives if p.name == "product")}
    )


MACHINES = {"two levels": MACHINE, "one level": straight(), "8 bits": of_8_bits()}


@lru_cache(maxsize=64)
def planned(name: str, seed: int) -> tuple[Case, Plan]:
    machine = MACHINES[name]
    narrow = machine.element == "fixed8"
    case = int8.convolution(seed) if narrow else conv_case(seed, fixed=True)
    return case, Planner(machine, budget=Budget(greedy=False)).plan(case.kernel)


def gathers(case: Case, chosen: Plan, machine: Machine) -> bool:
    program = tile(case.kernel, chosen.schedule, machine)
    moves = [op for op in program.walk() if isinstance(op, MoveOp) and op.transform is not None]
    return bool(moves)


@pytest.mark.few(4)
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("seed", but_fast(range(40), range(0, 40, 5)))
def test_convolutions_of_any_window(seed: int, name: str) -> None:
    """Strides, dilations, groups, padding on every side, batches: words and the interpreter."""
    (case, chosen), machine = planned(name, seed), MACHINES[name]
    instructions = derive(machine)
    lowered = lower_case(case, chosen.schedule, machine, instructions)
    np.testing.assert_array_equal(lowered.run(), case.expected)
    report = check_races(lowered.program, np.zeros(lowered.program.size, np.int64))
    assert report.complete and not report.races and not report.unwritten
    program = tile(case.kernel, chosen.schedule, machine)
    output = case.kernel.output.name
    for interleave in (None, seed, seed + 1):
        result = run(program, case.operands, machine, interleave=interleave)[output]
        np.testing.assert_array_equal(result, case.expected)


def test_most_convolutions_gather_and_products_do_not() -> None:
    conv = [gathers(*planned("two levels", seed), MACHINE) for seed in range(0, 40, 5)]
    assert sum(conv) >= 6
    product = matmul_case(3, fixed=True)
    assert not gathers(product, Planner(MACHINE).plan(product.kernel), MACHINE)
    point = deep.convolution(2, 96, 100, 9, 1)
    chosen = Planner(MACHINE).plan(point.kernel)
    assert not gathers(point, chosen, MACHINE), "a 1 x 1 window of stride 1 is copied"
    lowered = lower_case(point, chosen.schedule, MACHINE, derive(MACHINE))
    np.testing.assert_array_equal(lowered.run(), point.expected)


@pytest.mark.parametrize("pads", [(0, 0, 1, 1), (0, 0, 0, 2), (1, 0, 0, 0)])
def test_windows_of_one_point_are_gathered_where_they_reach_padding(
    pads: tuple[int, ...], tmp_path: Path
) -> None:
    """What lies behind the image is no copy's to bring."""
    weights = np.random.default_rng(1).normal(0, 0.3, (9, 16, 1, 1)).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="point", pads=pads)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 16, 2, 9))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    constants = [numpy_helper.from_array(weights, "w")]
    graph = helper.make_graph([node], "point", [x], [y], constants)
    path = tmp_path / "point.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    image = {"x": np.random.default_rng(2).standard_normal((2, 16, 2, 9)).astype(np.float32)}
    package = tilewright.compile(path, FILE)
    outputs = package.run(image, check_races=True)
    assert package.check(image, outputs).passed
    padded = np.pad(image["x"], [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])])
    expected = np.einsum("nchw,oc->nohw", padded, weights[:, :, 0, 0])
    np.testing.assert_allclose(outputs["y"], expected, atol=0.01)


def test_the_text_is_kept_and_runs() -> None:
    case, chosen = planned("two levels", 5)
    module = tile_module(case.kernel, chosen.schedule, MACHINE)
    text = to_text(module)
    assert " gathers [" in text and ' on "gather" with "img2col"' in text
    again = Parser(context(), text).parse_module()
    again.verify()
    assert to_text(again) == text
    (program,) = programs_of(again)
    result = run(program, case.operands, MACHINE)[case.kernel.output.name]
    np.testing.assert_array_equal(result, case.expected)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (' with "img2col"', "", "loads with 'img2col' what gathers"),
        (' with "img2col"', ' with "nz"', "loads with 'img2col' what gathers"),
        ("gathers [n, ", "gathers [n + 1, kh, ", "axes"),
        ("[n, oh, ow, kh, kw, ci] gathers", "[n, oh, ow, kh, kw, co] gathers", "of other dims"),
        ("[n, oh, ow, kh, kw, ci] gathers", "[n, oh*2, ow, kh, kw, ci] gathers", "a dim for each"),
    ],
)
def test_what_the_verifier_says(before: str, after: str, reason: str) -> None:
    case = deep.convolution(1, 20, 12, 14, 3)
    chosen = Planner(MACHINE).plan(case.kernel)
    text = to_text(tile_module(case.kernel, chosen.schedule, MACHINE))
    assert before in text
    module = Parser(context(), text.replace(before, after, 1)).parse_module()
    with pytest.raises(VerifyException, match=reason):
        module.verify()


def test_padding_and_steps_are_seen() -> None:
    """Programs whose window is another one compute something else."""
    case = deep.convolution(1, 20, 12, 14, 3)
    chosen = Planner(MACHINE).plan(case.kernel)
    text = to_text(tile_module(case.kernel, chosen.schedule, MACHINE))
    name = case.kernel.output.name
    for before, after in (("oh + kh - 1", "oh + kh"), ("ow + kw - 1", "ow + kw")):
        head, _, tail = text.partition(" gathers ")
        changed = head + " gathers " + tail.replace(before, after, 1)
        assert changed != text
        (program,) = programs_of(Parser(context(), changed).parse_module())
        try:
            result = run(program, case.operands, MACHINE)[name]
        except TilewrightError as error:
            assert error.problems[0].code == "tile-run"
        else:
            assert not np.array_equal(result, case.expected)


@pytest.mark.slow
def test_predictions_are_close() -> None:
    time = timer(MACHINE, derive(MACHINE))
    assert time is not None
    errors: list[float] = []
    for seed, (ci, co, size, kernel, stride) in enumerate(deep.SHAPES):
        if kernel == 1:  # of stride 1, it is copied
            continue
        case = deep.convolution(seed, ci, min(co, 256), min(size, 28), kernel, stride)
        chosen = Planner(MACHINE, budget=Budget(greedy=False)).plan(case.kernel)
        errors.append(abs(chosen.predicted_cycles / time(case.kernel, chosen.schedule) - 1))
    assert np.mean(errors) < 0.02
    assert max(errors) < 0.12


def test_gathered_bytes_are_charged() -> None:
    """Simulated, the gathering engine is busy for what it writes."""
    case = deep.convolution(1, 32, 16, 14, 3)
    chosen = Planner(MACHINE).plan(case.kernel)
    lowered = lower_case(case, chosen.schedule, MACHINE, derive(MACHINE))
    kernels = np.zeros(lowered.program.size, np.int64)
    slow = MACHINE.with_values({"move.load-windows.bytes_per_cycle": 1})
    slowed = lower_case(case, chosen.schedule, slow, derive(slow))
    windows = 14 * 14 * 9 * 32 * 2
    assert time_program(lowered.program, kernels).cycles < windows
    assert time_program(slowed.program, kernels).cycles >= windows


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", [5, 15])
def test_functions_in_c(seed: int, tmp_path: Path) -> None:
    case, _ = planned("two levels", seed)
    kernel = emitted(case, with_c(MACHINE))
    assert "unit_load_windows_img2col(" in kernel.text
    library = kernel.build(tmp_path / "kernel")
    for order in kernel.orders:
        np.testing.assert_array_equal(kernel.run(library, order), case.expected)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (
            'transforms = ["img2col"], ',
            "",
            "load-windows, the last move on the way there, gathers no",
        ),
        ('["img2col"]', '["fractal"]', "transforms"),
        ("operands.weight = {", "operands.weight = { gathered = true,", "conv and matmul alone"),
        ("gathered = true", "gathered = true, circular = true", "does not go with circular"),
    ],
)
def test_what_is_wrong_in_a_machine_file(before: str, after: str, reason: str) -> None:
    text = FILE.read_text()
    assert before in text
    with pytest.raises(TilewrightError, match=reason):
        load_machine(text.replace(before, after, 1))


def test_buffers_on_the_way_hold_the_image() -> None:
    case = deep.convolution(1, 20, 12, 14, 3)
    program = tile(case.kernel, Planner(MACHINE).plan(case.kernel).schedule, MACHINE)
    x = case.kernel.anchor.inputs[0].name
    buffers = {op.symbol.data: op for op in program.walk() if isinstance(op, BufferOp)}
    assert buffers[x].tensor_shape == (1, 14, 14, 3, 3, 20)
    assert buffers[f"{x}.image"].tensor_shape == (1, 20, 14, 14)
