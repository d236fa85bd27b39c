"""``tilewright cache``: packages compiled before, and what was built for shapes of open ones."""

from __future__ import annotations

from typing import Annotated

import typer

from tilewright.cli import console


def cache_command(
    clear: Annotated[bool, typer.Option("--clear", help="Remove entries not in use.")] = False,
    as_json: console.JsonOption = False,
) -> None:
    """Print the folder of the cache, its number of packages and their bytes.

    Example: tilewright cache --clear
    """
    from tilewright.codegen.c import libraries

    with console.refusals(as_json):
        cache = console.cache()
        if clear:
            cache.clear()
            libraries.clear()
        usage = cache.usage()
    facts = {
        "directory": str(cache.directory),
        "entries": usage.entries,
        "bytes": usage.bytes,
        "most_entries": cache.most_entries,
        "most_bytes": cache.most_bytes,
    }
    console.show(
        as_json,
        facts,
        f"{usage.entries:,} of at most {cache.most_entries:,} packages, {usage.bytes:,} of "
        f"at most {cache.most_bytes:,} bytes, in {cache.directory}",
    )
