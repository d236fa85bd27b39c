"""Time the cpu target against ONNX Runtime and OpenVINO, batch 1, float32 and int8 (QDQ).

    python -m benchmarks.cpu resnet50 --threads 1 2 --rounds 40 --exact-convolution

prints; `python -m benchmarks cpu` keeps a table of all networks, with memory.

All take turns, so that what else the machine does meets all alike, each in a process of its own
whose threads are at rest while another's turn is timed.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import tempfile
from pathlib import Path

import numpy as np

from benchmarks import models
from benchmarks.cpu.memory import bound, ours
from benchmarks.cpu.timing import Times, build, compare
from benchmarks.measuring import alone
from benchmarks.report import processor
from tilewright.codegen.c.compiler import compiler_version
from tilewright.targets.cpu.processors import this_processor

NETWORKS = (
    *("lenet5", "squeezenet", "shufflenet", "mobilenet_v2", "resnet18", "resnet50", "googlenet"),
    *("inception_v2", "densenet121", "alexnet", "zfnet", "vgg16", "vgg19", "bert_base", "vit_b16"),
    *("resnet50-int8", "mobilenet_v2-int8"),
)


def head(row: Times) -> str:
    """The table's head, with the peers that a row has."""
    columns = ["network", "threads", "Tilewright ms", "its best"]
    columns += [*(f"{name} ms" for name in row.theirs), "time of the faster", "speed-up"]
    columns += ["max rel. difference"]
    return "| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|"


def line(name: str, row: Times) -> str:
    """One network's row."""
    peers = " | ".join(f"{value:.2f}" for value in row.theirs.values())
    return (
        f"| {name} | {row.threads} | {row.ours:.2f} | {row.ours_best:.2f} | {peers} "
        f"| {row.ratio:.2f} | {1 / row.ratio:.2f} | {row.error:.1e} |"
    )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="of all")
    parser.add_argument("--models", type=Path, help="folder that keeps the models")
    parser.add_argument(
        "--exact-convolution", action="store_true", help="without Winograd and pieces"
    )
    parser.add_argument("--numbers", help="of ours, such as bfloat16; the peers stay in float32")
    parser.add_argument("--memory", action="store_true", help="tell what ours takes, too")
    arguments = parser.parse_args()
    print(
        f"# The cpu target against its peers\n\nBatch 1, float32, medians of "
        f"{arguments.rounds} turns: processor time on one thread, wall time on several. "
        f"{processor()}, {this_processor().lanes} lanes; {compiler_version()}; numpy "
        f"{np.__version__}, Python {platform.python_version()}.\n"
    )
    ratios: dict[int, list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in arguments.networks:
            path = models.save(name, arguments.models or Path(scratch))
            folder = Path(scratch) / name
            exact = arguments.exact_convolution
            options = {"exact_convolution": exact, "numbers": arguments.numbers}
            seconds, c_seconds = build(path, folder, **options)
            for threads in arguments.threads:
                row = compare(path, folder, threads, arguments.rounds)
                if not ratios:
                    print("\n".join([*row.remarks, head(row)]))
                ratios.setdefault(threads, []).append(row.ratio)
                print(line(name, row), flush=True)
            print(f"compiled in {seconds:.1f} s, {c_seconds:.1f} s of them by the C compiler")
            if arguments.memory:
                sizes, least = alone(1, ours, path, folder), bound(path)
                arenas = sizes["weights"] + sizes["workspace"]
                print(
                    f"weights {sizes['weights']:,} and workspace {sizes['workspace']:,} bytes: "
                    f"{arenas / least:.2f} of the bound; the process grew by {sizes['growth']:,}"
                )
    for threads, found in ratios.items():
        mean = 1 / statistics.geometric_mean(found)
        print(f"\nGeometric mean of the speed-ups on {threads} threads: {mean:.2f}")


if __name__ == "__main__":
    main()
