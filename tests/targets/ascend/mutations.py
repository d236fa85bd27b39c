"""Kernels at random, each flag and barrier of which is taken away or moved in turn.

    python -m tests.targets.ascend.mutations --count 240 --seed 0

makes so many kernels of all kinds and asks the proof and the host core about each of their mutants,
and about the kernels themselves, under fifty random orders with events of both kinds. What neither
or only one of them reports it prints; it ends with the numbers of all.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from benchmarks.papers.ascend.fractal import METHODS, fractalise
from benchmarks.papers.ascend.handovers import synchronised
from benchmarks.papers.ascend.matmul import Matrices, Tiling, matmul
from numpy.typing import NDArray
from tests.targets.ascend.cube_kernels import Convolution, planned, program_of
from tests.targets.ascend.element_kernels import elementwise, normal
from tests.targets.ascend.moved_kernels import move_program, transposed

from tilewright.errors import TilewrightError
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.emit import kernel_text
from tilewright.targets.ascend.formats import padded
from tilewright.targets.ascend.host import ORDERS, Kernel, build_all
from tilewright.targets.ascend.kernels.normal import Norm
from tilewright.targets.ascend.machine import ASCEND_910
from tilewright.targets.ascend.program import (
    Barrier,
    Buffer,
    Command,
    Flag,
    Loop,
    Place,
    Program,
    Statement,
    Tensor,
)
from tilewright.targets.ascend.proof import prove
from tilewright.targets.ascend.vector_primitives import ROOM

HOSTILE = (0, 1, 9, 12, 40)
"""Orders under which a mutant is run: as issued, pipes early and late, and one at random."""


def arguments(program: Program) -> dict[str, NDArray[np.uint8]]:
    """Bytes that are 1.06 in half precision."""
    return {tensor.name: np.full(tensor.bytes, 0x3C, np.uint8) for tensor in program.tensors}


def bodies(body: list[Statement]) -> Iterator[list[Statement]]:
    """The statements of a program and of its loops, outer ones first."""
    yield body
    for statement in body:
        if isinstance(statement, Loop):
            yield from bodies(statement.body)


def copied(body: list[Statement]) -> list[Statement]:
    """The same statements in loops of their own."""
    return [
        Loop(statement.name, statement.count, copied(statement.body))
        if isinstance(statement, Loop)
        else statement
        for statement in body
    ]


def pipe_of(statement: Statement) -> str:
    """The pipe that executes a statement."""
    if isinstance(statement, Flag):
        return statement.source if statement.kind == "set" else statement.target
    return statement.pipe if isinstance(statement, (Command, Barrier)) else ""


def mutants(program: Program) -> Iterator[tuple[str, Program]]:
    """Each flag and barrier removed, and moved past the command that it stands beside."""
    for number, original in enumerate(bodies(program.body)):
        for place, statement in enumerate(original):
            if not isinstance(statement, (Flag, Barrier)):
                continue
            fresh = replace(program, body=copied(program.body))
            body = list(bodies(fresh.body))[number]
            del body[place]
            yield f"without {statement}", fresh
            if not isinstance(statement, Flag):
                continue
            # The command that it follows (a set) or holds up (a wait), if it stands next to it.
            step = -1 if statement.kind == "set" else 1
            other = place + step
            while 0 <= other < len(original) and isinstance(original[other], (Flag, Barrier)):
                other += step
            if not 0 <= other < len(original) or pipe_of(original[other]) != pipe_of(statement):
                continue
            fresh = replace(program, body=copied(program.body))
            body = list(bodies(fresh.body))[number]
            body.insert(other, body.pop(place))
            yield f"moved {statement}", fresh


def _statements(text: str) -> list[str]:
    """A text's lines, those of a statement joined."""
    statements: list[str] = []
    whole = True
    for line in text.splitlines():
        if whole:
            statements.append(line)
        else:
            statements[-1] += "\n" + line
        stripped = line.strip()
        whole = not stripped or stripped.startswith(("#", "/*")) or stripped[-1] in ";{}"
    return statements


