"""A file appears whole or not at all, and what the system refuses is told with its place."""

import errno
import os
from pathlib import Path

import pytest

from tilewright.errors import TilewrightError
from tilewright.system.files import written


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    place = tmp_path / "result"
    with written(place) as fresh:
        fresh.write_text("new")
        assert not place.exists()
    assert place.read_text() == "new" and [path.name for path in tmp_path.iterdir()] == ["result"]


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt(), ValueError()]
)
def test_an_older_file_stays_if_anything_fails(tmp_path: Path, error: BaseException) -> None:
    place = tmp_path / "result"
    place.write_text("old")
    with pytest.raises((TilewrightError, type(error))), written(place) as fresh:
        fresh.write_text("half of the n")
        raise error
    assert place.read_text() == "old" and [path.name for path in tmp_path.iterdir()] == ["result"]


def test_the_system_is_quoted(tmp_path: Path) -> None:
    missing = tmp_path / "none" / "result"
    with pytest.raises(TilewrightError) as caught, written(missing) as fresh:
        fresh.write_text("")
    (problem,) = caught.value.problems
    assert problem.code == "output-failed" and problem.where == str(missing)
    assert problem.reason == os.strerror(errno.ENOENT) and "folder" in problem.help


def test_links_stay_and_devices_are_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "folder" / "result")
    with written(link) as fresh:
        fresh.write_text("new")
    assert link.is_symlink() and (tmp_path / "folder" / "result").read_text() == "new"
    with written(Path(os.devnull)) as fresh:
        fresh.write_text("gone")
    assert not Path(os.devnull).is_file()
