"""The loops of a product over the 8 x 8 CPEs, by who sends what (swATOP, section 4.1 and appendix).

In a phase some CPEs send their piece of one matrix along their rows, some their piece of the other
along their columns, and every CPE multiplies what it gets, so that there are four loops: each
takes vectors and single elements from LDM, which it sends, or from the buses. ``m`` and ``n`` are
the dims that vectors lie along.

Sending takes one instruction with the load for doubles. For floats no public kernel has it:
``fused`` says whether it is taken to exist; otherwise the sender's loop has 39 instructions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product

from tilewright.targets.sunway.gemm.steps import (
    Code,
    Operand,
    advance,
    declare_block,
    deferred,
    load,
    splat,
    write_block,
)
from tilewright.targets.sunway.pipeline import (
    LATENCIES,
    Instruction,
    Latencies,
    cycles,
    steady,
)

SIDE = 8


@dataclass(frozen=True)
class Role:
    """The role of a CPE in a phase: whether it sends or gets vectors, and single elements."""

    sends_vectors: bool
    sends_elements: bool

    @property
    def name(self) -> str:
        """The name of the role: ``put_get`` sends vectors and gets elements."""
        return "_".join("put" if sends else "get" for sends in self._both)

    @property
    def _both(self) -> tuple[bool, bool]:
        return self.sends_vectors, self.sends_elements


ROLES = tuple(Role(*sends) for sends in product((False, True), repeat=2))


@dataclass(frozen=True)
class Loop:
    """The instructions of one role's block."""

    begin: tuple[Instruction, ...]
    body: tuple[Instruction, ...]
    end: tuple[Instruction, ...]
    text: str

    def block_cycles(self, steps: int, latencies: Latencies = LATENCIES) -> float:
        """Cycles of a block of ``steps`` steps: those after the twelfth take the same time each."""
        few = min(steps, 12)
        short = cycles([*self.begin, *self.body * (few - 1), *self.end], latencies)
        return short + (steps - few) * steady(self.body, latencies)


def _sent(name: str, bus: str, *, element: bool) -> Instruction:
    """The instruction that loads a register and sends it."""
    place, pointer = (f"s{name[1]}", f"s{name[1]}") if element else (_vector(name), "v")
    kind = ("lder" if bus == "r" else "ldec") if element else ("vldr" if bus == "r" else "vldc")
    c = f"simd_load{'e' if element else ''}{bus}({name}, "
    c += f"{place});" if element else f"(floatv4 *)({place}));"
    return Instruction(kind, name, (pointer,), c)


def _vector(name: str) -> str:
    return "v" if name == "a0" else f"v + {4 * int(name[1])}"


@cache
def role_loop(vectors: str, role: Role, *, fused: bool) -> Loop:
    """The loop of a role for vectors along M or N."""
    buses = ("r", "c") if vectors == "m" else ("c", "r")
    names = [*(f"a{n}" for n in range(4)), *(f"b{n}" for n in range(4))]
    operands: list[Operand] = []
    puts: list[Instruction] = []
    for name in names:
        element = name[0] == "b"
        bus = buses[element]
        if not (role.sends_elements if element else role.sends_vectors):
            text = f"{name} = simd_get{bus}({name});"
            put = Instruction(f"get{bus}", name, (f"bus_{bus}",), text)
        elif fused:
            put = _sent(name, bus, element=element)
        else:
            pointer = f"s{name[1]}"
            put = splat(name, pointer, pointer) if element else load(name, "v", _vector(name))[0]
            text = f"simd_put{bus}({name}, {SIDE});"
            puts.append(Instruction(f"put{bus}", "", (name,), text))
        operands.append(Operand(name, put))
    puts.sort(key=lambda put: put.sources[0] in deferred(4))
    advances = [advance("v", "ldv")] if role.sends_vectors else []
    if role.sends_elements:
        advances += [advance(f"s{n}", "across") for n in range(4)]
    code = Code()
    declare_block(code)
    if role.sends_elements:
        code.line("const float *s0 = s, *s1 = s + lds, *s2 = s + 2 * lds, *s3 = s + 3 * lds;")
    else:
        code.line("(void)s;")
        code.line("(void)lds;")
        code.line("(void)across;")
    if not role.sends_vectors:
        code.line("(void)v;")
        code.line("(void)ldv;")
    begin, body, end = write_block(code, "c", operands, advances, puts)
    head = [
        f"static inline void gemm_{vectors}_{role.name}(float *c, long ldc, const float *v,",
        "    long ldv, const float *s, long lds, long across, long k)",
        "{",
    ]
    text = "\n".join([*head, *code.lines, "}", ""])
    return Loop(tuple(begin), tuple(body), tuple(end), text)