def merged(program: Program, others: list[Program]) -> str:
    """One text of a program and its mutants: ``mutant`` says which is run, 0 the program."""
    original = _statements(kernel_text(program))
    without: dict[int, list[int]] = {}
    before: dict[int, list[tuple[int, str]]] = {}
    for number, other in enumerate(others, 1):
        changed = _statements(kernel_text(other))
        first = next(
            (n for n, (a, b) in enumerate(zip(original, changed, strict=False)) if a != b),
            len(changed),
        )
        if len(changed) < len(original):
            assert original[first + 1 :] == changed[first:]
            without.setdefault(first, []).append(number)
            continue
        last = next(n for n in range(len(original), 0, -1) if original[n - 1] != changed[n - 1])
        late = original[first] == changed[last - 1]  # Or the last one is moved to the front.
        source, target = (first, last) if late else (last - 1, first)
        without.setdefault(source, []).append(number)
        before.setdefault(target, []).append((number, original[source]))
        expected = [statement for n, statement in enumerate(original) if n != source]
        expected.insert(target - late, original[source])
        assert expected == changed
    lines = ["extern int mutant;"]
    for place, line in enumerate([*original, ""]):
        lines += [f"if (mutant == {number}) {moved}" for number, moved in before.get(place, [])]
        absent = " && ".join(f"mutant != {number}" for number in without.get(place, []))
        lines.append(f"if ({absent}) {line}" if absent else line)
    return "\n".join(lines) + "\n"


@dataclass
class Mutated:
    """A kernel with its mutants, built once."""

    program: Program
    mutants: list[tuple[str, Program]]
    kernel: Kernel
    choose: Kernel

    @staticmethod
    def of(program: Program) -> Mutated:
        mutated = list(mutants(program))
        chosen = "void choose(int);\nint mutant;\nvoid choose(int number) { mutant = number; }\n"
        texts = {program.name: merged(program, [mutant for _, mutant in mutated]), "choose": chosen}
        kernels = build_all(texts, ASCEND_910)
        return Mutated(program, mutated, kernels[program.name], kernels["choose"])

    def reported(self, number: int) -> bool:
        """Whether the host core finds something wrong with a mutant in one of the orders."""
        self.choose.function(number)
        return any(
            self.kernel.run(arguments(self.program), order=order).problems for order in HOSTILE
        )

    def problems(self, orders: int) -> list[str]:
        """What the host core says of the kernel itself, in any order and with either events."""
        self.choose.function(0)
        reports: list[str] = []
        for binary in (True, False):
            for order in (*ORDERS, *range(100, 100 + orders)):
                run = self.kernel.run(arguments(self.program), order=order, binary=binary)
                reports += run.problems
        return reports


def loop_of(slots: int, trips: int, pipes: int = 3, names: str = "xy", index: str = "i") -> Program:
    """load, relu, store, over buffers that take turns."""
    size = 128 * 2
    x, y = (Tensor(name, trips * size + 32, written=name == names[1]) for name in names)
    loop = Loop(index, trips)
    turn = 0 if slots == 1 or trips == 1 else loop.variable % slots
    buffers = [
        Buffer(name, "ub", at * size * slots, size, slots, turn, loop)
        for at, name in enumerate(tuple(names)[: pipes - 1])
    ]
    source, target = Place(buffers[0]), Place(buffers[-1])
    loop.body = [
        isa.copy(source, Place(x, loop.variable * size), 1, 8),
        isa.vector("vrelu", target, (source,), 1, (1, 1), (8, 8)),
        isa.copy(Place(y, loop.variable * size), target, 1, 8),
    ]
    return Program("kernel", (x, y), [isa.mask_of(128, 128), loop], tuple(buffers))


Random = np.random.Generator


def _number(random: Random, least: int, most: int) -> int:
    return int(random.integers(least, most + 1))


def _product(random: Random) -> Program:
    rows, depth, columns = (_number(random, 1, 48) for _ in range(3))
    bias, relu, transposed = (bool(bit) for bit in random.integers(0, 2, 3))
    of = Matrices(rows, depth, columns, transposed=transposed, bias=bias, relu=relu)
    near = [16 * _number(random, 1, 2) for _ in range(3)]
    far = [size * _number(random, 1, 2) for size in near]
    if far[0] > near[0] or far[2] > near[2]:  # Sums stay in L0C while tiles of L1 change.
        far[1] = padded(depth)
        near[1] = min(near[1], far[1])
    order = "xy" if _number(random, 0, 1) else "yx"
    slots = {name: _number(random, 1, 2) for name in ("l0", "l0c", "ub")}
    tiling = Tiling(*far, *near, order, l1=_number(random, 1, 3), **slots)  # type: ignore[arg-type]
    return matmul(of, tiling, ASCEND_910, "kernel")


