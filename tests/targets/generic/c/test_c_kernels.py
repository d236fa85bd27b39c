"""Kernels in C on the host's functions: bit for bit, in every order that their waits allow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.generic import test_fused_machine as fused
from tests.targets.generic import test_int8_machine as int8
from tests.targets.generic.c.c_kernels import COMPILERS, emitted, with_c
from tests.targets.generic.kernel_cases import CASES, random_case, sparse_case

from tilewright.machine import Machine
from tilewright.machine.load import load_machine
from tilewright.targets.cambricon_x.machine import MACHINE as CAMBRICON_X

ROOT = Path(__file__).parents[4]
WIDE = with_c(CAMBRICON_X)
NARROW = with_c(int8.MACHINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("c")


case_of = random_case


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", but_fast(range(3 * len(CASES)), range(len(CASES))))
def test_kernels_compute_what_the_graph_means(seed: int, folder: Path) -> None:
    kernel = emitted(case_of(seed), WIDE)
    library = kernel.build(folder / f"wide{seed}")
    for order in kernel.orders:
        np.testing.assert_array_equal(kernel.run(library, order), kernel.lowered.case.expected)


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(9))
def test_compressed_weights(seed: int, folder: Path) -> None:
    kernel = emitted(sparse_case(seed, (0.02, 0.3, 1.0)[seed // 3]), WIDE)
    library = kernel.build(folder / f"sparse{seed}")
    for order in kernel.orders:
        np.testing.assert_array_equal(kernel.run(library, order), kernel.lowered.case.expected)


@pytest.mark.parametrize("seed", range(5))
def test_kernels_of_8_bits(seed: int, folder: Path) -> None:
    kinds = (int8.convolution, int8.product, int8.depthwise, int8.pool, int8.points)
    kernel = emitted(kinds[seed](seed), NARROW)
    library = kernel.build(folder / f"narrow{seed}")
    for order in kernel.orders:
        np.testing.assert_array_equal(kernel.run(library, order), kernel.lowered.case.expected)


def integers(machine: Machine) -> Machine:
    """The machine on 16-bit fixed point, as C functions are."""
    return machine.with_values({"element": "fixed16", "accumulator": "fixed32"})


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("path", "seed"),
    [
        *((ROOT / "examples" / "machines" / "five-buffers.toml", seed) for seed in (0, 16, 19)),
        *(
            (ROOT / "tests" / "targets" / "generic" / "one_scratchpad.toml", seed)
            for seed in (1, 16)
        ),
    ],
    ids=lambda value: getattr(value, "stem", None),
)
def test_other_machines(path: Path, seed: int, folder: Path) -> None:
    """Buffers of buffers on paths of several moves; one memory and one engine for all transfers."""
    kernel = emitted(case_of(seed), with_c(with_epilogue(integers(load_machine(path)))))
    library = kernel.build(folder / f"{path.stem}{seed}")
    for order in kernel.orders:
        np.testing.assert_array_equal(kernel.run(library, order), kernel.lowered.case.expected)


@pytest.mark.parametrize("name", but_fast(["two convolutions", "pool", "inverted"], ["pool"]))
def test_chains(name: str, folder: Path) -> None:
    """Kernels of several computes, with halos that the edges cut."""
    (case,) = fused.chain(len(name), *fused.CHAINS[name])
    kernel = emitted(case, with_c(fused.MACHINE))
    library = kernel.build(folder / name.replace(" ", "-"))
    for order in kernel.orders:
        np.testing.assert_array_equal(kernel.run(library, order), kernel.lowered.case.expected)


def with_epilogue(machine: Machine) -> Machine:
    steps = (("add",), ("relu", "clip", "leaky_relu"), ("requantise",))
    primitives = tuple(p.model_copy(update={"epilogue": steps}) for p in machine.primitives)
    return machine.model_copy(update={"primitives": primitives})


@pytest.mark.parametrize("seed", [10, 4])
def test_every_wait_is_needed(seed: int, folder: Path) -> None:
    """Without any one of its waits, a kernel is wrong in some order that is left."""
    kernel = emitted(case_of(seed), WIDE)
    waits = list(kernel.without_waits())
    assert len(waits) == 4
    for number, (wait, text) in enumerate(waits):
        library = kernel.build(folder / f"mutant{seed}-{number}", text=text)
        results = [kernel.run(library, order) for order in kernel.orders]
        wrong = [not np.array_equal(one, kernel.lowered.case.expected) for one in results]
        assert any(wrong), wait


def with_flags(machine: Machine, ids: int, depth: int | None = None) -> Machine:
    flags = {"style": "flags", "ids": ids, "depth": depth}
    data = {**machine.to_json(), "synchronisation": flags, "c": None}
    data = {**data, "name": f"flags-{ids}-{depth}"}
    for part in (*data["moves"], *data["primitives"]):
        part["c"] = None
    return with_c(Machine.from_json(data))


@pytest.mark.few(2)
@pytest.mark.parametrize(("ids", "depth"), [(4, None), (1, None), (2, 8)])
@pytest.mark.parametrize("seed", [10, 4])
def test_flags(seed: int, ids: int, depth: int | None, folder: Path) -> None:
    """Signals and waits are calls, and the host's flags are flags: one that is set again before it
    was awaited, or is set at the end, is a failure."""
    kernel = emitted(case_of(seed), with_flags(WIDE, ids, depth))
    assert "ticket" not in kernel.text
    library = kernel.build(folder / f"flags{seed}-{ids}-{depth}")
    for order in kernel.orders:
        np.testing.assert_array_equal(kernel.run(library, order), kernel.lowered.case.expected)


GOLDEN = Path(__file__).parent / "goldens" / "depthwise.c"


def test_a_kernel_reads_as_it_did(request: pytest.FixtureRequest) -> None:
    """``pytest --bless`` rewrites the file."""
    text = emitted(case_of(4), WIDE).text
    if request.config.getoption("--bless"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


@pytest.mark.parametrize("compiler", COMPILERS)
def test_compilers_agree(compiler: str, folder: Path) -> None:
    kernel = emitted(case_of(2), WIDE)
    library = kernel.build(folder / f"of-{compiler}", compiler)
    np.testing.assert_array_equal(kernel.run(library, 6), kernel.lowered.case.expected)
