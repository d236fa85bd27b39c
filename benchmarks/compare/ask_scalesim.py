"""SCALE-Sim's cycles of a product on its example; run by the Python that has SCALE-Sim.

    python ask_scalesim.py ROWS COLUMNS DEPTH

The configuration is that of its test ``golden_trace_user_ws``: 32 x 32 multipliers that keep
weights, three memories of 64 KB, 10 words a cycle each. Prints one line of JSON: cycles with
stalls (the report's "Total Cycles"), the same with what is loaded before the first, and seconds.
"""

from __future__ import annotations

import csv
import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from scalesim.scale_sim import scalesim

CONFIGURATION = """[general]
run_name = product
[architecture_presets]
ArrayHeight: 32
ArrayWidth: 32
IfmapSramSzkB: 64
FilterSramSzkB: 64
OfmapSramSzkB: 64
IfmapOffset: 0
FilterOffset: 10000000
OfmapOffset: 20000000
Bandwidth: 10
Dataflow: ws
MemoryBanks: 1
ReadRequestBuffer: 32
WriteRequestBuffer: 32
[layout]
IfmapCustomLayout: False
IfmapSRAMBankBandwidth: 10
IfmapSRAMBankNum: 10
IfmapSRAMBankPort: 2
FilterCustomLayout: False
FilterSRAMBankBandwidth: 10
FilterSRAMBankNum: 10
FilterSRAMBankPort: 2
[sparsity]
SparsitySupport: false
SparseRep: ellpack_block
OptimizedMapping: false
BlockSize: 8
RandomNumberGeneratorSeed: 40
[run_presets]
InterfaceBandwidth: USER
UseRamulatorTrace: False
"""


def main() -> None:
    """Simulate one product."""
    rows, columns, depth = (int(word) for word in sys.argv[1:])
    begin = time.perf_counter()
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "it.cfg").write_text(CONFIGURATION)
        (folder / "it.csv").write_text(
            f"Layer Name, M, N, K,\nproduct, {rows}, {columns}, {depth},\n"
        )
        ones = ", ".join(["1"] * 11)
        (folder / "layout.csv").write_text(f"Layer Name{', -' * 11}\nproduct, {ones},\n")
        simulation = scalesim(
            save_disk_space=True,
            verbose=False,
            config=str(folder / "it.cfg"),
            topology=str(folder / "it.csv"),
            layout=str(folder / "layout.csv"),
            input_type_gemm=True,
        )
        simulation.run_scale(top_path=name)
        report = next(folder.rglob("COMPUTE_REPORT.csv"))
        row = next(csv.DictReader(report.open(), skipinitialspace=True))
    print(
        json.dumps(
            {
                "cycles": float(row["Total Cycles"]),
                "with_prefetch": float(row["Total Cycles (incl. prefetch)"]),
                "stalls": float(row["Stall Cycles"]),
                "seconds": time.perf_counter() - begin,
            }
        )
    )


main()
