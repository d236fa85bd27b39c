"""`make check` runs the tests that a change concerns, and no others."""

from tests.changed import ALL, ALWAYS, ROOT, concerned_by


def test_a_room_and_those_above() -> None:
    concerned = concerned_by(["src/tilewright/planning/cost.py"])
    for folder in ("planning", "tile", "graph", "targets", "network", "cli", "end_to_end"):
        assert f"tests/{folder}" in concerned
    for folder in ("machine", "numerics", "simulate"):
        assert f"tests/{folder}" not in concerned


def test_a_target_and_those_that_import_it() -> None:
    concerned = concerned_by(["src/tilewright/targets/cambricon/machine.py"])
    assert "tests/targets/cambricon" in concerned and "tests/targets" not in concerned
    assert "tests/targets/cpu" not in concerned
    # Instruction targets run what is left on the host, in the C of the cpu target.
    assert "tests/targets/generic" in concerned_by(["src/tilewright/targets/cpu/runner.py"])


def test_what_all_tests_read_concerns_all() -> None:
    for file in ("pyproject.toml", "tests/conftest.py", "tests/build_cache.py"):
        assert concerned_by(["README.md", file]) == ALL


def test_tests_and_pages() -> None:
    assert set(concerned_by(["docs/tour.md"])) == ALWAYS
    assert set(concerned_by([])) == ALWAYS
    assert set(concerned_by(["tests/tile/tile_kernels.py"])) == {*ALWAYS, "tests/tile"}
    # What lies in a folder that is named is not named again.
    assert "tests/errors/test_codes.py" not in concerned_by(["tests/errors/stablehlo_texts.py"])


def test_every_path_exists() -> None:
    for path in (ROOT / "src" / "tilewright").rglob("*.py"):
        concerned = concerned_by([str(path.relative_to(ROOT))])
        assert concerned and all((ROOT / test).exists() for test in concerned)
