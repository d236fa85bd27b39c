"""``pytest tests/tile --bless`` rewrites the golden files' expected parts."""

import contextlib

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    with contextlib.suppress(ValueError):
        parser.addoption("--bless", action="store_true", help="rewrite the golden files")
