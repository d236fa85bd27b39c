"""The memory report agrees with the package; the picture holds what the plan says, escaped."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import onnx
import pytest
from report_models import folded
from tests.slow import but_fast
from typer.testing import CliRunner

import tilewright
from tilewright.cli.main import app
from tilewright.graph.passes.memory_plan import MemoryPlan, PlannedBuffer
from tilewright.report.memory import MemoryReport
from tilewright.report.picture import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, picture

LENET = Path(__file__).parents[2] / "examples" / "lenet5" / "lenet5.onnx"
SPACE = "{http://www.w3.org/2000/svg}"


def call(*arguments: object) -> Any:
    words = ["memory", *map(str, arguments), "--quiet", "--json"]
    result = CliRunner().invoke(app, words)
    assert "Traceback" not in result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("target", but_fast(["cpu", "cambricon-x"], ["cpu"]))
@pytest.mark.parametrize("exact", but_fast([False, True], [False]))
def test_report_is_the_package_s(target: str, exact: bool, tmp_path: Path) -> None:
    model = folded(tmp_path / "folded.onnx")
    more = ["--exact-memory"] if exact else []
    found = call(model, "-t", target, *more)
    manifest = tilewright.compile(model, target, exact_memory=exact).manifest
    assert found["peak_bytes"] == manifest.activation_bytes
    assert found["weight_bytes"] == manifest.peak_memory_bytes - manifest.activation_bytes
    assert [k["name"] for k in found["kernels"]] == [k.name for k in manifest.kernels]
    alive = found["alive_at_peak"]
    assert sum(-(-row["bytes"] // 64) * 64 for row in alive) == found["bound_bytes"]
    assert found["optimal"] or not exact
    assert max(row["offset"] + row["bytes"] for row in found["buffers"]) <= found["peak_bytes"]
    names = {node for row in found["buffers"] for node in row["nodes"]}
    assert {"x", "relu", "sum"} <= names


def rectangles(root: ElementTree.Element) -> list[tuple[str, float, float, float, float]]:
    found: list[tuple[str, float, float, float, float]] = []
    for group in root.iter(f"{SPACE}g"):
        box = group.find(f"{SPACE}rect")
        assert box is not None
        x, y, width, height = (float(box.attrib[k]) for k in ("x", "y", "width", "height"))
        found.append((group.findtext(f"{SPACE}title") or "", x, y, width, height))
    return found


@pytest.mark.parametrize("target", ["cpu", "cambricon-x"])
def test_picture_shows_the_plan(target: str, tmp_path: Path) -> None:
    file = tmp_path / "memory.svg"
    found = call(LENET, "-t", target, "--svg", file)
    boxes = rectangles(ElementTree.parse(file).getroot())
    assert len(boxes) == sum(row["bytes"] > 0 for row in found["buffers"])
    scale = (HEIGHT - TOP - BOTTOM) / found["peak_bytes"]
    by_place = {(row["offset"], row["bytes"]) for row in found["buffers"]}
    for title, x, y, width, height in boxes:
        assert x >= LEFT and x + width <= WIDTH - RIGHT + 0.2 and width > 0
        assert y >= TOP - 0.2 and y + height <= HEIGHT - BOTTOM + 0.2
        size, at = (int(word.replace(",", "")) for word in title.split() if word[0].isdigit())
        assert (at, size) in by_place
        assert abs(height - size * scale) < 0.2
        assert abs(HEIGHT - BOTTOM - (y + height) - at * scale) < 0.2
    assert any("conv1" in title or "relu1" in title for title, *_ in boxes)


def test_names_are_escaped(tmp_path: Path) -> None:
    model = onnx.load(LENET)
    evil = '<script>alert("x")</script>&\n]]>\x00'.replace("\x00", "\x07")
    for node in model.graph.node[:2]:
        node.name = evil + node.name
    path = tmp_path / "evil.onnx"
    onnx.save(model, path)
    file = tmp_path / "memory.svg"
    call(path, "--svg", file)
    root = ElementTree.parse(file).getroot()
    tags = {element.tag.removeprefix(SPACE) for element in root.iter()}
    assert tags == {"svg", "title", "rect", "text", "line", "g"}
    assert any('<script>alert("x")</script>&' in title for title, *_ in rectangles(root))


def test_empty_and_crowded_plans_can_be_drawn() -> None:
    empty = MemoryPlan((), 0, 0, "none", True, "the inputs", (), 0, (), {})
    assert ElementTree.fromstring(picture(MemoryReport("m", "t", empty, {}))) is not None
    buffers = tuple(PlannedBuffer(f"b{i}", (f"b{i}",), 64 * i, 64, i, i) for i in range(400))
    kernels = tuple((2 * i, f"k{i}") for i in range(200))
    plan = MemoryPlan(buffers, 64 * 400, 64, "none", False, "k0", (), 0, kernels, {})
    report = MemoryReport("m", "t", plan, {})
    assert len(rectangles(ElementTree.fromstring(picture(report)))) == 400
    assert "open" in str(report) and report.peak_step == 0


def test_refuses_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    found = call(LENET, "--svg", tmp_path / "nowhere" / "m.svg")
    assert found["errors"][0]["code"] == "output-failed"
