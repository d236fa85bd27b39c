"""Vega, Vega-Lite and Vega-Embed as one script, from the package vl-convert-python.

The package makes the script from what it holds, without the network, which takes seconds; so it is
kept in the user's cache directory, with its digest in its first line.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from importlib.metadata import version

from tilewright.system.extras import library
from tilewright.system.files import written
from tilewright.system.places import default_directory


def vega_script() -> str:
    """The script, which defines ``vegaEmbed``.

    Refuses (``report-library``) where the package is not installed.
    """
    vl_convert = library("vl_convert", "report", "report-library", "the page's charts")
    place = default_directory() / "scripts" / f"vega-{version('vl-convert-python')}.js"
    with suppress(OSError, UnicodeDecodeError):
        first, _, script = place.read_text(encoding="utf-8").partition("\n")
        if first == _digest(script):
            return script
    script = _safe(str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")))
    with suppress(OSError):  # A cache that cannot be written costs the next report seconds.
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with written(place) as fresh:
            fresh.write_text(f"{_digest(script)}\n{script}", encoding="utf-8")
    return script


def _digest(script: str) -> str:
    return f"// {hashlib.sha256(script.encode()).hexdigest()}"


def _safe(script: str) -> str:
    """The script as an element holds it: what would end the element stands in strings alone."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")
