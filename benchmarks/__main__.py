"""Print the project's tables and keep them under benchmarks/results.

python -m benchmarks                                all tables
python -m benchmarks cambricon-x planner            some
python -m benchmarks compile --networks lenet5 --no-save
python -m benchmarks allocator FOLDER --as minimalloc   problems in files
python -m benchmarks swatop --sample 5 --seconds 600 --as sample
python -m benchmarks cpu --resume                   go on where an interrupted run ended
python -m benchmarks cpu --threads 1                leave two threads to a later --resume
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.papers import ascend, dlir, dlplib, dnnvm, hlal, swatop, swatop_sunway, swtvm
from benchmarks.papers.ascend import cores as ascend_cores
from benchmarks.papers.ascend import network_layers as ascend_layers
from benchmarks.papers.ascend import networks as ascend_networks
from benchmarks.papers.ascend import sweeps as ascend_sweeps
from benchmarks.papers.ascend import synchronisation
from benchmarks.papers.dlir import generation, sparse, sweeps
from benchmarks.papers.dnnvm import values
from benchmarks.report import Table, keep, surroundings, text_of
from benchmarks.tables import (
    ablation,
    allocator,
    cambricon_x,
    compare,
    compiling,
    cpu,
    decode,
    gallery,
    importing,
    planner,
    prediction,
    scaling,
    simulation,
    since,
    starting,
    unseen,
)


@dataclass(frozen=True)
class Entry:
    """A page of tables: its title, its networks, and what measures them."""

    title: str
    networks: Sequence[str]
    tables: Callable[..., list[Table]]
    options: Sequence[str] = ()
    """The command line's options that ``tables`` takes."""


PAGES: Mapping[str, Entry] = {
    name: Entry(
        module.TITLE,
        module.NETWORKS,
        module.tables,
        getattr(module, "OPTIONS", ()),
    )
    for name, module in (
        ("cambricon-x", cambricon_x),
        ("planner", planner),
        ("prediction", prediction),
        ("unseen", unseen),
        ("cpu", cpu),
        ("compile", compiling),
        ("import", importing),
        ("start", starting),
        ("scaling", scaling),
        ("allocator", allocator),
        ("simulation", simulation),
        ("since", since),
        ("gallery", gallery),
        ("decode", decode),
        ("compare", compare),
        ("dlir", dlir),
        ("ablation", ablation),
        ("dlplib", dlplib),
        ("dnnvm", dnnvm),
        ("dnnvm-values", values),
        ("hlal", hlal),
        ("swatop", swatop),
        ("swtvm", swtvm),
        ("swatop-sunway", swatop_sunway),
        ("ascend", ascend),
        ("ascend-cores", ascend_cores),
        ("ascend-layers", ascend_layers),
        ("ascend-networks", ascend_networks),
        ("ascend-sweeps", ascend_sweeps),
        ("dlir-sweeps", sweeps),
        ("dlir-generation", generation),
        ("sparse", sparse),
        ("ascend-synchronisation", synchronisation),
    )
}


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(PAGES))
    parser.add_argument("--networks", nargs="+", help="instead of the page's own")
    parser.add_argument("--no-save", action="store_true", help="print only")
    parser.add_argument("--as", dest="suffix", help="keep the page as TABLE-SUFFIX")
    parser.add_argument(
        "--targets", nargs="+", help="measure on these alone (dlir, gallery, unseen)"
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="take the rows that an earlier run has kept (cpu, dlir, gallery, sparse, "
        "swatop-sunway)",
    )
    parser.add_argument(
        "--threads", type=int, nargs="+", choices=cpu.THREADS, help="time on these alone (cpu)"
    )
    parser.add_argument(
        "--sample",
        type=int,
        help="so many shapes, the largest if it is negative (swatop, swatop-sunway)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        help="begin nothing new after these (swatop, swatop-sunway, dlir, gallery)",
    )
    arguments = parser.parse_args()
    paths = [name for name in arguments.tables if name not in PAGES and Path(name).exists()]
    arguments.tables = [name for name in arguments.tables if name not in paths]
    if paths:
        if arguments.tables != ["allocator"]:
            parser.error("allocator alone reads files")
        arguments.networks = [*(arguments.networks or ()), *paths]
    unknown = sorted(set(arguments.tables) - set(PAGES))
    if unknown:
        parser.error(f"no table {', '.join(unknown)}; there are {', '.join(PAGES)}")
    part = arguments.networks or arguments.targets or arguments.sample
    if part and not (arguments.suffix or arguments.no_save):
        parser.error("a part is no whole page: --as NAME keeps it beside, --no-save prints it only")
    for name in arguments.tables or PAGES:
        page = PAGES[name]
        about = surroundings()
        options = {
            key: value for key in page.options if (value := getattr(arguments, key)) is not None
        }
        found = page.tables(arguments.networks or page.networks, **options)
        print(text_of(page.title, found, about), flush=True)
        if not arguments.no_save:
            keep(
                f"{name}-{arguments.suffix}" if arguments.suffix else name, page.title, found, about
            )


if __name__ == "__main__":
    main()
