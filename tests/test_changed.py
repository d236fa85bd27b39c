"""`make check` runs the tests that a change concerns most, and a few of everything."""

from tests.changed import ALWAYS, REPRESENTATIVES, ROOT, concerned_by, near_tests
from tilewright.system.choices import target_names


def test_tests_of_a_file_come_first_and_then_a_few_of_everything() -> None:
    concerned = concerned_by(["src/tilewright/planning/cost/columns.py"])
    assert "tests/planning/cost/test_columns.py" in concerned[:6]
    assert {*ALWAYS, *REPRESENTATIVES} <= {*concerned}
    assert not any(test.startswith(("tests/machine", "tests/suites")) for test in concerned)
    assert len(concerned) < len(REPRESENTATIVES) + 12


def test_by_name_by_import_and_by_the_rooms_own_names() -> None:
    assert "tests/runtime/test_cache.py" in near_tests(("runtime", "cache.py"))
    assert "tests/targets/cpu/test_words.py" in near_tests(("targets", "cpu", "walk.py"))
    assert "tests/machine/test_machine_checks.py" in near_tests(("machine", "model.py"))
    assert all("cambricon/" in test for test in near_tests(("targets", "cambricon", "machine.py")))


def test_what_all_tests_read_concerns_a_few_of_everything() -> None:
    for file in ("pyproject.toml", "tests/conftest.py", "tests/build_cache.py"):
        assert {*REPRESENTATIVES} <= {*concerned_by([file])}


def test_tests_and_pages() -> None:
    assert {*concerned_by([])} == {*ALWAYS}
    assert {*concerned_by(["docs/tour.md"])} == {*ALWAYS, "tests/test_docs.py"}
    tile = {str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "tile").glob("test_*.py")}
    assert {*concerned_by(["tests/tile/tile_kernels.py"])} == {*ALWAYS, *tile}
    assert concerned_by(["tests/tile/test_tile_text.py"])[0] == "tests/tile/test_tile_text.py"


def test_every_representative_is_there_and_every_family_of_targets_has_one() -> None:
    for test in REPRESENTATIVES:
        file, _, name = test.partition("::")
        assert f"def {name or 'test_'}" in (ROOT / file).read_text()
    folders = {path.name for path in (ROOT / "tests" / "targets").iterdir() if path.is_dir()}
    shown = " ".join(REPRESENTATIVES)
    assert all(folder in shown for folder in folders - {"__pycache__"}), folders
    assert len(target_names()) > len(folders)


def test_every_path_exists() -> None:
    for path in (ROOT / "src" / "tilewright").rglob("*.py"):
        concerned = concerned_by([str(path.relative_to(ROOT))])
        assert concerned and all((ROOT / test.partition("::")[0]).exists() for test in concerned)
