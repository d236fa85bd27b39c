"""Folders of one process go with it, wherever ctrl-C falls: nothing of them stays behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, shutil, signal
from pathlib import Path

def struck(function):
    def strike(*arguments, **options):
        if STRIKES and "tilewright-" in str(arguments[0]):
            STRIKES.pop()
            if AFTER:
                function(*arguments, **options)
            os.kill(os.getpid(), signal.SIGINT)
        return function(*arguments, **options)
    return strike

signal.signal(signal.SIGINT, signal.default_int_handler)
STRIKES, AFTER = [1], {after}
Path.mkdir = struck(Path.mkdir) if "{step}" == "mkdir" else Path.mkdir
shutil.rmtree = struck(shutil.rmtree) if "{step}" == "rmtree" else shutil.rmtree
from tilewright.system.temporary import temporary_folder

try:
    with temporary_folder() as folder:
        (folder / "file").write_text("content")
        if "{step}" == "body":
            os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", ["mkdir", "body", "rmtree"])
def test_nothing_stays(tmp_path: Path, step: str, after: bool) -> None:
    """Ctrl-C before or after a folder is made, while it is used, before or after it is removed."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(step=step, after=after)],
        env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "interrupted\n", "")
    assert not list(tmp_path.iterdir())


def test_a_forked_child_leaves_its_parents_folders(tmp_path: Path) -> None:
    program = """
import os, sys
from tilewright.system.temporary import make_folder
folder = make_folder()
child = os.fork()
if not child:
    sys.exit(0)
os.waitpid(child, 0)
print(folder.is_dir())
"""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "True\n", "")
    assert not list(tmp_path.iterdir())
