"""Other tools' hardware as machine files: figures by hand, refusals, and what stays unwritten."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tilewright.cli.main import app
from tilewright.errors import TilewrightError
from tilewright.integrations.machines import Imported, import_machine
from tilewright.integrations.machines.reading import MAX_FILE
from tilewright.machine.expression import parse_expression
from tilewright.machine.load import load_machine

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "import"
ZIGZAG, MAPPING, ACCELFORGE, TIMELOOP = (
    EXAMPLES / f"{name}.yaml" for name in ("zigzag", "mapping", "accelforge", "timeloop")
)


def cycles(imported: Imported, primitive: str, **dims: int) -> float:
    return parse_expression(imported.machine.primitive(primitive).cycles).evaluate(dims)


def test_zigzag_gives_its_memories_rates_and_costs() -> None:
    imported = import_machine([ZIGZAG, MAPPING])
    machine = load_machine(imported.text)
    assert machine == imported.machine
    memories = {memory.name: memory for memory in machine.memories}
    assert list(memories) == ["dram", "buffer", "registers"]
    assert machine.main == "dram"
    assert memories["dram"].bytes_per_cycle == 8  # One port of 64 bits for both ways.
    assert memories["dram"].read_pj == 80  # 640 pJ for 8 bytes.
    assert memories["buffer"].bytes == 65_536
    assert (memories["buffer"].read_pj, memories["buffer"].write_pj) == (0.8, 1.0)
    assert memories["registers"].bytes == 16 * 8 * 64  # Each multiplier has 64 bytes.
    moves = {(move.source, move.target): move.bytes_per_cycle for move in machine.moves}
    assert moves == {
        ("dram", "buffer"): 8,
        ("dram", "registers"): 8,
        ("buffer", "dram"): 8,
    }


def test_a_mapping_says_what_the_array_unrolls() -> None:
    mapped = import_machine([ZIGZAG, MAPPING])
    dims = {"oh": 5, "ow": 7, "co": 20, "ci": 9, "kh": 3, "kw": 3}
    assert cycles(mapped, "products", **dims) == 5 * 7 * 2 * 2 * 9
    assert cycles(mapped, "pool", oh=2, ow=2, c=17, kh=2, kw=2) == 4 * 2 * 4
    assert cycles(mapped, "depthwise", oh=2, ow=2, c=17, kh=3, kw=3) == 4 * 17 * 9
    assert not [line for line in mapped.lost if "no mapping" in line]


def test_a_mapping_may_unroll_two_loops_on_one_dimension(tmp_path: Path) -> None:
    mapping = tmp_path / "mapping.yaml"
    mapping.write_text("- {name: default, spatial_mapping: {D1: ['K, 4', 'OX, 4'], D2: [[C, 8]]}}")
    mapped = import_machine([ZIGZAG, mapping])
    assert cycles(mapped, "products", ow=9, co=8, ci=8) == 3 * 2
    assert cycles(mapped, "depthwise", ow=9, c=3) == 3 * 3


def test_energy_of_a_multiply_counts_what_the_array_reads() -> None:
    part = import_machine([ZIGZAG, MAPPING]).machine.primitive("products")
    # Its own, an input for 16 channels, a weight of its own, a sum of 4 bytes for 8 channels.
    expected = 0.25 + 0.8 / 16 + 0.05 + (0.8 + 1.0) * 4 / 8
    assert part.tile_pj is not None
    assert float(part.tile_pj.rpartition("*")[2]) == pytest.approx(expected, rel=1e-5)


def test_accelforge_gives_rates_in_bytes_a_cycle() -> None:
    imported = import_machine([ACCELFORGE])
    machine = load_machine(imported.text)
    assert machine == imported.machine
    assert machine.clock_hz == 500e6
    memories = {memory.name: memory for memory in machine.memories}
    assert memories["Buffer"].bytes == 262_144
    assert memories["Weights"].bytes == 8 * 16 * 1024
    assert memories["DRAM"].read_pj == pytest.approx(160)
    assert memories["Buffer"].write_pj == pytest.approx(4)
    moves = {(move.source, move.target): move.bytes_per_cycle for move in machine.moves}
    assert moves == {("DRAM", "Buffer"): 8, ("DRAM", "Weights"): 8, ("Buffer", "DRAM"): 8}
    assert cycles(imported, "products", oh=2, co=17, ci=9) == 2 * 2 * 2


def test_timeloop_gives_sizes_rates_and_meshes() -> None:
    imported = import_machine([TIMELOOP])
    machine = load_machine(imported.text)
    assert machine == imported.machine
    assert imported.tool == "Timeloop"
    assert machine.clock_hz == 5e8
    memories = {memory.name: memory.bytes for memory in machine.memories}
    assert memories == {"DRAM": None, "buffer": 128 * 4096 // 8}
    moves = {(move.source, move.target): move.bytes_per_cycle for move in machine.moves}
    assert moves == {("DRAM", "buffer"): 8, ("buffer", "DRAM"): 8}  # DRAM is the slower end.
    assert cycles(imported, "products", oh=5, ow=7, co=20, ci=9, kh=3, kw=3) == 5 * 7 * 3 * 2 * 9


def test_trees_of_timeloop_say_instances_by_ranges(tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(
        """
