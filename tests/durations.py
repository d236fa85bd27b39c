"""A table of how long tests took, from the last `make test` and `make test-slow`.

``python -m tests.durations FILE.xml...`` prints seconds by folder, then the slowest tests: set-up
and tear-down included, on each worker, so that the sum is about twice the wall-clock time of two.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

SLOWEST = 50


def times_of(files: Iterable[Path]) -> dict[str, float]:
    """Seconds of each test, by ``module::name``; files are JUnit's, as pytest writes them."""
    times: Counter[str] = Counter()
    for file in files:
        for case in ElementTree.parse(file).iter("testcase"):
            times[f"{case.get('classname')}::{case.get('name')}"] += float(case.get("time", 0))
    return dict(times)


def table(times: dict[str, float]) -> str:
    """Folders, then single tests, the slowest first."""
    folders: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for name, seconds in times.items():
        parts = name.split("::")[0].split(".")[1:]
        folder = "/".join(parts[: 2 if len(parts) > 2 else 1])
        folders[folder] += seconds
        counts[folder] += 1
    lines = [f"{sum(times.values()):9.1f} s  {len(times):5}  all tests", ""]
    lines += [f"{t:9.1f} s  {counts[name]:5}  {name}" for name, t in folders.most_common()]
    slowest = sorted(times.items(), key=lambda item: (-item[1], item[0]))[:SLOWEST]
    return "\n".join([*lines, "", *(f"{t:9.1f} s  {name}" for name, t in slowest)]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table(times_of(map(Path, sys.argv[1:]))))
