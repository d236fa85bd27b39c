"""CCE C read back: the same text, accesses and verdicts; what is broken is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks.papers.ascend.fractal import fractalise
from benchmarks.papers.ascend.handovers import synchronised
from benchmarks.papers.ascend.reader.kernels import read_kernels, verified
from tests.slow import but_fast
from tests.targets.ascend.cube_kernels import Convolution, planned, program_of
from tests.targets.ascend.element_kernels import elementwise, normal
from tests.targets.ascend.lowering.test_given_flags import of_a_length

import tilewright
from tilewright.compiler.pipeline import resolve
from tilewright.compiler.representation import representation
from tilewright.errors import TilewrightError
from tilewright.targets.ascend.emit import kernel_text
from tilewright.targets.ascend.kernels.normal import Norm
from tilewright.targets.ascend.machine import ASCEND_310, ASCEND_910
from tilewright.targets.ascend.program import Access, Executed, Program, trace

LENET = Path(__file__).parents[3] / "examples" / "lenet5" / "lenet5.onnx"
GOLDENS = Path(__file__).parent / "goldens"


def convolution() -> Program:
    kernel = Convolution(
        33, 7, 7, 40, pads=(1, 1, 1, 1), bias=True, relu=True, residual=True
    ).of_kernel()
    return program_of(kernel, planned(kernel))


PROGRAMS = {
    "convolution": convolution,
    "fractalise": lambda: fractalise(80, 200, "improved", ASCEND_910, "fractal"),
    "gelu": lambda: elementwise("gelu", "half", 5000, ASCEND_910),
    "layer norm": lambda: normal((20, 100), norm=Norm(), lines=["scale"]),
}


def told(executed: Executed) -> tuple[str, int, set[Access], set[Access]]:
    """What an execution is, without the objects that it is of."""
    name = getattr(executed.statement, "name", type(executed.statement).__name__)
    return name, executed.cycles, bytes_of(executed.reads), bytes_of(executed.writes)


def bytes_of(accesses: tuple[Access, ...]) -> set[Access]:
    """Accesses by runs of bytes: grids of rows may be told as one or row by row."""
    runs: set[Access] = set()
    for home, start, size, counts, strides in accesses:
        starts = [start]
        for count, stride in zip(counts, strides, strict=True):
            starts = [first + number * stride for first in starts for number in range(count)]
        runs |= {Access(home, first, size, (), ()) for first in starts}
    return runs


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_read_as_they_were(name: str) -> None:
    program = synchronised(PROGRAMS[name]())
    text = kernel_text(program)
    (again,) = read_kernels(text, ASCEND_910)
    assert kernel_text(again) == text
    for before, after in zip(trace(program), trace(again), strict=True):
        assert told(before) == told(after)
    verified(again, ASCEND_910)


@pytest.mark.slow
@pytest.mark.parametrize("name", but_fast(list(PROGRAMS), ["gelu"]))
def test_every_flag_and_barrier_is_needed(name: str) -> None:
    text = kernel_text(synchronised(PROGRAMS[name]()))
    orders = list(re.finditer(r"(set_flag|wait_flag|pipe_barrier)\(.*\);\n", text))
    assert len(orders) > 4
    for order in orders:
        without = text[: order.start()] + text[order.end() :]
        (program,) = read_kernels(without, ASCEND_910)
        with pytest.raises(TilewrightError, match="cce-order"):
            verified(program, ASCEND_910)


BROKEN = {
    "an instruction of another core": ("vadd(", "vpow(", "cce-instruction.*no instruction vpow"),
    "an argument too many": ("EVENT_ID0);", "EVENT_ID0, 1);", "cce-argument.*takes 3"),
    "a field too small": ("x, 0, 1,", "x, 0, 5000,", "lower-field.*5000"),
    "a pipe that is none": ("PIPE_V", "PIPE_W", "cce-argument.*PIPE_W"),
    "a memory that is another": ("__ubuf__", "__cbuf__", r"cce-argument.*moves between"),
    "a name that nothing declares": (", x, 0", ", z, 0", "cce-(value|argument).*"),
    "an address beyond UB": ("(uintptr_t)0x", "(uintptr_t)0xf0000", "cce-address.*bytes"),
    "an address of half a block": ("(uintptr_t)0x0,", "(uintptr_t)0x8,", "cce-address.*multiple"),
    "a statement that is none": ("set_flag(", "goto x; (", "cce-syntax.*line"),
    "no end": ("\n}\n", "", "cce-syntax.*ends early"),
    "another declaration": ("add_kernel(", "sub_kernel(", "cce-syntax.*declared otherwise"),
    "no mask": ("set_vector_mask(", "(void)x; // ", "cce-(syntax|setting)"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_texts_are_refused(name: str) -> None:
    program = elementwise("add", "half", 200, ASCEND_910, name="add_kernel")
    text = kernel_text(synchronised(program))
    old, new, reason = BROKEN[name]
    assert old in text, text
    with pytest.raises(TilewrightError, match=reason):
        for kernel in read_kernels(text.replace(old, new, 1), ASCEND_910):
            verified(kernel, ASCEND_910)


LOOP = """\
__global__ __aicore__ void k(__gm__ half *x);

