"""What the README and the pages made from the code show is what the compiler makes today."""

import re
import runpy
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tilewright

ROOT = Path(__file__).parent.parent
LENET = ROOT / "examples" / "lenet5" / "lenet5.onnx"


def test_readme_shows_the_c_of_lenet5(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```c\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(shown.splitlines()) >= 10
    tilewright.compile(LENET, cpu="portable", directory=tmp_path / "package")
    sources = [path.read_text() for path in (tmp_path / "package/program/src").glob("*.c")]
    assert any(shown in source for source in sources)


def test_the_sample_in_python_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (sample,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    exec(compile(sample, "README.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    held_out = np.load("examples/lenet5/held_out.npz")
    image = held_out["calibration"][:1].astype(np.float32) / 16
    wanted = tilewright.compile(LENET).reference(image)["probabilities"].argmax()
    assert printed[0] == str(wanted) and "lenet5 on cpu" in printed[1]
    assert list((tmp_path / "lenet5-saved/libraries").glob("*.so"))


@pytest.mark.parametrize("name", ["api", "limits"])
def test_generated_pages_are_up_to_date(name: str) -> None:
    page = runpy.run_path(str(ROOT / "docs" / f"{name}.py"))["page"]
    assert (ROOT / "docs" / f"{name}.md").read_text() == page(), "run: make docs"


def test_the_picture_is_what_the_script_draws() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "report_picture.py"), run_name="script")
    assert "docs/report.png" in (ROOT / "README.md").read_text()
    header = script["PICTURE"].read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", header[16:])
    assert (width, height) == (script["CLIP"]["width"], script["CLIP"]["height"])


def test_files_are_small() -> None:
    """Nothing that is kept is larger than a megabyte."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("no git repository")
    names = [name for name in listed.stdout.split("\0") if name]
    assert not [name for name in names if (ROOT / name).stat().st_size > 1 << 20]
