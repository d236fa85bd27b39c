"""Packages and pages that several tests read."""

from pathlib import Path

import pytest
from tests.report.page.page_models import HOSTILE, SMALL_NPU, compiled

import tilewright
from tilewright.report.page.data import figures
from tilewright.report.page.page import page

pytest.importorskip("vl_convert", reason="vl-convert-python is not installed")

from tilewright.report.page.scripts import vega_script


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def on_npu(models: Path) -> tilewright.Executable:
    return compiled(models, SMALL_NPU, HOSTILE)


@pytest.fixture(scope="session")
def library() -> str:
    return vega_script()


@pytest.fixture(scope="session")
def text(on_npu: tilewright.Executable, library: str) -> str:
    """The page of the network on the small NPU."""
    return page([figures(on_npu)], library)
