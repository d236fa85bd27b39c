"""How far from the bound the allocator is on problems in files, or write the generated ones.

python -m benchmarks.allocator A.1048576.csv B.1048576.csv
python -m benchmarks.allocator A.1048576.csv --solutions solved
python -m benchmarks.allocator --write problems

MiniMalloc's published problems (benchmarks/asplos2024 of its repository) are read as they are.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.allocator.files import read_problem, write_problem
from benchmarks.tables.allocator import PROBLEMS, problem, solved, table_of


def main() -> None:
    """Read or write, and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.allocator",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="*", type=Path, help="id,lower,upper,size")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write the problems here")
    parser.add_argument("--solutions", type=Path, metavar="FOLDER", help="write offsets here")
    arguments = parser.parse_args()
    if arguments.write is not None:
        arguments.write.mkdir(parents=True, exist_ok=True)
        for name in PROBLEMS:
            write_problem(arguments.write / f"{name}.csv", problem(name))
    if arguments.files:
        found = [(path.stem, read_problem(path)[0]) for path in arguments.files]
        print(table_of(found).markdown())
        if arguments.solutions is not None:
            arguments.solutions.mkdir(parents=True, exist_ok=True)
            for path, (_, given) in zip(arguments.files, found, strict=True):
                write_problem(arguments.solutions / path.name, given, solved(given))


if __name__ == "__main__":
    main()