architecture:
  version: 0.3
  subtree:
  - name: system
    local:
    - {name: main, class: DRAM, attributes: {width: 64, word-bits: 16, read_bandwidth: 2}}
    subtree:
    - name: chip
      attributes: {technology: 40nm}
      local:
      - {name: shared, class: SRAM, attributes: {memory_depth: 2048, memory_width: 64}}
      subtree:
      - name: PE[0..15]
        local:
        - {name: psums, class: regfile, attributes: {depth: 16, width: 16}}
        - {name: "macs[0..3]", class: intmac, attributes: {datawidth: 16}}
problem: {shape: conv}
"""
    )
    imported = import_machine([path], "fixed16")
    assert [(m.name, m.bytes) for m in imported.machine.memories] == [
        ("main", None),
        ("shared", 16_384),
    ]
    assert imported.machine.move("main", "shared").bytes_per_cycle == 4  # Two words of 16 bits.
    assert cycles(imported, "products", oh=1, ow=1, co=32, ci=8, kh=1, kw=1) == 2 * 2
    assert any("psums" in line for line in imported.lost)
    assert any("problem" in line for line in imported.lost)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("architecture: {version: 0.4}", "neither nodes nor a subtree"),
        ("architecture: {nodes: [!Parallel {nodes: []}]}", "only nodes in one row"),
        ("architecture: {nodes: [!Component {name: m, class: DRAM}]}", "no component multiplies"),
        ("architecture: {nodes: [!Container {name: c, spatial: {meshX: 0}}]}", "whole number"),
        ("architecture: {subtree: [{name: a}, {name: b}]}", "two subtrees"),
        ("architecture: 3", "must be a mapping"),
    ],
)
def test_timeloop_files_that_say_too_little_are_refused(
    text: str, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(TilewrightError, match="machine-import") as error:
        _ = import_machine([path])
    assert reason in str(error.value)


def test_operands_of_a_memory_are_sets_of_tensors(tmp_path: Path) -> None:
    text = ACCELFORGE.read_text().replace("keep: input | output", "keep: ~(weight | Intermediates)")
    assert_same(tmp_path, text, ACCELFORGE)
    text = ACCELFORGE.read_text().replace("keep: weight}", "keep: DRAM.tensors - Buffer}")
    assert_same(tmp_path, text, ACCELFORGE)


def assert_same(folder: Path, text: str, original: Path) -> None:
    path = folder / original.name
    path.write_text(text)
    assert import_machine([path]).machine == import_machine([original]).machine


def test_a_memory_of_everything_gets_one_beyond_it(tmp_path: Path) -> None:
    lines = ZIGZAG.read_text()
    start, end = lines.index("  dram:"), lines.index("operational_array:")
    path = tmp_path / "alone.yaml"
    path.write_text((lines[:start] + lines[end:]).replace("[I1, O]", "[I1, I2, O]"))
    imported = import_machine([path])
    assert imported.machine.main == "main"
    assert any("beyond buffer" in line for line in imported.lost)


def test_an_operand_without_a_memory_on_the_chip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bare.yaml"
    path.write_text(ACCELFORGE.read_text().replace("keep: weight}", "keep: Nothing}"))
    with pytest.raises(TilewrightError, match="operand W has no memory on the chip"):
        import_machine([path])


def test_what_is_lost_is_told_and_stands_in_the_file(tmp_path: Path) -> None:
    out = tmp_path / "m.toml"
    result = CliRunner().invoke(app, ["import-machine", str(ZIGZAG), "-o", str(out)])
    assert result.exit_code == 0, result.output
    assert "no mapping is given" in " ".join(result.output.split())
    comments = [line for line in out.read_text().splitlines() if line.startswith("# - ")]
    assert len(comments) == len(import_machine([ZIGZAG]).lost) >= 5
    again = tmp_path / "again.toml"
    CliRunner().invoke(app, ["import-machine", str(ZIGZAG), "-o", str(again)])
    assert again.read_bytes() == out.read_bytes()


BAD = {
    "no yaml": "a: [1, 2",
    "a template": "arch: {{ nodes }}",
    "python objects": "!!python/object/apply:os.system ['true']",
    "merged mappings": "a: &a {b: 1}\nmemories: {<<: [*a, *a]}\noperational_array: {}",
    "too deep": "[" * 20_000,
    "too large": "#" * (MAX_FILE + 1),
    "a long number": f"arch: {{nodes: {'9' * 5000}}}",
    "nothing known": "layers: []",
    "a list": "- 1",
    "empty": "",
    "bytes": "\x00\x01",
    "no nodes": "arch: {nodes: 1}",
    "no unit": "arch: {nodes: []}",
    "a fork": "arch: {nodes: [!Fork {name: a, nodes: []}]}",
    "no array": "memories: {}\noperational_array: {dimensions: [D1], sizes: [4]}",
    "no sides": "memories: {}\noperational_array: {dimensions: [D1], sizes: []}",
    "a huge side": "memories: {}\noperational_array: {dimensions: [D1], sizes: [99999999999]}",
    "a fanout of 0": "arch: {nodes: [!Container {name: a, spatial: [{fanout: 0}]}]}",
    "itself": "&a [*a]",
    "too many units": f"arch: {{nodes: [{'!Container {spatial: [{fanout: 1048576}]}, ' * 2000}]}}",
    "aliases": "a: &a [1]\nb: &b [*a, *a]\nmemories: [*b, *b]\noperational_array: *b",
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_by_one_error_and_nothing_is_written(
    name: str, tmp_path: Path
) -> None:
    path, out = tmp_path / "bad.yaml", tmp_path / "m.toml"
    path.write_bytes(BAD[name].encode())
    result = CliRunner().invoke(app, ["import-machine", str(path), "-o", str(out)])
    assert result.exit_code == 2
    assert result.output.count("[machine-import]") == 1, result.output
    assert isinstance(result.exception, SystemExit)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ((ZIGZAG, ACCELFORGE), "2 machines"),
        ((MAPPING,), "0 machines"),
        ((ZIGZAG.with_name("none.yaml"),), "no such file"),
        ((EXAMPLES,), "is a folder"),
    ],
)
def test_the_files_together_describe_one_machine(files: Sequence[Path], reason: str) -> None:
    with pytest.raises(TilewrightError, match=reason):
        import_machine(files)


def test_options_are_checked(tmp_path: Path) -> None:
    with pytest.raises(TilewrightError, match="no number format"):
        import_machine([ZIGZAG], "int9")
    result = CliRunner().invoke(app, ["import-machine", str(ZIGZAG), "-o", str(tmp_path / "a.txt")])
    assert result.exit_code == 2 and "option-output" in result.output


ODD = ("-1", "0", ".nan", ".inf", "inf", "null", "[]", "{}", "1e300", "x", "9" * 400, "'\\n\\\"]'")
"""Values that stand where a file has a better one."""


@pytest.mark.parametrize(
    "source", [ZIGZAG, ACCELFORGE, TIMELOOP, MAPPING], ids=lambda path: path.stem
)
def test_spoilt_files_are_read_or_refused(source: Path, tmp_path: Path) -> None:
    """Any value may be any other one: the result is a machine file, or errors with codes."""
    pick, path = random.Random(7), tmp_path / "spoilt.yaml"
    beside = [ZIGZAG] if source == MAPPING else []
    lines = source.read_text().splitlines()
    outcomes = {True: 0, False: 0}
    for _ in range(80):
        spoilt = list(lines)
        index = pick.choice([n for n, line in enumerate(lines) if ": " in line])
        head, colon, _ = spoilt[index].rpartition(": ")
        closing = "}" * (spoilt[index].count("{") - head.count("}")) if "{" in head else ""
        spoilt[index] = f"{head}{colon}{pick.choice(ODD)}{closing}"
        path.write_text("\n".join(spoilt))
        try:
            imported = import_machine([path, *beside])
            assert load_machine(imported.text) == imported.machine
            outcomes[True] += 1
        except TilewrightError as error:
            assert all(p.code.startswith("machine-") for p in error.problems), error
            outcomes[False] += 1
    assert min(outcomes.values()) > 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "files",
    [(ZIGZAG, MAPPING), (ACCELFORGE,), (TIMELOOP,)],
    ids=("zigzag", "accelforge", "timeloop"),
)
def test_an_imported_machine_runs_lenet5(files: Sequence[Path], tmp_path: Path) -> None:
    out = tmp_path / "m.toml"
    arguments = ["import-machine", *map(str, files), "-o", str(out)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    model = ROOT / "examples" / "lenet5" / "lenet5.onnx"
    command = ["run", str(model), "-t", str(out), "--random", "1", "--check", "--quiet"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "7 kernels" in result.output and "0 mismatches" in result.output
