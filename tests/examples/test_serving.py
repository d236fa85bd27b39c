"""The example of a service: requests of many callers at once, none lost and none mixed up."""

from __future__ import annotations

import http.client
import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from examples.serving.service import Pool, server

import tilewright

REQUESTS = 1000
CALLERS = 16


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serving") / "encoder"
    shapes = {"tokens": ("batch:1..8", "sequence:1..64")}
    tilewright.compile("examples/dynamic/encoder.onnx", "cpu", shapes=shapes, directory=folder)
    return folder


@pytest.fixture(scope="module")
def port(package: Path) -> Iterator[int]:
    pool = Pool(str(package), workers=2, most_rows=8, wait=0.002)
    served = server(pool, 0)
    thread = Thread(target=served.serve_forever)
    thread.start()
    yield int(served.server_address[1])
    served.shutdown()
    served.server_close()
    thread.join()
    pool.close()


def asked(port: int, body: bytes, path: str = "/run") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def npz(**arrays: Any) -> bytes:
    body = io.BytesIO()
    np.savez(body, allow_pickle=False, **arrays)
    return body.getvalue()


def test_a_thousand_requests(package: Path, port: int) -> None:
    random = np.random.default_rng(0)
    sizes = [(int(random.integers(1, 4)), int(random.choice([3, 17, 40]))) for _ in range(REQUESTS)]
    requests = [random.integers(0, 32, size) for size in sizes]

    def call(tokens: np.ndarray) -> tuple[int, bytes]:
        return asked(port, npz(tokens=tokens))

    with ThreadPoolExecutor(CALLERS) as callers:
        answers = list(callers.map(call, requests))
    refused = {body for status, body in answers if status != 200}
    assert not refused
    alone = tilewright.Executable.load(package)
    for tokens, (_, body) in zip(requests, answers, strict=True):
        with np.load(io.BytesIO(body)) as outputs:
            for name, array in alone.run({"tokens": tokens}).items():
                np.testing.assert_allclose(outputs[name], array, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("body", "path", "status", "words"),
    [
        (npz(tokens=np.zeros((1, 65), np.int64)), "/run", 400, "outside"),
        (npz(tokens=np.zeros((9, 5), np.int64)), "/run", 400, "outside"),
        (npz(others=np.zeros((1, 5), np.int64)), "/run", 400, "others"),
        (npz(tokens=np.array(3)), "/run", 400, "batch"),
        (b"no archive", "/run", 400, ""),
        (b"", "/run", 413, ""),
        (npz(tokens=np.zeros((1, 5), np.int64)), "/elsewhere", 404, "/run"),
    ],
)
def test_what_is_wrong_is_told(port: int, body: bytes, path: str, status: int, words: str) -> None:
    got, text = asked(port, body, path)
    assert got == status
    assert words in json.loads(text)["error"]
    # The next request is answered.
    assert asked(port, npz(tokens=np.zeros((1, 5), np.int64)))[0] == 200
