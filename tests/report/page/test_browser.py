"""The page in Chromium without a screen: it renders, zooms, filters, works by keyboard, asks for
nothing, and a long trace does not stop it."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.report.page.page_models import HOSTILE, TERN, compiled
from tests.report.page.test_intervals import MACHINE, random_run

import tilewright
from tilewright.report.page.data import Figures, figures
from tilewright.report.page.intervals import engine_timelines
from tilewright.report.page.page import page
from tilewright.report.page.sweep import Sweep

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed"),
]

PATIENCE = 60_000
"""Milliseconds for a chart on a busy machine."""


class Tab:
    """A page that is open, with what it said and asked for."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.page = browser.new_page(**options)
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append("a dialog opened"))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.path = path
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]", state="attached", timeout=PATIENCE)
        self.page.wait_for_selector("html[data-shown]", state="attached", timeout=PATIENCE)

    @property
    def window(self) -> list[float]:
        """The window of time that is drawn."""
        return [
            float(x) for x in self.page.evaluate("document.documentElement.dataset.shown").split()
        ]

    def after(self, act: Any) -> list[float]:
        """The window once something that changes it is drawn."""
        before = self.page.evaluate("document.documentElement.dataset.shown")
        act()
        self.page.wait_for_function(
            "before => document.documentElement.dataset.shown !== before", arg=before,
            timeout=PATIENCE,
        )  # fmt: skip
        return self.window

    def close(self) -> None:
        """Nothing went wrong, and nothing but the file was read."""
        assert self.said == []
        assert self.asked == [self.path.as_uri()]
        self.page.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as play:
        started = play.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS])
        yield started
        started.close()


@pytest.fixture(scope="module")
def written(text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        pytest.param(1280, "light", marks=pytest.mark.smoke),
        *((1280, "dark"), (800, "light"), (800, "dark")),
    ],
)
def test_all_charts_render_within_the_window(
    browser: Any, written: Path, scheme: str, width: int
) -> None:
    tab = Tab(browser, written, viewport={"width": width, "height": 900}, color_scheme=scheme)
    for place in ("roofline-chart", "bounds-chart", "timeline-chart", "memory-0", "memory-1"):
        size = tab.page.evaluate(
            "id => { const c = document.getElementById(id).querySelector('canvas');"
            " const { data } = c.getContext('2d').getImageData(0, 0, c.width, c.height);"
            " return [c.clientWidth, c.clientHeight, new Set(data).size]; }",
            place,
        )
        assert size[0] > width / 2 and size[1] > 60 and size[2] > 20, place
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
    tab.close()


@pytest.mark.smoke
def test_zoom_by_keys_buttons_wheel_and_drag(browser: Any, written: Path) -> None:
    tab = Tab(browser, written)
    first = tab.window
    tab.page.focus("#timeline-chart")
    narrow = tab.after(lambda: tab.page.keyboard.press("+"))
    assert narrow == pytest.approx([first[1] / 4, 3 * first[1] / 4])
    moved = tab.after(lambda: tab.page.keyboard.press("ArrowRight"))
    assert moved[0] == pytest.approx(narrow[0] + (narrow[1] - narrow[0]) / 4)
    assert tab.after(lambda: tab.page.keyboard.press("ArrowLeft")) == pytest.approx(narrow)
    assert tab.after(lambda: tab.page.keyboard.press("0")) == first
    assert tab.after(lambda: tab.page.click("[data-zoom=in]")) == pytest.approx(narrow)
    assert tab.after(lambda: tab.page.click("[data-zoom=out]")) == pytest.approx(first)
    box = tab.page.locator("#timeline-chart").bounding_box()
    tab.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    tab.page.keyboard.down("Control")
    wheeled = tab.after(lambda: tab.page.mouse.wheel(0, -100))
    tab.page.keyboard.up("Control")
    assert wheeled[1] - wheeled[0] == pytest.approx(first[1] / 2)
    tab.page.mouse.down()
    dragged = tab.after(lambda: tab.page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 20))
    tab.page.mouse.up()
    assert dragged[0] > wheeled[0]
    tab.close()


@pytest.mark.slow
def test_filter_sort_and_go_to_a_kernel_by_keyboard(
    browser: Any, written: Path, on_npu: tilewright.Executable
) -> None:
    tab = Tab(browser, written)
    found = figures(on_npu)
    rows = tab.page.locator("#layers-table tbody tr")
    assert rows.count() == len(found.kernels)
    tab.page.keyboard.press("/")
    tab.page.keyboard.type("third")
    assert rows.count() == 1
    third = next(kernel for kernel in found.kernels if "third" in kernel.nodes)
    button = tab.page.locator("#layers-table tbody button")
    assert button.inner_text() == third.name
    button.focus()
    window = tab.after(lambda: tab.page.keyboard.press("Enter"))
    start, end = next((s, e) for name, s, e in found.windows if name == third.name)
    assert window[0] <= start and end <= window[1] + 1e-6
    assert window[1] - window[0] < 1.2 * (end - start)
    tab.page.fill("#filter", "")
    heads = tab.page.locator("#layers-table th button")
    place = [text.strip() for text in heads.all_inner_texts()].index("bytes")
    heads.nth(place).focus()
    tab.page.keyboard.press("Enter")
    cells = tab.page.locator(f"#layers-table tbody td:nth-child({place + 1})").all_inner_texts()
    known = [int(cell.replace(",", "")) for cell in cells if cell != "-"]
    assert known == sorted((k.bytes for k in found.kernels if k.bytes), reverse=True)
    assert tab.page.locator("#layers-table th[aria-sort=descending]").count() == 1
    tab.close()


