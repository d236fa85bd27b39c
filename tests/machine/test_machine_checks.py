import pytest
from pydantic import ValidationError

from tests.machine.machine_parts import small_machine
from tilewright.machine import Engine, Machine, Memory
from tilewright.targets.ascend.capabilities import AscendMemory
from tilewright.targets.cambricon.capabilities import CambriconOperand, CambriconPrimitive
from tilewright.targets.cambricon_x.machine import MACHINE
from tilewright.targets.cpu.capabilities import CpuPrimitive


def changed(field, index, **values):
    """The small machine with values of one part changed."""
    parts = list(getattr(small_machine(), field))
    parts[index] = parts[index].model_copy(update=values)
    return {field: tuple(parts)}


def operand(role, **values):
    operands = dict(small_machine().primitives[0].operands)
    operands[role] = operands[role].model_copy(update=values)
    return changed("primitives", 0, operands=operands)


CASES = [
    (changed("primitives", 0, reserved={"hbm": 8}), "reserved: there is no memory 'hbm'"),
    (changed("primitives", 0, reserved={"near": -8}), "reserved.near: is negative"),
    ({"name": "a b"}, "name: 'a b' is not a name"),
    ({"name": "../x"}, "is not a name"),
    ({"main": "hbm"}, "main: there is no memory 'hbm'"),
    ({"engines": ()}, "engine: at least one engine is needed"),
    ({"engines": (Engine(name="load"),) * 2}, "engine.load: is given 2 times"),
    (
        {"engines": tuple(Engine(name=f"e{i}") for i in range(9))},
        "engine: 9 are given; at most 8 are possible",
    ),
    (changed("memories", 1, name="n.x"), "memory.n.x: is not a name"),
    (changed("memories", 1, bytes=None), "memory.near.bytes: is needed for every memory but"),
    (changed("memories", 0, holds=("weights",)), "memory.dram.holds: main memory holds what no"),
    (
        changed("memories", 1, holds=("weights",)),
        "near holds the network's weights, and no buffers",
    ),
    (changed("memories", 1, holds=("weights",)), "near holds weights: a run reads it"),
    (changed("memories", 1, granule=2048), "memory.near.granule: is more than the memory's bytes"),
    (
        changed("memories", 1, own=AscendMemory(hit_bytes_per_cycle=8.0)),
        "memory.near.own.ascend.hit_bytes_per_cycle: is of the main memory alone",
    ),
    (
        changed("memories", 0, own=AscendMemory(cached=8)),
        "memory.dram.own.ascend.hit_bytes_per_cycle: is needed of a cache",
    ),
    (changed("moves", 0, source="hbm"), "move.in.source: there is no memory 'hbm'"),
    (changed("moves", 0, engine="dma"), "move.in.engine: there is no engine 'dma'"),
    (changed("moves", 0, target="dram"), "move.in.target: is the same memory as the source"),
    (
        changed("moves", 1, source="dram", target="near"),
        "move.out: move in has the same source and target",
    ),
    (changed("moves", 1, efficiency=((64, 0.5), (64, 1.0))), "move.out.efficiency: block lengths"),
    (changed("moves", 1, efficiency=((64, 1.5),)), "move.out.efficiency: fractions must be from"),
    (changed("primitives", 0, engine="x"), "primitive.conv.engine: there is no engine 'x'"),
    (changed("primitives", 0, operations=()), "primitive.conv.operations: at least one"),
    (changed("primitives", 0, cycles="co**2"), "primitive.conv.cycles: '*' is not expected"),
    (changed("primitives", 0, peak="1/(co-ci)"), "primitive.conv.peak: division by zero"),
    (changed("primitives", 0, peak="0-co"), "primitive.conv.peak: is negative"),
    (changed("primitives", 0, limits={"co": 4}), "primitive.conv.limits.co: is below its granule"),
    (changed("primitives", 0, limits={"co": -1}), "primitive.conv.limits.co: is -1"),
    (changed("primitives", 0, multiples={"co": 0}), "primitive.conv.multiples.co: is 0"),
    (changed("primitives", 0, multiples={"c-o": 1}), "has a dim 'c-o'"),
    (changed("primitives", 0, multiples={"co": 1 << 40}), "multiples.co: is 1099511627776"),
    (changed("primitives", 0, cycles="cout"), "conv.cycles: no operation of the primitive has a"),
    (changed("primitives", 0, peak="co*d0"), "conv.peak: no operation of the primitive has a dim"),
    (
        changed("primitives", 0, own=CambriconPrimitive(in_place="residual")),
        "conv.own.cambricon.in_place: the primitive has no operand",
    ),
    (operand("weight", multiples={"oc": 8}), "weight.multiples: no operation of the primitive"),
    (
        operand("output", own=CambriconOperand(waits=("q",))),
        "output.own.cambricon.waits: no operation of the primitive has a dim",
    ),
    (
        operand("input", along=("q",)),
        "input.along: no operation of the primitive has a dim",
    ),
    (changed("primitives", 0, operations=("convv",)), "operations: there is no operation 'convv'"),
    (changed("primitives", 0, epilogue=(("rellu",),)), "epilogue.0: there is no operation 'rellu'"),
    (
        changed("primitives", 0, own=CpuPrimitive(pools=("pool",))),
        "conv.own.cpu.pools: there is no operation 'pool'",
    ),
    ({"accumulator": "fixed32"}, "accumulator: sums of float32 are float32, not fixed32"),
    ({"element": "fixed16"}, "accumulator: sums of fixed16 are fixed32, not float32"),
    (changed("moves", 1, efficiency=((64, 1e-320),)), "move.out.efficiency: fractions must be"),
    (changed("primitives", 0, whole=("1",)), "primitive.conv.whole: no operation"),
    (changed("primitives", 0, extents={"ci": (5, 4)}), "extents.ci: must be a positive range"),
    (changed("primitives", 0, operands={}), "primitive.conv.operands: there is no output"),
    (operand("input", memory="sb"), "primitive.conv.operands.input.memory: there is no memory"),
    (operand("input", memory="far"), "input.memory: no move leads from dram to far"),
    (operand("output", memory="far"), "output.memory: no move leads from far to dram"),
    (operand("bias", joined="scale"), "bias.joined: the primitive has no operand 'scale'"),
    (operand("bias", joined="bias"), "bias.joined: must name an operand in the same memory"),
    (operand("bias", memory="dram"), "bias.joined: must name an operand in the same memory"),
    (operand("weight", multiples={"co": 0}), "weight.multiples.co: is 0"),
]


