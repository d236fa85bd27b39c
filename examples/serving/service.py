"""A service that runs a package for many callers at once, and joins what they ask into batches.

    tilewright compile examples/dynamic/encoder.onnx -o encoder \\
        --shape tokens=batch:1..8,sequence:1..64
    python examples/serving/service.py encoder --port 8000 --workers 2

``POST /run`` takes an ``.npz`` of the model's inputs, whose first axes are one caller's batch (of
one, say), and gives an ``.npz`` of the outputs. Nothing but NumPy and Tilewright is needed.
"""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Mapping
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, Full, Queue
from threading import Thread
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import tilewright

Arrays = Mapping[str, NDArray[Any]]

MOST_WAITING = 256
"""Requests that wait at most; further ones are refused (503) at once."""

MOST_BYTES = 64 << 20
"""Bytes of a request."""


class Asked(NamedTuple):
    """A request: its arrays, the number of rows in each, and the promise of its outputs."""

    inputs: Arrays
    rows: int
    answer: Future[dict[str, NDArray[Any]]]

    @property
    def form(self) -> object:
        """What requests of one batch have in common: names, shapes of a row, element types."""
        return sorted((name, a.shape[1:], a.dtype.str) for name, a in self.inputs.items())


class Pool:
    """Workers with an executable each, which take requests from one queue.

    An executable has one workspace, so a worker is a thread with an executable of its own. The C
    runs without Python's lock, so workers run side by side.
    """

    def __init__(self, package: str, *, workers: int, most_rows: int, wait: float) -> None:
        self.most_rows, self.wait = most_rows, wait
        self._queue: Queue[Asked | None] = Queue(MOST_WAITING)
        self._threads = [
            Thread(target=self._work, args=(tilewright.Executable.load(package),), daemon=True)
            for _ in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, inputs: Arrays) -> Future[dict[str, NDArray[Any]]]:
        """The outputs for inputs, once a worker has them; raises ``Full`` where too many wait."""
        rows = {array.shape[0] if array.ndim else 0 for array in inputs.values()}
        if len(rows) != 1 or 0 in rows:
            raise ValueError("the first axis of all inputs is the batch, of one row at least")
        asked = Asked(inputs, rows.pop(), Future())
        self._queue.put_nowait(asked)
        return asked.answer

    def close(self) -> None:
        """End once all that wait are answered."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self, executable: tilewright.Executable) -> None:
        held: Asked | None = None
        while True:
            first = held if held is not None else self._queue.get()
            held = None
            if first is None:
                return
            batch, rows, end = [first], first.rows, monotonic() + self.wait
            while rows < self.most_rows:
                try:
                    following = self._queue.get(timeout=max(0.0, end - monotonic()))
                except Empty:
                    break
                if following is None:
                    self._queue.put(None)
                    break
                if following.form != first.form or rows + following.rows > self.most_rows:
                    held = following
                    break
                batch.append(following)
                rows += following.rows
            _run(executable, batch)


def _run(executable: tilewright.Executable, batch: list[Asked]) -> None:
    """Run requests as one batch, and give each its rows."""
    names = batch[0].inputs
    try:
        outputs = executable.run(
            {name: np.concatenate([asked.inputs[name] for asked in batch]) for name in names}
        )
    except Exception as error:
        for asked in batch:
            asked.answer.set_exception(error)
        return
    start = 0
    for asked in batch:
        end = start + asked.rows
        asked.answer.set_result({name: array[start:end] for name, array in outputs.items()})
        start = end


def server(pool: Pool, port: int, address: str = "127.0.0.1") -> ThreadingHTTPServer:
    """A server of the pool; port 0 takes a free one (``server_address``)."""

    class Handler(BaseHTTPRequestHandler):
        """Answers ``POST /run``."""

        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            """Run one request."""
            size = int(self.headers.get("Content-Length") or 0)
            if self.path != "/run" or not 0 < size <= MOST_BYTES:
                self.close_connection = True
                self._tell(404 if self.path != "/run" else 413, "POST an .npz to /run")
                return
            try:
                with np.load(io.BytesIO(self.rfile.read(size)), allow_pickle=False) as file:
                    inputs = {name: file[name] for name in file}
                outputs = pool.submit(inputs).result()
            except Full:
                self._tell(503, "too many requests wait")
            except Exception as error:
                self._tell(400, str(error))
            else:
                body = io.BytesIO()
                np.savez(body, allow_pickle=False, **outputs)
                self._send(200, "application/octet-stream", body.getvalue())

        def _tell(self, status: int, text: str) -> None:
            self._send(status, "application/json", json.dumps({"error": text}).encode())

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing of requests that are answered."""

    class Server(ThreadingHTTPServer):
        """A server with room for many connections that begin at once."""

        request_queue_size = 128
        daemon_threads = True

    return Server((address, port), Handler)


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="Serve a package over HTTP.")
    parser.add_argument("package")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--workers", type=int, default=2, help="one for each core, say")
    parser.add_argument("--batch", type=int, default=8, help="most rows of one run")
    parser.add_argument("--wait", type=float, default=0.002, help="seconds to wait for more rows")
    options = parser.parse_args()
    pool = Pool(
        options.package, workers=options.workers, most_rows=options.batch, wait=options.wait
    )
    served = server(pool, options.port)
    print(f"http://127.0.0.1:{served.server_address[1]}/run", flush=True)
    try:
        served.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        served.server_close()
        pool.close()


if __name__ == "__main__":
    main()
