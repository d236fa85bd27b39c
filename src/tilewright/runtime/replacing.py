"""A directory that is replaced as a whole, or not at all."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tilewright.errors import TilewrightError, refuse
from tilewright.runtime.manifest import MANIFEST
from tilewright.system.files import problem_of


class replacing:
    """Make a directory's new content beside it and put it in place only when it is whole.

    ``with replacing(target) as fresh:`` yields an empty directory. An existing ``target`` must be
    a package or an empty directory; it is replaced at the end, and kept if anything fails.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self._work: Path | None = None

    def refuse_early(self) -> None:
        """Refuse before any work a place that could not be written after it; changes nothing."""
        self._refuse_others()
        folder = next(parent for parent in self.target.absolute().parents if parent.exists())
        try:
            with tempfile.TemporaryDirectory(prefix=".", dir=folder):
                pass
        except OSError as error:
            raise TilewrightError(problem_of(error, "output-failed", str(self.target))) from error

    def _refuse_others(self) -> None:
        """Refuse what is neither a package nor an empty directory."""
        target = self.target
        if target.exists() or target.is_symlink():
            is_directory = target.is_dir() and not target.is_symlink()
            if not is_directory or (any(target.iterdir()) and not (target / MANIFEST).is_file()):
                raise refuse(
                    "output-exists", "exists and is no package", str(target),
                    "name another directory",
                )  # fmt: skip

    def __enter__(self) -> Path:
        self._refuse_others()
        target = self.target
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            self._work = Path(tempfile.mkdtemp(prefix=f".{target.name[:100]}.", dir=target.parent))
            fresh = self._work / "new"
            fresh.mkdir()
        except BaseException as error:
            self._remove_work()
            if isinstance(error, OSError):
                raise TilewrightError(problem_of(error, "output-failed", str(target))) from error
            raise
        return fresh

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        assert self._work is not None
        old = self._work / "old"
        try:
            if kind is None:
                if self.target.exists():
                    self.target.rename(old)
                (self._work / "new").rename(self.target)
        finally:
            if old.exists() and not self.target.exists():
                old.rename(self.target)  # Interrupted between the two.
            self._remove_work()
        if isinstance(error, OSError):
            # Of a copy, `filename` is the file that was read.
            written = error.filename2 or error.filename
            inside = written is None or str(written).startswith(str(self._work))
            where = str(self.target) if inside else str(written)
            raise TilewrightError(problem_of(error, "output-failed", where)) from error

    def _remove_work(self) -> None:
        if self._work is not None:
            shutil.rmtree(self._work, ignore_errors=True)
