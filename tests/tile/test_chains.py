"""Kernels whose earlier computes leave their results on the chip: programs mean their kernels."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.slow import but_fast
from tests.tile.interpreter import run
from tests.tile.tile_kernels import OPERATIONS, Case, Chain
from tilewright.ir import Parser, SSAValue, UnitAttr, to_text
from tilewright.machine import Engine, Machine, Memory, Move, Primitive, Storage
from tilewright.planning.domain import Kernel
from tilewright.planning.schedule import Level, Schedule
from tilewright.tile.dialect import DomainOp, context
from tilewright.tile.iteration import Order
from tilewright.tile.lower import tile
from tilewright.tile.queues import commands_of
from tilewright.tile.races import Proof


def machine_of(seed: int) -> Machine:
    """One memory for inputs and results, or two with a move between them."""
    rng = random.Random(seed)
    apart = rng.random() < 0.5
    result = "c" if apart else "a"
    compute, other = rng.choice([("compute", "compute"), ("cube", "vector")])
    engines = ["load", "store", compute, other]
    moves = [("dram", "a", "load"), ("dram", "b", "load"), ("dram", "c", "load")]
    moves += [(result, "dram", "store")] + ([("c", "a", "between")] if apart else [])
    engines += ["between"] if apart else []
    operands = {
        "input": Storage(memory="a", multiples={"ci": 4}),
        "weight": Storage(memory="b", multiples={"co": 4}),
        "bias": Storage(memory="b", joined="weight" if rng.random() < 0.5 else None),
        "residual": Storage(memory="c"),
        "output": Storage(memory=result, multiples={"co": 2}),
    }
    unit: dict[str, Any] = {"operands": operands, "cycles": "1", "peak": "1", "epilogue_any": True}
    products = ("conv", "matmul")
    rest = ("depthwise_conv", *(name for name in OPERATIONS if name not in products))
    return Machine(
        name="chained",
        clock_hz=1e9,
        memories=(Memory(name="dram"), *(Memory(name=n, bytes=1 << 20, granule=8) for n in "abc")),
        moves=tuple(
            Move(name=f"{a}-{b}", source=a, target=b, engine=engine, bytes_per_cycle=8)
            for a, b, engine in moves
        ),
        engines=tuple(Engine(name=name) for name in dict.fromkeys(engines)),
        primitives=(
            Primitive(name="products", operations=products, engine=compute, **unit),
            Primitive(name="rest", operations=rest, engine=other, **unit),
        ),
    )


def chain_of(seed: int) -> Case:
    """Two or three computes: convolutions, depthwise ones, pools that overlap; maps behind each."""
    rng, fixed = random.Random(seed), seed % 2 == 0
    chain = Chain(fixed, np.random.default_rng(seed))
    kinds = [rng.choice(["conv", "conv", "depthwise"])]
    kinds += [rng.choice(["conv", "max_pool", "depthwise"]) for _ in range(rng.choice([1, 1, 2]))]
    shape = (rng.choice([1, 2]), rng.randint(1, 4), rng.randint(7, 11), rng.randint(7, 11))
    x = chain.operand("x", shape)
    plan: list[tuple[str, list[Any], dict[str, Any]]] = []
    for number, kind in enumerate(kinds):
        n, c, h, w = shape
        k = rng.randint(2 if kind == "max_pool" else 1, min(h, 3)), rng.randint(1, min(w, 3))
        strides = rng.choice([(1, 1), (1, 1), (2, 2), (1, 2)])
        pads = tuple(rng.randint(0, 1) for _ in range(4))
        values: dict[str, Any] = {"strides": strides, "pads": pads}
        operands: list[Any] = []
        co, point = c, 8 if all(kind == "max_pool" for kind, _, _ in plan) else 7
        if kind == "max_pool":
            values["kernel"] = k
            values["pads"] = tuple(min(p, k[i % 2] - 1) for i, p in enumerate(pads))
        else:
            co = c if kind == "depthwise" else rng.randint(1, 6)
            ci = 1 if kind == "depthwise" else c
            values["group"] = c if kind == "depthwise" else 1
            operands.append(chain.operand(f"w{number}", (co, ci, *k), fraction=10))
            if rng.random() < 0.6:
                operands.append(chain.operand(f"b{number}", (co,), 32, point + 10))
        size = [
            (s + values["pads"][i] + values["pads"][2 + i] - k[i]) // strides[i] + 1
            for i, s in enumerate((h, w))
        ]
        shape = (n, co, *size)
        plan.append((kind, operands, values))
    residual = chain.operand("r", shape, 16, 9) if rng.random() < 0.4 else None
    relus = [rng.random() < 0.5 for _ in kinds]

    def build(op: Any) -> SSAValue:
        value: Any = x
        for number, (kind, operands, values) in enumerate(plan):
            name = "max_pool" if kind == "max_pool" else "conv"
            value = op(name, value, *operands, **values)
            if number:
                value.owner.begins = UnitAttr()
            if number == len(plan) - 1 and residual is not None:
                value = op("add", value, residual)
            if relus[number]:
                value = op("relu", value)
            value = chain.narrow(op, value)
        return value

    kernel, (feeds, expected) = chain.finish(build, f"chain{seed}")
    return Case(kernel, feeds, expected)


def schedule_of(
    kernel: Kernel, machine: Machine, rng: random.Random, *, inner: bool = False
) -> Schedule:
    """Random tiles and slots of a kernel and of its producers."""
    anchor = kernel.anchor
    tile = {d: rng.randint(1, n) if rng.random() < 0.6 else n for d, n in anchor.extents.items()}
    tile |= {"co": anchor.extents["co"]} if "g" in tile else {}
    reduced = set(anchor.reduction)
    parallel = rng.sample([d for d in tile if d not in reduced], len(tile) - len(reduced))
    order = (*parallel, *rng.sample(sorted(reduced), len(reduced)))
    names = [o.name for o in (*kernel.alone.inputs, *([] if inner else [kernel.output]))]
    slots = tuple((name, rng.choice([1, 2, 2, 3])) for name in names)
    (primitive,) = machine.primitives_for(anchor.operation)
    producers = tuple(schedule_of(one, machine, rng, inner=True) for one in kernel.producers)
    level = Level("a", tuple(tile.items()), order)
    return Schedule(primitive.name, (level,), slots, producers=producers)


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", but_fast([*range(32), *range(33, 40)], [*range(7), *range(8, 12)]))
def test_programs_mean_their_kernels_however_engines_run(seed: int) -> None:
    of, machine = chain_of(seed), machine_of(seed)
    program = tile(of.kernel, schedule_of(of.kernel, machine, random.Random(seed)), machine)
    of.check(run(program, of.feeds, machine)["y"])
    for turn in range(2):
        of.check(run(program, of.feeds, machine, interleave=turn)["y"])


@pytest.mark.parametrize("seed", range(0, 40, 5))
def test_a_missing_wait_is_found_unless_nothing_needs_it(seed: int) -> None:
    of, machine = chain_of(seed), machine_of(seed)
    program = tile(of.kernel, schedule_of(of.kernel, machine, random.Random(seed)), machine)
    needed = 0
    for op in commands_of(program):
        waits = op.wait_list
        for place, wait in enumerate(waits):
            op.set("waits", (*waits[:place], *waits[place + 1 :]))
            if any(
                race.later is op and race.wait == wait for race in Proof(Order(program)).races()
            ):
                needed += 1
            else:
                of.check(run(program, of.feeds, machine, interleave=place)["y"])
            op.set("waits", waits)
    assert needed


@pytest.mark.parametrize("seed", range(0, 40, 3))
def test_text_round_trips(seed: int) -> None:
    of, machine = chain_of(seed), machine_of(seed)
    program = tile(of.kernel, schedule_of(of.kernel, machine, random.Random(seed)), machine)
    text = to_text(program)
    assert to_text(Parser(context(), text).parse_op()) == text


@pytest.mark.slow
def test_an_interval_of_padding_alone_is_left_out() -> None:
    """Rows of the last tile lie in the padding behind the image: nothing is computed for them."""
    found = 0
    for seed in range(40):
        of, machine = chain_of(seed), machine_of(seed)
        program = tile(of.kernel, schedule_of(of.kernel, machine, random.Random(seed)), machine)
        order = Order(program)
        for op in program.walk():
            if isinstance(op, DomainOp):
                block = op.parent_block()
                assert block is not None
                found += order.block(op.body.block).count < order.block(block).count
    assert found > 0
