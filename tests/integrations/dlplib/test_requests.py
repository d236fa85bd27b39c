"""What dlplib.c sends for every call, taken down by a process that stands in for the simulator."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.integrations.dlplib.library import write_library
from tilewright.integrations.dlplib.session import DESCRIPTORS, OPERATORS

COMPILER = shutil.which("gcc") or shutil.which("cc")

STAND_IN = """#!{python}
import socket
with open({log!r}, "w") as log, socket.socket(fileno=3).makefile("rwb") as stream:
    for line in stream:
        log.write(line.decode())
        if line.startswith(b"write"):
            log.write(stream.read(int(line.split()[2])).decode() + "\\n")
        stream.write(b"0 0 1234\\n")
        stream.flush()
"""

WANTED = """\
open somewhere
malloc 77
free 1234
write 99 3
abc
copy 1 2 3
cycles
create tensor
create filter
create convolution
create pooling
create lrn
create activation
create batch_norm
set tensor 1 1 1 -3 21 22 23 24
set filter 2 0 2 20 21 22 23 24
set convolution 3 21 22 23 24 25 26 27 3
set pooling 4 1 21 22 23 24 25 26 1 0
set lrn 5 5 0.5 0.75 2
set activation 6 2
set batch_norm 7 1
run convolution_forward 3 X W Y B
run convolution_forward 3 X W Y 0 0
run convolution_backward_data 3 11 1011 12 1012 13 1013
run convolution_backward_filter 3 11 1011 12 1012 13 1013
run bias_backward 11 1011 12 1012
run pooling_forward 4 11 1011 12 1012
run pooling_backward 4 11 1011 12 1012 13 1013 14 1014
run lrn_forward 5 11 1011 12 1012
run lrn_backward 5 11 1011 12 1012 13 1013
run activation_forward 6 11 1011 12 1012
run activation_backward 6 11 1011 12 1012 13 1013
run fully_connected_forward X W Y B 1
run fully_connected_backward_data 11 1011 12 1012 13 1013
run fully_connected_backward_filter 11 1011 12 1012 13 1013
run batch_norm_forward 11 1011 12 1012 13 1013 14 1014 15 1015 16 1016
run batch_norm_backward 7 11 1011 12 1012 13 1013 14 1014 15 1015 16 1016 17 1017 18 1018
run lstm_forward 11 1011 12 1012 13 1013 14 1014 15 1015 16 1016 17 1017 18 1018 19 1019
run lstm_backward 11 1011 12 1012 13 1013 14 1014 15 1015
run matrix_multiply 11 1011 12 1012 13 1013 1 0
run vector 2 11 1011 12 1012 13 1013
run softmax_forward 11 1011 12 1012
concat 2 11 1011 12 1012 13 1013
run reshape 11 1011 12 1012
run transform 11 1011 12 1012
destroy tensor 1
destroy filter 2
destroy convolution 3
destroy pooling 4
destroy lrn 5
destroy activation 6
destroy batch_norm 7
close
"""
"""The bias goes behind the result, as the call in Python has it."""

OPERANDS = {"X": "11 1011", "W": "12 1012", "B": "13 1013", "Y": "14 1014"}


@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
def test_every_call_sends_what_the_session_takes(tmp_path: Path) -> None:
    log, stand_in = tmp_path / "log", tmp_path / "stand-in"
    stand_in.write_text(STAND_IN.format(python=sys.executable, log=str(log)))
    stand_in.chmod(0o755)
    write_library(tmp_path, python=str(stand_in))
    program = tmp_path / "requests"
    source = Path(__file__).parent / "requests.c"
    command = [str(COMPILER), "-Wall", "-Wextra", "-Werror", str(source), f"-I{tmp_path}"]
    linking = [f"-L{tmp_path}", "-ldlplib", f"-Wl,-rpath,{tmp_path}", "-o", str(program)]
    subprocess.run([*command, *linking], check=True)
    ran = subprocess.run([str(program)], check=False, timeout=60)
    assert ran.returncode == 0
    sent = log.read_text()
    wanted = re.sub(r"\b[XWYB]\b", lambda name: OPERANDS[name[0]], WANTED)
    assert sent == wanted
    words = [line.split() for line in sent.splitlines()]
    # Every operator is called, with as many numbers as its signature has.
    called = {line[1]: len(line) - 2 for line in words if line[0] == "run"}
    assert called.keys() == OPERATORS.keys()
    for name, count in called.items():
        assert count == sum(2 if letter in "o?" else 1 for letter in OPERATORS[name].values()), name
    assert {line[1] for line in words if line[0] == "create"} == DESCRIPTORS.keys()
