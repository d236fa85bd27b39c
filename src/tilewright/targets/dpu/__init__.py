"""The FPGA CNN core of DNNVM (AMD's DPUCZDX8G), simulated: words, banks, tokens.

target.py has the targets that networks are compiled for (README.md). A program of words:

    core = core_named("dpu-b4096-isa0")
    operations = read_program(core, data)
    assert check_program(core, operations).race_free
    run(core, operations, {0: parameters, 2: image, 3: result})
"""

from tilewright.targets.dpu.core import CORES, Core, core_named
from tilewright.targets.dpu.execute import run
from tilewright.targets.dpu.operations import Operation, read_program
from tilewright.targets.dpu.text import assemble, disassemble, manual
from tilewright.targets.dpu.timing import Report, check_program, time_program

__all__ = [
    "CORES",
    "Core",
    "Operation",
    "Report",
    "assemble",
    "check_program",
    "core_named",
    "disassemble",
    "manual",
    "read_program",
    "run",
    "time_program",
]
