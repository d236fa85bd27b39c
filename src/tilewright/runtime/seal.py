"""Seals of the files that a manifest does not list: itself, and libraries built in the package."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from tilewright.errors import refuse
from tilewright.runtime.manifest import FileEntry, Manifest, digest_of_file, read_listed
from tilewright.system.typed_json import JsonError, from_json, to_json

SEALED = "sealed.json"

_MOST_BYTES = 16 << 20


class _Seal(Struct, frozen=True, forbid_unknown_fields=True):
    files: dict[str, FileEntry]


def seal(entry: Path, package: Path) -> None:
    """Write down, beside a package, the files that its manifest does not list."""
    text = to_json(_Seal(_unlisted(package, read_listed(package))), indent=1)
    (entry / SEALED).write_text(text + "\n")


def check_seal(entry: Path, package: Path, manifest: Manifest) -> None:
    """Refuse (``package-damaged``) a package with unlisted files that are not as they were."""
    path = entry / SEALED
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise refuse("package-damaged", "the seal is too large", str(path))
        sealed = from_json(_Seal, path.read_bytes())
    except (JsonError, OSError) as error:
        raise refuse("package-damaged", "the seal cannot be read", str(path)) from error
    if sealed.files != _unlisted(package, manifest.files):
        raise refuse("package-damaged", "a file has changed since it was built", str(package))


def _unlisted(package: Path, listed: dict[str, FileEntry]) -> dict[str, FileEntry]:
    names = {path: path.relative_to(package).as_posix() for path in sorted(package.rglob("*"))}
    return {
        name: digest_of_file(path)
        for path, name in names.items()
        if name not in listed and path.is_file()
    }
