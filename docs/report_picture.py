"""Draw docs/report.png, the page of LeNet-5 on a small NPU, in Chromium: ``make docs``."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import tilewright
from tilewright.report.page.data import figures
from tilewright.report.page.page import page
from tilewright.report.page.scripts import vega_script
from tilewright.system.temporary import temporary_folder

ROOT = Path(__file__).parent.parent
PICTURE = Path(__file__).with_name("report.png")
MODEL = ROOT / "examples" / "lenet5" / "lenet5.onnx"
MACHINE = ROOT / "examples" / "machines" / "small-npu.toml"

PARTS = ("machine", "layers", "timeline")
"""The parts of the page that are drawn, below the title and the summary."""

CLIP = {"x": 0, "y": 0, "width": 1100, "height": 1670}
"""Pixels of the picture: the charts of further memories are left out."""

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


def draw(picture: Path) -> None:
    """Write the picture."""
    from playwright.sync_api import sync_playwright

    executable = tilewright.compile(MODEL, target=str(MACHINE))
    with temporary_folder() as folder, sync_playwright() as play:
        path = folder / "report.html"
        path.write_text(page([figures(executable)], vega_script()), encoding="utf-8")
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=[*FLAGS])
        tab = browser.new_page(viewport={"width": 1100, "height": 900}, color_scheme="light")
        tab.goto(path.as_uri())
        tab.wait_for_selector("html[data-shown]", state="attached")
        keep = [f"#{name}" for name in ("summary", *PARTS)]
        others = f"nav, main > section:not({', '.join(keep)})"
        tab.add_style_tag(content=f"{others} {{ display: none; }}")
        tab.screenshot(path=picture, full_page=True, clip=CLIP)
        browser.close()


if __name__ == "__main__":
    if shutil.which("chromium") is None:
        sys.exit("drawing needs Chromium: install the package chromium")
    draw(PICTURE)