@pytest.mark.parametrize(("change", "message"), CASES, ids=[message for _, message in CASES])
def test_inconsistent_machines_are_refused(change, message):
    with pytest.raises(ValidationError) as caught:
        small_machine(**change)
    assert message in str(caught.value)


@pytest.mark.parametrize("role", ["weights", "table"])
def test_unknown_roles_are_refused(role):
    operands = dict(small_machine().primitives[0].operands)
    operands[role] = operands["input"]
    with pytest.raises(ValidationError, match=f"operands.{role}: is not a role"):
        small_machine(**changed("primitives", 0, operands=operands))


@pytest.mark.parametrize(
    ("part", "values"),
    [
        (Memory, {"name": "m", "bytes": 0}),
        (Memory, {"name": "m", "bytes": 1 << 60}),
        (Memory, {"name": "m", "bytes_per_cycle": float("inf")}),
        (Memory, {"name": "m", "bytes_per_cycle": float("nan")}),
        (Engine, {"name": "m", "queue": 0}),
        (Engine, {"name": "m", "depth": 1}),
    ],
)
def test_values_of_parts_are_bounded(part, values):
    with pytest.raises(ValidationError):
        part(**values)


def test_every_problem_is_reported():
    with pytest.raises(ValidationError) as caught:
        small_machine(**changed("moves", 0, source="a", engine="b"))
    assert "no memory 'a'" in str(caught.value) and "no engine 'b'" in str(caught.value)


def test_moves_may_lead_through_a_memory_between():
    machine = small_machine()
    far = machine.moves[0].model_copy(update={"name": "on", "source": "near", "target": "far"})
    change = operand("input", memory="far")
    assert small_machine(**change, moves=(*machine.moves, far)).moves[2].name == "on"


@pytest.mark.parametrize("machine", [small_machine(), MACHINE], ids=lambda m: m.name)
def test_json_round_trip(machine):
    assert Machine.from_json(machine.to_json()) == machine
