"""The example targets as a user has them: found by the entry points of installed distributions."""

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tilewright.system.choices import target_names

EXAMPLES = Path(__file__).parents[2] / "examples" / "targets"


@contextmanager
def installed(name: str, folder: Path) -> Iterator[None]:
    """The distribution of an example, as ``pip install`` records it, for the time of a block."""
    project = EXAMPLES / name
    described = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    points = described["entry-points"]["tilewright.targets"]
    info = folder / f"{described['name']}-{described['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {described['name']}\nVersion: {described['version']}\n"
    )
    lines = [f"{key} = {value}\n" for key, value in points.items()]
    (info / "entry_points.txt").write_text("".join(["[tilewright.targets]\n", *lines]))
    assert name not in target_names()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(project))
        patch.syspath_prepend(str(folder))
        yield
