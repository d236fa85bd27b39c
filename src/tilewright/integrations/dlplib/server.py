"""A server process: answers a C program's requests over a socket (``... server FD``)."""

from __future__ import annotations

import os
import socket
import sys

from tilewright.integrations.dlplib.memory import DEFAULT_CAPACITY
from tilewright.integrations.dlplib.session import STATUS, Answer, Session

LONGEST_LINE = 1 << 16
"""Bytes of a request without what follows it."""


def serve(connection: socket.socket) -> None:
    """Answer requests until the other side hangs up, or sends what is no request."""
    session = Session()
    with connection, connection.makefile("rwb") as stream:
        while line := stream.readline(LONGEST_LINE):
            text = line.decode("ascii", "replace")
            size = _following(text)
            if not text.endswith("\n") or size is None:
                stream.write(Answer(STATUS["dlp-parameter"], "this is no request").encode())
                return
            data = stream.read(size)
            if len(data) < size:
                return
            stream.write(session.answer(text, data).encode())
            stream.flush()


def _following(text: str) -> int | None:
    """Bytes that follow a request; None where it does not say, or says too many."""
    words = text.split()
    if not words or words[0] != "write":
        return 0
    if len(words) != 3 or not words[2].isdecimal() or len(words[2]) > 12:
        return None
    size = int(words[2])
    return size if size <= DEFAULT_CAPACITY else None


def main() -> None:
    """Serve the socket whose number the command line gives; what is printed goes to stderr."""
    number = int(sys.argv[1])
    os.dup2(2, 1)
    serve(socket.socket(fileno=number))


if __name__ == "__main__":
    main()
