"""``main`` of a package: files into the arenas, the target's own statements, files out of them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tilewright.codegen.c.source import Writer, comment, string
from tilewright.codegen.host.ports import Port
from tilewright.codegen.program.interface import WEIGHTS_FILE
from tilewright.graph.placement import WEIGHTS

FILES = (Path(__file__).parent / "files.h").read_text()
"""``files.h``: what main reads and writes files with, and takes memory from."""


def whole_file(verb: str, word: str, port: Port) -> str:
    """C that reads or writes a file of all elements of a port, row-major."""
    return f"{verb}_file({word}, {port.place}, {port.bytes});"


@dataclass(frozen=True)
class Main:
    """A program that is called with names of files: weights, inputs and outputs."""

    words: Sequence[str]
    """The words before the inputs' files, that of the weights among them."""
    inputs: Sequence[Port]
    outputs: Sequence[Port]
    arenas: Mapping[str, int]
    """Bytes of each arena, in the order in which they are allocated."""
    last: str = ""
    """An optional word after the outputs' files."""
    transfer: Callable[[str, str, Port], str] = whole_file

    @property
    def listed(self) -> list[str]:
        """The program's words, by what they name."""
        names = [port.name for port in (*self.inputs, *self.outputs)]
        return [*self.words, *names, *([f"[{self.last}]"] if self.last else [])]

    @property
    def usage(self) -> str:
        """The words, for a comment."""
        return " ".join(map(comment, self.listed))

    @property
    def declaration(self) -> str:
        """C of the arenas' pointers."""
        return f"static void *{', *'.join(self.arenas)};"

    def place(self, word: str) -> str:
        """C of a word's place."""
        return f"words[{self.listed.index(word) + 1}]"

    @contextmanager
    def write(self, writer: Writer, *first: str) -> Generator[None]:
        """Write the function around what is written in the meantime; statements ``first`` come
        before all that reads files."""
        line, most = writer.line, len(self.listed) + 1
        with writer.block("int main(int count, char **words)"):
            enough = f" && count != {most - 1}" if self.last else ""
            with writer.block(f"if (count != {most}{enough})"):
                line(f'fprintf(stderr, "%s %s\\n", words[0], {string(" ".join(self.listed))});')
                line("return 2;")
            for statement in first:
                line(statement)
            line("/* Memory. */")
            for arena, size in self.arenas.items():
                line(f"{arena} = memory({size});")
            line("/* Parameters and input. */")
            line(f"read_file({self.place(WEIGHTS_FILE)}, {WEIGHTS}, {self.arenas[WEIGHTS]});")
            begin = 1 + len(self.words)
            self._ports(writer, "read", begin, self.inputs)
            yield
            line("/* Output. */")
            self._ports(writer, "write", begin + len(self.inputs), self.outputs)
            for arena in reversed(list(self.arenas)):
                line(f"free({arena});")
            line("return 0;")

    def _ports(self, writer: Writer, verb: str, begin: int, ports: Sequence[Port]) -> None:
        for number, port in enumerate(ports, begin):
            writer.line(f"/* {comment(port.name)}: {port.dtype}{list(port.shape)} */")
            writer.line(self.transfer(verb, f"words[{number}]", port))