def _convolution(random: Random) -> Program:
    kernel = _number(random, 1, 3), _number(random, 1, 3)
    sizes = [_number(random, size, 8) for size in kernel]
    pads = tuple(_number(random, 0, min(1, kernel[side % 2] - 1)) for side in range(4))
    bias, relu, residual = (bool(bit) for bit in random.integers(0, 2, 3))
    channels, results = (int(random.choice([1, 3, 16, 17])) for _ in range(2))
    strides = _number(random, 1, 2), _number(random, 1, 2)
    of = Convolution(
        *(channels, *sizes, results, kernel, strides, (1, 1), pads, 1),  # type: ignore[arg-type]
        *(bias, relu, residual),
    ).of_kernel()
    return program_of(of, planned(of))


def _elementwise(random: Random) -> Program:
    element = str(random.choice(["half", "float"]))
    operation = str(random.choice(["add", "mul", "relu", "exp"]))
    size, ub = _number(random, 1, 1500), ROOM + 128 * _number(random, 24, 48)
    return elementwise(operation, element, size, replace(ASCEND_910, ub=ub), name="kernel")


def _rows(random: Random) -> Program:
    shape = _number(random, 1, 2), _number(random, 1, 40), _number(random, 1, 40)
    if random.integers(0, 2):
        return normal(shape)
    return normal(shape, norm=Norm(), lines=["scale"] * int(random.integers(0, 2)))


def _transposition(random: Random) -> Program:
    rows, columns = _number(random, 1, 150), _number(random, 1, 60)
    element = str(random.choice(["half", "float"]))
    program = move_program(transposed((rows, columns), (1, 0), element))
    return replace(program, name="kernel")


def _format(random: Random) -> Program:
    rows, columns = _number(random, 1, 100), _number(random, 1, 60)
    back = not random.integers(0, 2)
    method = METHODS[_number(random, 0, len(METHODS) - 1)]
    return fractalise(rows, columns, method, ASCEND_910, "kernel", back=back)


def _loop(random: Random) -> Program:
    return loop_of(_number(random, 1, 3), _number(random, 1, 5))


KINDS: dict[str, Callable[[Random], Program]] = {
    "products": _product,
    "convolutions": _convolution,
    "elementwise": _elementwise,
    "rows": _rows,
    "transpositions": _transposition,
    "formats": _format,
    "loops": _loop,
}


def generated(number: int, seed: int = 0) -> tuple[str, Program]:
    """A kernel with its flags, and its kind: kinds take turns. What is refused is drawn again."""
    kind = list(KINDS)[number % len(KINDS)]
    random = np.random.default_rng([seed, number])
    while True:
        with suppress(TilewrightError):
            return kind, synchronised(KINDS[kind](random))


def main() -> None:
    """Make kernels and ask about them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=240)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--orders", type=int, default=50)
    given = parser.parse_args()
    totals: dict[str, list[int]] = {}
    for number in range(given.count):
        kind, program = generated(number, given.seed)
        numbers = totals.setdefault(kind, [0] * 5)
        mutated = Mutated.of(program)
        wrong = [str(item) for binary in (True, False) for item in prove(program, binary=binary)]
        wrong += mutated.problems(given.orders)
        numbers[0] += 1
        numbers[4] += bool(wrong)
        for line in wrong:
            print(f"{number} ({kind}): {line}", flush=True)
        for place, (what, mutant) in enumerate(mutated.mutants, 1):
            proof, core = bool(prove(mutant)), mutated.reported(place)
            for index, reported in enumerate((True, proof, core), 1):
                numbers[index] += reported
            if not (proof and core):
                print(f"{number} ({kind}), {what}: proof {proof}, core {core}", flush=True)
    print("kernels, mutants, reported by the proof, by the host core; kernels that were reported:")
    totals["all"] = [sum(item) for item in zip(*totals.values(), strict=True)]
    for kind, numbers in totals.items():
        print(f"{kind:16}", *(f"{item:7,}" for item in numbers))


if __name__ == "__main__":
    main()
