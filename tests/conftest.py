"""All tests: generated examples are the same in every run; no cache but the tests' own is used.

Look for new examples with ``pytest --hypothesis-profile=explore``.
"""

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile("repeatable")


@pytest.fixture(scope="session", autouse=True)
def cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory):
    """The user's cache directory, for the tests and the processes that they start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        for name in ("", "_BYTES", "_ENTRIES"):
            patch.delenv(f"TILEWRIGHT_CACHE{name}", raising=False)
        yield
