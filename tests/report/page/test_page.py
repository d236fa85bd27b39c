"""The page is one safe, self-contained file: the same figures give the same bytes."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from tests.report.page.page_models import HOSTILE, SMALL_NPU, TERN, compiled
from tests.report.page.test_intervals import MACHINE, random_run

import tilewright
from tilewright.errors import TilewrightError
from tilewright.report.page.data import Figures, figures
from tilewright.report.page.diagram import machine_diagram
from tilewright.report.page.intervals import LEVELS, MOST_INTERVALS, engine_timelines
from tilewright.report.page.page import page
from tilewright.report.page.sections import summary_lines
from tilewright.report.page.sweep import read_sweep
from tilewright.targets.base import find_target

REQUESTS = {"src", "srcset", "href", "data", "poster", "action", "formaction", "background"}
"""Attributes that name something to fetch, or to go to."""


class Reader(HTMLParser):
    """Elements, attributes and the texts of scripts, as a browser's parser finds them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self.elements.append((f"/{tag}", {}))

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] == "script":
            self.scripts[-1] += data


def test_the_same_package_gives_the_same_bytes(on_npu: tilewright.Executable, library: str) -> None:
    first, second = (tilewright.Executable.load(on_npu.directory) for _ in range(2))
    assert page([figures(first)], library) == page([figures(second)], library)


def test_nothing_is_fetched_and_only_stated_scripts_run(text: str) -> None:
    read = Reader(text)
    for tag, attributes in read.elements:
        assert tag not in ("img", "link", "iframe", "object", "embed", "base", "form"), tag
        for name in REQUESTS & set(attributes):
            assert (attributes[name] or "").startswith("#"), (tag, attributes)
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
    policies = [a["content"] for t, a in read.elements if t == "meta" and "http-equiv" in a]
    (policy,) = policies
    assert policy is not None and policy.startswith("default-src 'none'; ")
    assert "unsafe-eval" not in policy and "http" not in policy
    data, *scripts = read.scripts
    json.loads(data)
    digests = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    assert re.findall(r"'sha256-([^']+)'", policy) == digests and len(digests) == 2


def test_hostile_names_are_only_text(text: str, library: str) -> None:
    assert HOSTILE not in text.replace(library, "")
    data = json.loads(Reader(text).scripts[0])
    assert any(HOSTILE in nodes for nodes in data["runs"][0]["kernels"]["nodes"])


def test_the_page_of_a_small_network_is_little_more_than_its_library(
    text: str, library: str
) -> None:
    assert len(text.encode()) - len(library.encode()) < 200_000


def test_a_trace_of_a_million_commands_is_bounded() -> None:
    spans, commands = random_run(0, 50_000, 40)
    repeats = 20
    last = spans.end.max()
    shift = np.repeat(np.arange(repeats) * last, len(commands))
    many = type(spans)(
        np.tile(spans.start, repeats) + shift,
        np.tile(spans.data, repeats) + shift,
        np.tile(spans.end, repeats) + shift,
        spans.kernel_end,
        spans.kernel_bytes,
    )
    engines = engine_timelines(many, np.tile(commands, repeats), MACHINE)
    assert sum(engine.commands for engine in engines) == 1_000_000
    assert sum(len(engine.finest) for engine in engines) <= MOST_INTERVALS
    assert all(len(level) <= LEVELS[-1] for engine in engines for level in engine.levels)


def test_the_summary_has_ten_lines_at_most(models: Path) -> None:
    for target in (SMALL_NPU, TERN):
        lines = summary_lines(figures(compiled(models, target, HOSTILE)))
        assert 6 <= len(lines) <= 10
        told = dict(lines)
        assert "cycles at" in told["accelerator"] and "through dram" in told["traffic"]
        assert re.search(r"gap at most [\d.]+ %; the search for schedules", told["efficiency"])


def test_energy_is_told_where_the_summary_has_it(on_npu: tilewright.Executable) -> None:
    found = figures(on_npu)
    parts = {"dram": 2.5e6, "compute": 0.5e6}
    facts = {**found.facts, "energy_pj": parts}
    with_energy = Figures(**{**vars(found), "facts": facts})
    assert dict(summary_lines(with_energy))["energy"] == "3 uJ: dram 83%, compute 17%"
    assert "energy" not in dict(summary_lines(found))
    assert 'id="energy-chart"' in page([with_energy], "")


@pytest.mark.parametrize("target", ["cpu", "shidiannao", "zu9", "ascend910", "sunway-chip"])
def test_every_memory_move_and_primitive_is_drawn(target: str) -> None:
    machine = find_target(target).machine()
    root = ElementTree.fromstring(machine_diagram(machine))
    titles = [title.text or "" for title in root.iter("title")]
    for memory in machine.memories:
        assert any(title.startswith(f"{memory.name}; ") for title in titles), memory.name
    for move in machine.moves:
        assert sum(title.startswith(f"{move.name}: ") for title in titles) == 1, move.name
    drawn = [p.name for p in machine.primitives if any(t.startswith(p.name) for t in titles)]
    assert len(drawn) >= min(len(machine.primitives), 14)


def test_sweeps_that_are_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    for text, reason in (
        ("", "no rows"),
        ("a,b\n", "no rows"),
        ("a,b\n1,2\n3\n", "line 3"),
        ("a,b\nx,1\ny,1\n", "two columns"),
        ("a,b\n1,2\n1,2\n", "two columns"),
    ):
        path.write_text(text)
        with pytest.raises(TilewrightError, match=reason):
            read_sweep(path)
    path.write_text("memory.sram.bytes,predicted_cycles,model\n65536,100,a\n131072,90.5,a\n")
    sweep = read_sweep(path)
    assert sweep.numeric == ("memory.sram.bytes", "predicted_cycles")
    assert sweep.rows[1] == (131072.0, 90.5, "a")
