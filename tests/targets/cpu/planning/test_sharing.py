"""Which loop the cores share: legal, balanced, outermost; and loops for schedules without any."""

from dataclasses import replace

import pytest

from tilewright.machine import Machine
from tilewright.planning import Planner
from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Stage
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cpu.machine import machine as cpu
from tilewright.targets.cpu.planning.cost import Nest
from tilewright.targets.cpu.planning.sharing import divisible, exchanged, share
from tilewright.targets.cpu.processors import Processor


def machine(cores: int, lanes: int = 16) -> Machine:
    return cpu(Processor(lanes=lanes, cores=cores))


def one(dim: str) -> Affine:
    return Affine(((dim, 1),))


def product(rows: int, columns: int, depth: int) -> Kernel:
    dims = (Dim("m", rows), Dim("co", columns), Dim("ci", depth, "reduction"))
    x = Operand("x", (rows, depth), (one("m"), one("ci")))
    w = Operand("w", (columns, depth), (one("co"), one("ci")), role="weight", layout="OI16o")
    y = Operand("y", (rows, columns), (one("m"), one("co")), role="output")
    return Kernel("k", (Stage("matmul", dims, (x, w), y),))


def map_of(shape: tuple[int, ...], layout: str = "") -> Kernel:
    dims = tuple(Dim(f"d{axis}", extent) for axis, extent in enumerate(shape))
    access = tuple(one(dim.name) for dim in dims)
    x = Operand("x", shape, access, layout=layout)
    y = Operand("y", shape, access, role="output", layout=layout)
    return Kernel("k", (Stage("relu", dims, (x,), y),))


def trips(kernel: Kernel, schedule: Schedule) -> dict[str, int]:
    found: dict[str, int] = {}
    for dim, extent, step in Nest.of(kernel, schedule).loops:
        found.setdefault(dim, -(-extent // step))
    return found


@pytest.mark.parametrize("cores", [2, 3, 4, 8])
def test_every_core_has_work(cores: int) -> None:
    kernel = product(512, 768, 512)
    schedule = Planner(machine(cores)).plan(kernel).schedule
    assert schedule.shared in ("m", "co")
    count = trips(kernel, schedule)[schedule.shared]
    assert count / (-(-count // cores) * cores) > 0.6
    assert Schedule.from_json(schedule.to_json()) == schedule
    assert f"cores share {schedule.shared}" in str(schedule)


def test_one_core_or_little_work_is_not_divided() -> None:
    assert Planner(machine(1)).plan(product(512, 768, 512)).schedule.shared == ""
    assert Planner(machine(8)).plan(product(4, 32, 16)).schedule.shared == ""


def test_a_reduction_is_never_divided() -> None:
    kernel = product(1, 16, 1 << 20)
    assert Planner(machine(4)).plan(kernel).schedule.shared != "ci"


def test_a_map_gets_a_loop_by_whole_blocks() -> None:
    kernel = map_of((1, 96, 128, 128), "NCHW16c")
    schedule = Planner(machine(2)).plan(kernel).schedule
    assert schedule.shared == "d1"
    assert dict(schedule.levels[0].tile)["d1"] == 48
    # 5 blocks of channels do not give 4 cores a part each, rows do.
    schedule = Planner(machine(4)).plan(map_of((1, 80, 128, 128), "NCHW16c")).schedule
    assert schedule.shared == "d2"


def test_every_core_has_scratch_so_output_channels_can_be_divided() -> None:
    kernel = product(512, 768, 512)
    anchor = kernel.anchor
    scratch = Operand("s", (1 << 20,), (Affine(),), role="scratch")
    held = replace(kernel, stages=(replace(anchor, inputs=(*anchor.inputs, scratch)),))
    schedule = Planner(machine(1)).plan(kernel).schedule
    bare = share(kernel, machine(4), schedule, 1e9)[1].shared
    assert bare and share(held, machine(4), schedule, 1e9)[1].shared == bare


def points(channels: int, results: int, size: int) -> tuple[Kernel, Schedule]:
    """A convolution of points, with loops over blocks of results around those over rows."""
    dims = (
        *(Dim("n", 1), Dim("co", results), Dim("oh", size), Dim("ow", size)),
        Dim("ci", channels, "reduction"),
    )
    image = tuple(one(dim) for dim in ("n", "ci", "oh", "ow"))
    x = Operand("x", (1, channels, size, size), image, layout="NCHW16c")
    w = Operand("w", (results, channels), (one("co"), one("ci")), role="weight", layout="OI16o")
    image = tuple(one(dim) for dim in ("n", "co", "oh", "ow"))
    y = Operand("y", (1, results, size, size), image, role="output", layout="NCHW16c")
    tile = (("ci", channels), ("co", 16), ("n", 1), ("oh", 1), ("ow", size))
    schedule = Schedule("conv", (Level("registers", tile, ("n", "co", "oh")),))
    return Kernel("k", (Stage("conv", dims, (x, w), y),)), schedule


def test_cores_take_rows_of_images_and_columns_of_large_weights() -> None:
    kernel, schedule = points(512, 64, 14)
    assert share(kernel, machine(2), schedule, 1e5)[1].shared == "oh"
    kernel, schedule = points(512, 2048, 7)
    assert share(kernel, machine(2), schedule, 1e5)[1].shared == "co"
    # What is computed takes so long that the cores' balance alone counts: 64 blocks, not 7 rows.
    kernel, schedule = points(512, 1024, 7)
    assert share(kernel, machine(2), schedule, 1e9)[1].shared == "co"


def test_what_cores_get_from_each_other() -> None:
    kernel, _ = points(512, 64, 14)
    rows, columns, nothing = (exchanged(kernel, machine(2), dim) for dim in ("oh", "co", ""))
    assert 0 < rows < columns < nothing
    # An image that no cache holds is read from the last one, whoever made it.
    kernel, _ = points(512, 64, 140)
    assert exchanged(kernel, machine(2), "co") == 0.0


def test_a_schedule_is_taken_that_cores_can_divide_if_one_core_loses_little() -> None:
    kernel, rows = points(64, 64, 14)
    tile = {**dict(rows.levels[0].tile), "co": 64}
    whole = replace(rows, levels=(Level("registers", tuple(tile.items()), ("n", "oh")),))
    uneven = replace(
        whole, levels=(Level("registers", (*(tile | {"oh": 10}).items(),), ("n", "oh")),)
    )
    priced = [(1e6, 0.0, uneven), (1.01e6, 0.0, whole), (2e6, 0.0, rows)]
    assert divisible(kernel, machine(2), priced) == 1
    assert divisible(kernel, machine(1), priced) == 0
    # What one core would lose much by is not taken, nor what is hardly better for several.
    assert divisible(kernel, machine(2), [priced[0], priced[2]]) == 0
    assert divisible(kernel, machine(2), [priced[1], (1.01e6, 0.0, rows)]) == 0
