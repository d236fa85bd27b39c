"""``tilewright report``: pages of packages, models, runs and sweeps, and what it refuses."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.report.page.page_models import network
from tilewright.cli.main import app
from tilewright.report.page import scripts

pytest.importorskip("vl_convert", reason="vl-convert-python is not installed")


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package, and a run of it as JSON."""
    folder = tmp_path_factory.mktemp("report")
    model = network(folder / "made.onnx")
    assert call("compile", model, "-t", "shidiannao", "-o", folder / "package", "-q").exit_code == 0
    ran = call("run", folder / "package", "--random", 1, "--json", "-q")
    (folder / "run.json").write_text(ran.stdout)
    return folder


def data_of(path: Path) -> dict[str, list[dict[str, object]]]:
    text = path.read_text(encoding="utf-8")
    start = text.index('id="data">') + len('id="data">')
    return json.loads(text[start : text.index("</script>", start)])


def test_a_package_beside_a_run_of_it(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "both.html"
    told = call("report", folder / "package", folder / "run.json", "-o", page, "--json", "-q")
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["bytes"] == page.stat().st_size
    data = data_of(page)
    first, second = data["runs"]
    assert first["kernels"]["simulated"] == second["kernels"]["simulated"]  # type: ignore[index]
    assert first["engines"] and not second["engines"]
    assert len(data["compared"]) <= len(first["kernels"]["name"])  # type: ignore[index]


def test_a_run_measures_the_host(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    arguments = ("report", folder / "package", "-o", page, "-q")
    assert call(*arguments).exit_code == 0
    assert "host, us" not in json.dumps(
        {k: v for k, v in data_of(page)["runs"][0]["totals"].items() if v is not None}  # type: ignore[attr-defined]
    )
    assert call(*arguments, "--random", 1).exit_code == 0
    assert data_of(page)["runs"][0]["totals"]["host, us"] > 0  # type: ignore[index]


def test_a_sweep_alone(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("memory.sram.bytes,predicted_cycles\n1,2\n2,1\n")
    page = tmp_path / "sweep.html"
    assert call("report", "--sweep", tmp_path / "rows.csv", "-o", page, "-q").exit_code == 0
    assert data_of(page)["sweep"]["rows"] == [[1.0, 2.0], [2.0, 1.0]]  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "arguments, code",
    [
        ((), "option-report"),
        (("missing",), "model-"),
        (("bad.json",), "report-run"),
        (("other.json",), "report-run"),
        (("--sweep", "none.csv"), "report-sweep"),
        (("--sweep", "bad.json"), "report-sweep"),
    ],
)
def test_refusals(
    arguments: tuple[str, ...], code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.json").write_text("{")
    Path("other.json").write_text('{"profile": {"kernels": []}}')
    refused = call("report", *arguments, "-q")
    assert refused.exit_code == 2 and f"[{code}" in refused.output, refused.output
    assert not Path("report.html").exists()


def test_without_the_library(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "vl_convert", None)
    refused = call("report", folder / "package", "-o", tmp_path / "report.html", "-q")
    assert refused.exit_code == 2 and "report-library" in refused.output
    assert "tilewright[report]" in refused.output


@pytest.mark.slow
def test_a_library_that_was_changed_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    script = scripts.vega_script()
    (place,) = (tmp_path / "scripts").iterdir()
    place.write_text(place.read_text(encoding="utf-8")[:-9], encoding="utf-8")
    assert scripts.vega_script() == script
