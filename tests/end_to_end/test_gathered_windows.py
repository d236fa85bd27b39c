"""Networks on a unit that multiplies matrices alone: windows are gathered on the way to it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.end_to_end.end_to_end_models import ROOT, lenet, network, run_checked
from tests.end_to_end.test_number_formats import compiled, distance, image_of, small_network

IMG2COL = ROOT / "examples" / "machines" / "img2col.toml"


def without_c(folder: Path) -> Path:
    """The machine without functions in C: its packages run as words."""
    text = re.sub(
        r'^c = .*\n|^c\.function = .*\n|, c\.function = "\w+"', "", IMG2COL.read_text(), flags=re.M
    )
    path = folder / "words.toml"
    path.write_text(text)
    return path


@pytest.mark.slow
def test_lenet_in_c(tmp_path: Path) -> None:
    """Functions for the host gather and multiply; integers are the interpreter's bit for bit."""
    executable = run_checked(lenet(), str(IMG2COL), tmp_path)
    left = [k.nodes for k in executable.profile.kernels if k.on_host and k.nodes]
    assert not left


def test_convolutions_of_several_kinds_as_words(tmp_path: Path) -> None:
    """Strides, a depthwise layer, a sum, and a product: in words, races checked."""
    model, inputs = small_network(), {"image": image_of(9)[None]}
    executable = compiled(model, tmp_path, without_c(tmp_path), calibration=[inputs])
    outputs = executable.run(inputs, check_races=True)
    check = executable.check(inputs, outputs)
    assert check.equal and check.max_abs_error == 0
    assert distance(model, inputs, outputs) < 0.01
    rows = [row for row in executable.manifest.kernels if row.engine == "host" and row.nodes]
    assert not rows


@pytest.mark.slow
def test_resnet18(tmp_path: Path) -> None:
    executable = run_checked(network("resnet18", 32), str(without_c(tmp_path)), tmp_path)
    assert not [k.symbol for k in executable.profile.kernels if k.on_host and k.nodes]