__global__ __aicore__ void k(__gm__ half *x) {{
    set_vector_mask(0xffffffffffffffffULL, 0xffffffffffffffffULL);
    for (int64_t i = 0; i < {count}; i++) {{
        {body}
    }}
}}
"""
DUP = "vector_dup((__ubuf__ half *)(uintptr_t)({at}), 0, 1, 1, 1, 8, 8);"
LOOPS = {
    "a loop of nothing": ("10", "/* nothing */", "cce-syntax.*without statements"),
    "a division by nothing": ("10", DUP.format(at="i / 0 * 32"), "cce-value.*divides by 0"),
    "repeats that no field holds": (
        "10",
        "vector_dup((__ubuf__ half *)(uintptr_t)0x0, 0, 1 + i * 1000000000, 1, 1, 8, 8);",
        "lower-field.*repeats",
    ),
    "repeats that end beyond UB": (
        "10",
        "vector_dup((__ubuf__ half *)(uintptr_t)0x0, 0, 255, 1, 1, 255, 8);",
        "cce-address.*has 262144 bytes",
    ),
    "a long expression": ("10", DUP.format(at="i" + " + i" * 400), "cce-value.*too long"),
    "brackets": ("10", DUP.format(at="(" * 500 + "i" + ")" * 500), "cce-syntax.*deep"),
    "a float": ("1.5", DUP.format(at="0"), "cce-value.*no integer"),
    "a mask that is another in the second iteration": (
        "10",
        DUP.format(at="0") + " set_vector_mask(0x0ULL, 0x1ULL);",
        "cce-setting.*leaves another",
    ),
    "a counter that nothing declares": ("10", "n = n + 1;", "cce-value.*no counter"),
    "a loop's variable that is counted": ("10", "i = i + 1;", "cce-value.*no counter"),
    "a counter that grows by itself": (
        "10",
        "int64_t n = 0; for (int64_t j = 0; j < 9; j++) { n = n * n + 2; }",
        "cce-value.*goes on by 1",
    ),
    "a counter with the name of a loop": ("10", "int64_t i = 0;", "cce-value.*another name"),
}


@pytest.mark.parametrize("name", LOOPS)
def test_hostile_texts_are_refused(name: str) -> None:
    count, body, reason = LOOPS[name]
    with pytest.raises(TilewrightError, match=reason):
        for kernel in read_kernels(LOOP.format(count=count, body=body), ASCEND_910):
            verified(kernel, ASCEND_910)


def test_slots_are_counted_where_tiles_at_an_edge_are_fewer() -> None:
    program = synchronised(of_a_length(10))
    text = kernel_text(program)
    assert "_turn = 0;" in text
    (again,) = read_kernels(text, ASCEND_910)
    assert kernel_text(again) == text
    verified(again, ASCEND_910)


@pytest.mark.parametrize("name", ["step", "lambda", "access", "range"])
def test_loops_have_any_name_of_c(name: str) -> None:
    body = DUP.format(at="i % 2 * 256") + " pipe_barrier(PIPE_V);"
    text = re.sub(r"\bi\b", name, LOOP.format(count=3, body=body))
    (program,) = read_kernels(text, ASCEND_910)
    verified(program, ASCEND_910)
    assert len(trace(program)) == 1 + 3 * 2


def test_a_core_has_its_own_instructions() -> None:
    text = kernel_text(synchronised(elementwise("div", "float", 100, ASCEND_910)))
    read_kernels(text, ASCEND_910)
    with pytest.raises(TilewrightError, match=r"ascend310 has no instruction vdiv"):
        read_kernels(text, ASCEND_310)


@pytest.mark.parametrize("path", sorted(GOLDENS.glob("*.c")), ids=lambda path: path.stem)
def test_goldens(path: Path) -> None:
    (program,) = read_kernels(path.read_text(), ASCEND_910)
    assert kernel_text(program) == path.read_text()
    verified(program, ASCEND_910)


@pytest.mark.slow
def test_a_network_at_its_three_levels() -> None:
    """What ``compile --emit`` prints of the first two is what ``opt`` reads; the C is the package's
    own, and is read here."""
    from tilewright.cli.optimise import optimise_text

    for level in ("ascend", "cce"):
        text = representation(LENET, *resolve("ascend910"), level).rstrip("\n")
        assert optimise_text(text, "", "ascend910").rstrip("\n") == text
    text = representation(LENET, *resolve("ascend910"), "hivm").rstrip("\n")
    programs = read_kernels(text, ASCEND_910)
    assert "\n".join(map(kernel_text, programs)).rstrip("\n") == text
    package = tilewright.compile(LENET, "ascend910")
    for path in sorted((package.directory / "program" / "cce").glob("*.c")):
        assert path.read_text().rstrip("\n") in text
    with pytest.raises(TilewrightError, match=r"option-emit.*one of graph, tile, program, ascend"):
        representation(LENET, *resolve("ascend910"), "words")
