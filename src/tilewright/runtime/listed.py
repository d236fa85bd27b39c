"""A package without the files that its manifest does not list: those are never read."""

from __future__ import annotations

import weakref
from pathlib import Path

from tilewright.runtime.manifest import MODEL, PROGRAM, REFERENCE, Manifest
from tilewright.system.temporary import make_folder, remove_folder


def listed_only(directory: Path, manifest: Manifest, owner: object) -> Path:
    """The package itself, if it holds nothing more; else links to the listed files alone.

    The links live as long as ``owner``. Only the folders that are read are looked at, and only for
    packages that ``read_manifest`` has found whole.
    """
    if not any(
        path.relative_to(directory).as_posix() not in manifest.files
        for folder in (PROGRAM, REFERENCE, MODEL)
        for path in (directory / folder).rglob("*")
        if path.is_symlink() or not path.is_dir()
    ):
        return directory
    links = make_folder()
    weakref.finalize(owner, remove_folder, links)
    for name in manifest.files:
        place = links / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to((directory / name).resolve())
    return links
