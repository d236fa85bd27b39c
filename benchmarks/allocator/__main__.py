"""How far from the bound the allocator is on problems in files, or write the generated ones.

python -m benchmarks.allocator A.1048576.csv B.1048576.csv
python -m benchmarks.allocator --write problems
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.allocator.shapes import read_csv, write_csv
from benchmarks.tables.allocator import PROBLEMS, problem, table_of


def main() -> None:
    """Read or write, and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.allocator",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="*", type=Path, help="id,lower,upper,size")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write the problems here")
    arguments = parser.parse_args()
    if arguments.write is not None:
        arguments.write.mkdir(parents=True, exist_ok=True)
        for name in PROBLEMS:
            write_csv(problem(name), arguments.write / f"{name}.csv")
    if arguments.files:
        found = [(path.stem, read_csv(path)) for path in arguments.files]
        print(table_of(found).markdown())


if __name__ == "__main__":
    main()
