"""The processor's description, from what /proc/cpuinfo may say."""

from pathlib import Path

import pytest

from tilewright.numerics.pieces import THREE, TWO
from tilewright.planning.layout import Layout
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.piece_primitives import PIECE_PRIMITIVES
from tilewright.targets.cpu.processors import Processor, cache_sizes, processor_of, this_processor


@pytest.mark.parametrize(
    ("vendor", "family", "flags", "lanes", "rate"),
    [
        ("AuthenticAMD", 25, "fma avx2 avx512f avx512dq avx512vl", 16, 1.0),
        ("AuthenticAMD", 26, "fma avx2 avx512f avx512dq avx512vl", 16, 2.0),
        ("GenuineIntel", 6, "fma avx2 avx512f avx512dq avx512vl", 16, 2.0),
        ("GenuineIntel", 6, "fma avx2", 8, 2.0),
        ("GenuineIntel", 6, "avx2", 4, 2.0),
        ("GenuineIntel", 6, "avx512f fma avx2", 8, 2.0),
        ("GenuineIntel", 6, "sse2", 4, 2.0),
    ],
)
def test_lanes_follow_the_flags(
    vendor: str, family: int, flags: str, lanes: int, rate: float
) -> None:
    text = f"vendor_id\t: {vendor}\ncpu family\t: {family}\nflags\t\t: fpu {flags} sse\n"
    found = processor_of(text)
    assert (found.lanes, found.vectors_per_cycle) == (lanes, rate)


def test_costs_of_caches_are_of_each_kind_of_processor() -> None:
    flags = "flags\t\t: fma avx2 avx512f avx512dq avx512vl"
    kinds = (("AuthenticAMD", 25), ("AuthenticAMD", 26), ("GenuineIntel", 6))
    found = [processor_of(f"vendor_id\t: {v}\ncpu family\t: {n}\n{flags}\n") for v, n in kinds]
    assert len({one.cache_costs.model_dump_json() for one in found}) == 3
    assert [one.cache_costs.crowded > 0 for one in found] == [False, True, False]
    assert found[0].cache_costs.row_bytes > 0


@pytest.mark.parametrize(
    ("flags", "cycles"),
    [
        ("avx512f avx512dq avx512vl amx_bf16 amx_tile amx_int8", 48.0),
        ("avx512f avx512dq avx512vl amx_tile amx_int8", 0.0),
        ("avx512f avx512dq avx512vl amx_bf16", 0.0),
        ("fma avx2 amx_bf16 amx_tile", 0.0),
    ],
)
def test_matrix_tiles_follow_the_flags(flags: str, cycles: float) -> None:
    found = processor_of(f"flags\t\t: fpu {flags} sse\n")
    assert found.block_cycles == cycles
    names = {primitive.name for primitive in machine(found).primitives}
    two, three = (set(PIECE_PRIMITIVES[pieces]) for pieces in (TWO, THREE))
    assert (two | three <= names) == bool(cycles)
    exact = {primitive.name for primitive in machine(found).exact().primitives}
    assert not two & exact and (three <= exact) == bool(cycles)


def test_unknown_processors_get_short_vectors() -> None:
    assert processor_of("").lanes == 4


def test_the_machine_is_the_same_each_time_and_its_layouts_parse() -> None:
    assert machine() == machine(this_processor())
    for lanes in (4, 8, 16):
        described = machine(Processor(lanes))
        for primitive in described.primitives:
            for role in primitive.operands:
                for rank in (1, 2, 4):
                    text = described.layout_of(primitive, role, rank)
                    if text not in ("", "any"):
                        assert Layout.parse(text, rank).rank == rank
        assert described.memory("registers").granule == 4 * lanes


def test_caches_are_what_the_system_says(tmp_path: Path) -> None:
    rows = (
        ("1", "Data", "48K", "0-1"),
        ("1", "Instruction", "64K", "0-1"),
        ("2", "Unified", "2M", "0-1"),
        ("3", "Unified", "36864K", "0-15"),
        ("4", "Unified", "1G", "0-15"),
    )
    for number, values in enumerate(rows):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        for name, value in zip(("level", "type", "size", "shared_cpu_list"), values, strict=True):
            (folder / name).write_text(value + "\n")
    (tmp_path / "index9").mkdir()
    # One core counts on a half of what several share.
    assert cache_sizes(tmp_path) == {1: 48 << 10, 2: 2 << 20, 3: 18 << 20}
    # A virtual machine of two cores sees all of a server's.
    (tmp_path / "index3" / "size").write_text("504M\n")
    assert cache_sizes(tmp_path)[3] == 32 << 20
    (tmp_path / "index3" / "size").write_text("36864K\n")
    (tmp_path / "index2" / "size").write_text("plenty")
    (tmp_path / "index3" / "shared_cpu_list").write_text("0")
    assert cache_sizes(tmp_path) == {1: 48 << 10, 3: 36 << 20}
    assert cache_sizes(tmp_path / "nowhere") == {}
