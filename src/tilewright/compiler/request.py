"""A request for a compilation: a digest of its arguments, made without the compiler.

The same request has the same answer (runtime/requests.py), so a model that was compiled before is
neither read nor is its machine described. What is no file of its own, as modules of PyTorch are,
is asked for in ways that no digest tells.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from tilewright.codegen.c.compiler import compiler_version
from tilewright.errors import TilewrightError
from tilewright.runtime.digest import installed, source_digest
from tilewright.runtime.manifest import digest_of_file

Asked = Mapping[str, object]
"""Options by name, of which None, False and empty ones are as good as none."""


@dataclass(frozen=True)
class Request:
    """The digest of a request, and the files that it depends on."""

    digest: str
    files: Mapping[Path, str]
    """SHA-256 of what was in them."""

    def unchanged(self, known: Container[Path] = ()) -> bool:
        """Return True if the files hold what they held; those ``known`` to are not read."""
        try:
            return all(
                path in known or digest_of_file(path).sha256 == digest
                for path, digest in self.files.items()
            )
        except OSError:
            return False


def request_of(model: object, target: object, asked: Asked) -> Request | None:
    """The request for a model; None where it cannot be told from another.

    Paths among the options stand for the files there, as ``target`` does where it names a machine
    file.
    """
    if not isinstance(model, str | Path) or not isinstance(target, str):
        return None
    options: dict[str, Any] = {}
    files: dict[Path, str] = {}
    try:
        content = _content(Path(model), files)
        for name, value in sorted(asked.items()):
            if value is not None and value is not False and value != () and value != {}:
                options[name] = _told(value, files)
                if options[name] is None:
                    return None
        machine = _content(Path(target), files) if target.endswith(".toml") else None
        compiler = compiler_version()
    except (OSError, TilewrightError):
        return None  # Whoever compiles says what is wrong.
    whole = {
        "model": content,
        "target": [target, machine],
        "options": options,
        "host": [_processor(), os.cpu_count(), platform.machine(), platform.release(), compiler],
        "installed": [source_digest(), *installed()],
    }
    return Request(sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest(), files)


def _content(path: Path, files: dict[Path, str]) -> list[str]:
    """A file's name and the digest of what is in it, which is noted in ``files``."""
    files[path] = digest_of_file(path).sha256
    return [path.name, files[path]]


def _told(value: object, files: dict[Path, str]) -> Any:
    """A value as JSON that no other value has; None for what has no such form."""
    if isinstance(value, Path):
        return _content(value, files)
    if isinstance(value, bool | int | float | str):
        return [type(value).__name__, repr(value)]
    if isinstance(value, Mapping):
        items = [(_told(key, files), _told(entry, files)) for key, entry in value.items()]  # pyright: ignore[reportUnknownArgumentType]
        return None if any(None in item for item in items) else ["mapping", sorted(items)]
    if isinstance(value, tuple | list):
        parts = [_told(entry, files) for entry in value]  # pyright: ignore[reportUnknownArgumentType]
        return None if None in parts else ["sequence", parts]
    return None


_FACTS = re.compile(
    r"^(vendor_id|cpu family|model|model name|stepping|flags|Features|CPU \w+)\s*:(.*)$", re.M
)


def _processor() -> str:
    """Return the processor's facts that a package depends on, caches included; "" if unknown."""
    path, caches = Path("/proc/cpuinfo"), Path("/sys/devices/system/cpu/cpu0/cache")
    first = path.read_text().partition("\n\n")[0] if path.exists() else ""
    facts = ["".join(words) for words in _FACTS.findall(first)]
    for name in ("level", "type", "size", "shared_cpu_list"):
        facts += [file.read_text() for file in sorted(caches.glob(f"index*/{name}"))]
    return "\n".join(facts)
