import numpy as np
import pytest

from tilewright.integrations.dlplib import server
from tilewright.integrations.dlplib.session import DESCRIPTORS, OPERATORS, STATUS, Session


def opened(target: str = "cambricon-x") -> Session:
    session = Session()
    assert session.answer(f"open {target}\n").encode() == b"0 0 1\n"
    return session


def test_a_layer_by_requests() -> None:
    session = opened()
    for kind, dims in (("tensor", "1 2 4 4"), ("filter", "3 2 3 3"), ("tensor", "1 3 2 2")):
        number = session.answer(f"create {kind}\n").text
        assert session.answer(f"set {kind} {number} 0 1 10 {dims}\n").status == 0
    assert session.answer("get filter 2\n").text == "0 1 10 3 2 3 3 108"
    random = np.random.default_rng(0)
    x, w = (
        random.integers(-900, 900, shape).astype(np.int16) for shape in ((2, 4, 4), (3, 2, 3, 3))
    )
    addresses = [session.answer(f"malloc {size}\n").text for size in (64, 108, 24)]
    assert session.answer(f"write {addresses[0]} 64\n", x.tobytes()).status == 0
    assert session.answer(f"write {addresses[1]} 108\n", w.tobytes()).status == 0
    assert session.answer("create convolution\n").text == "4"
    assert session.answer("set convolution 4 1 1 0 0 1 1 1 0\n").status == 0
    a, b, c = addresses
    ran = session.answer(f"run convolution_forward 4 1 {a} 2 {b} 3 {c} 0 0\n")
    assert ran.status == 0 and int(ran.text) > 0
    found = np.frombuffer(session.answer(f"read {c} 24\n").data, np.int16).reshape(3, 2, 2)
    for i, j in np.ndindex(2, 2):
        seen = x[:, i : i + 3, j : j + 3].astype(np.int64)
        sums = (w.astype(np.int64) * seen).sum((1, 2, 3))
        assert np.array_equal(found[:, i, j], (sums + 512) >> 10)
    assert session.answer("cycles\n").text == ran.text


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("", "dlp-parameter"),
        ("dance\n", "dlp-parameter"),
        ("open cambricon-x\n", "dlp-handle"),
        ("create sofa\n", "dlp-parameter"),
        ("malloc\n", "dlp-parameter"),
        ("malloc many\n", "dlp-parameter"),
        ("malloc 99999999999999\n", "dlp-capacity"),
        ("malloc 99999999999999999999999\n", "dlp-parameter"),
        ("free 4096\n", "dlp-memory"),
        ("read 4096 1\n", "dlp-memory"),
        ("get tensor 7\n", "dlp-descriptor"),
        ("get filter 1\n", "dlp-descriptor"),
        ("get tensor 1\n", "dlp-descriptor"),
        ("set tensor 1 0 1 10 1 2 3\n", "dlp-parameter"),
        ("set tensor 1 7 1 10 1 2 3 4\n", "dlp-parameter"),
        ("set tensor 1 0 1 99 1 2 3 4\n", "dlp-type"),
        ("set lrn 2 5 x 1 1\n", "dlp-parameter"),
        ("set lrn 2 5 1\n", "dlp-parameter"),
        ("run tango 1\n", "dlp-parameter"),
        ("run reshape 1 0\n", "dlp-parameter"),
        ("run reshape 2 0 1 0\n", "dlp-descriptor"),
        ("concat 1\n", "dlp-parameter"),
    ],
)
def test_bad_requests_get_a_status(line: str, code: str) -> None:
    session = opened()
    assert (session.answer("create tensor\n").text, session.answer("create lrn\n").text) == (
        "1",
        "2",
    )
    found = session.answer(line)
    assert found.status == STATUS[code] and code in found.text and b"\n" not in found.data


def test_without_a_handle() -> None:
    session = Session()
    assert session.answer("malloc 4\n").status == STATUS["dlp-handle"]
    assert session.answer("open nowhere\n").status == 9
    assert session.answer("create tensor\n").status == STATUS["dlp-handle"]


def test_random_requests_never_crash() -> None:
    random = np.random.default_rng(1)
    session = opened()
    words = [*DESCRIPTORS, *OPERATORS, "create", "set", "get", "destroy", "malloc", "free", "read"]
    words += ["copy", "run", "concat", "write", "0", "1", "2", "3", "-1", "64", "4096", "1e9", "é"]
    for _ in range(3000):
        line = " ".join(random.choice(words, random.integers(0, 9)))
        assert 0 <= session.answer(line).status <= 9


def test_what_follows_a_request_is_bounded() -> None:
    following = server._following  # pyright: ignore[reportPrivateUsage]
    assert following("read 1 5\n") == 0 and following("write 4096 5\n") == 5
    for bad in ("write 4096\n", "write 4096 -5\n", "write 4096 99999999999\n", "write 1 5 5\n"):
        assert following(bad) is None