@pytest.mark.smoke
def test_hostile_names_are_shown_and_do_nothing(browser: Any, written: Path) -> None:
    tab = Tab(browser, written)
    assert tab.page.locator("img").count() == 0
    assert HOSTILE in tab.page.inner_text("#layers-table")
    tab.page.hover("#timeline-chart canvas", position={"x": 300, "y": 20})
    tab.page.wait_for_selector("#vg-tooltip-element.visible", timeout=PATIENCE)
    assert HOSTILE in tab.page.inner_text("#vg-tooltip-element")
    assert tab.page.locator("img").count() == 0
    tab.close()


@pytest.mark.slow
def test_runs_are_compared_and_chosen(
    browser: Any, models: Path, library: str, on_npu: tilewright.Executable, tmp_path: Path
) -> None:
    runs = [figures(on_npu), figures(compiled(models, TERN, HOSTILE))]
    path = tmp_path / "two.html"
    path.write_text(page(runs, library), encoding="utf-8")
    tab = Tab(browser, path)
    totals = tab.page.inner_text("#totals")
    assert f"{runs[0].facts['cycles']:,}" in totals and f"{runs[1].facts['cycles']:,}" in totals
    tab.page.focus("#run")
    tab.after(lambda: tab.page.select_option("#run", index=1))
    assert tab.window[1] == pytest.approx(runs[1].end, rel=1e-5)
    assert tab.page.locator("[data-run='0']:visible").count() == 0
    assert runs[1].kernels[0].name in tab.page.inner_text("#layers-table")
    tab.close()


@pytest.mark.smoke
def test_a_sweep_has_its_pareto_front(browser: Any, library: str, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = [(float(x), float(y), "a") for x, y in random.integers(0, 40, (60, 2))]
    best = [a for a in rows if not any(
        b[0] <= a[0] and b[1] <= a[1] and (b[0] < a[0] or b[1] < a[1]) for b in rows
    )]  # fmt: skip
    path = tmp_path / "sweep.html"
    columns = ("memory.sram.bytes", "predicted_cycles", "model")
    path.write_text(page([], library, Sweep(columns, tuple(rows))), encoding="utf-8")
    opened = browser.new_page()
    opened.goto(path.as_uri())
    opened.wait_for_selector("#sweep-chart canvas", timeout=PATIENCE)
    assert opened.input_value("#sweep-x") == "memory.sram.bytes"
    assert opened.input_value("#sweep-y") == "predicted_cycles"
    told = opened.inner_text("#sweep-count")
    assert told == f"{len(set(best))} of 60 points on the front"
    opened.close()


@pytest.mark.slow
def test_a_trace_of_a_hundred_megabytes_stays_responsive(
    browser: Any, on_npu: tilewright.Executable, library: str, tmp_path: Path
) -> None:
    """600,000 commands: as a trace for Perfetto, more than 150 bytes each."""
    spans, commands = random_run(1, 600_000, 7)
    found = figures(on_npu)
    end = float(spans.end.max())
    names = [kernel.name for kernel in found.kernels]
    windows = tuple(
        (name, n * end / len(names), (n + 1) * end / len(names)) for n, name in enumerate(names)
    )
    engines = engine_timelines(spans, commands, MACHINE)
    huge = Figures(**{**vars(found), "engines": engines, "windows": windows})
    path = tmp_path / "huge.html"
    path.write_text(page([huge], library), encoding="utf-8")
    assert path.stat().st_size < 3_000_000
    tab = Tab(browser, path)
    tab.page.focus("#timeline-chart")
    for key in ("+", "+", "+", "ArrowRight", "-", "0"):
        begin = time.perf_counter()
        tab.after(lambda key=key: tab.page.keyboard.press(key))
        assert time.perf_counter() - begin < 5, (
            key
        )  # A fraction of a second where nothing else runs.
    tab.close()


@pytest.mark.slow
def test_data_is_json_that_the_page_reads(browser: Any, written: Path, text: str) -> None:
    tab = Tab(browser, written)
    read = tab.page.evaluate("JSON.parse(document.getElementById('data').textContent)")
    start = text.index('id="data">') + len('id="data">')
    assert read == json.loads(text[start : text.index("</script>", start)])
    tab.close()
