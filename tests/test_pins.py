"""What is installed is what constraints.txt says, also after the front-ends' packages came in."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

CONSTRAINTS = Path(__file__).parent.parent / "constraints.txt"
LINES = [line for line in CONSTRAINTS.read_text().splitlines() if not line.startswith("#")]


def test_every_line_is_an_exact_pin() -> None:
    names = [line.split("==")[0] for line in LINES]
    assert all(len(line.split("==")) == 2 for line in LINES)
    assert len({name.lower().replace("_", "-") for name in names}) == len(names)


@pytest.mark.parametrize("line", LINES)
def test_installed_version_is_the_pinned_one(line: str) -> None:
    name, pinned = line.split("==")
    try:
        installed = version(name)
    except PackageNotFoundError:
        pytest.skip(f"{name} is not installed")
    # A local build of a version, such as 2.13.0+cpu, is that version.
    assert installed.split("+")[0] == pinned
