"""All tests: generated examples are the same in every run; no cache but the tests' own is used.

Look for new examples with ``pytest --hypothesis-profile=explore``. The C of packages is built as
one file, which takes half the time, and without optimisation, which takes a tenth: what is tested
is meaning. It is optimised for the tests in ``OPTIMISED_FOR``, whose subject is the C, unless
``--quick`` is given. Tests with the fixture ``built_apart`` build it as users do, and those of
whole networks on Sunway's shim with ``built_in_full``: others build for that without optimisation.
"""

import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer.testing
from hypothesis import settings

from tests import described_processors
from tests.build_cache import BuildCache
from tests.plan_cache import KnownPlans
from tests.quick_build import build_libraries_as_one
from tilewright.codegen.c import compiler, libraries
from tilewright.codegen.host import library
from tilewright.planning import Planner
from tilewright.targets.cpu import calibrate, runner
from tilewright.targets.sunway import runner as sunway_runner

CALIBRATION = {"TURNS": calibrate.TURNS, "POINTS": calibrate.POINTS}
"""What a calibration measures where no test asks for less."""

OPTIMISED = sunway_runner.OPTIMISED

OPTIMISED_FOR = [Path(__file__).parent / name for name in ("targets/cpu", "end_to_end")]
"""Elsewhere the subject is what accelerators' programs mean, and the C is that of their host."""

SLOW_CASES = 2
"""Of a test's slow cases, those that the continuous integration runs."""

settings.register_profile("repeatable", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="build all C without optimisation")
    parser.addoption("--bless", action="store_true", help="rewrite goldens with what is made now")
    parser.addoption("--minimalloc", metavar="FOLDER", help="MiniMalloc's problems, as CSV")
    parser.addoption("--swdnn", metavar="FILE", help="swDNN's results: batch Ni No Ro GFLOPS")
    parser.addoption(
        "--as-cpu",
        choices=[*described_processors.CPUINFO],
        help="plan for this processor where a test names none (tests/described_processors.py)",
    )


def pytest_configure(config: pytest.Config) -> None:
    name = config.getoption("--as-cpu")
    if name is not None:
        described_processors.take_for(name)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before fixtures, which may build packages: is their C optimised?"""
    is_subject = any(item.path.is_relative_to(folder) for folder in OPTIMISED_FOR)
    optimise = is_subject and not item.config.getoption("--quick")
    build_libraries_as_one(optimise)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark cases of tests that have many.

    Of a test with the mark ``few(count)``, ``count`` cases, spread evenly, stay fast. Of a test's
    slow cases, ``SLOW_CASES``, or as many as its mark ``slow_cases(count)`` says, stay with ``make
    test-slow``; the others are exhaustive."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in tests.values():
        fast = [item for item in cases if not item.get_closest_marker("slow")]
        for item in _all_but(fast, _count(fast, "few", len(fast))):
            item.add_marker("slow")
        slow = [item for item in cases if item.get_closest_marker("slow")]
        for item in _all_but(slow, _count(slow, "slow_cases", SLOW_CASES)):
            item.add_marker("exhaustive")


def _count(cases: list[pytest.Item], mark: str, default: int) -> int:
    found = cases[0].get_closest_marker(mark) if cases else None
    return found.args[0] if found else default


def _all_but(cases: list[pytest.Item], count: int) -> list[pytest.Item]:
    """The cases without ``count`` of them, which are spread evenly."""
    kept = {len(cases) * i // count for i in range(min(count, len(cases)))}
    return [item for i, item in enumerate(cases) if i not in kept]


gc.disable()  # All that is made until tests are collected stays: see below.


def pytest_collection_finish() -> None:
    # Modules and tests stay to the end: looking at them again and again took a tenth of the time,
    # and a quarter of what collecting the tests takes.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The user's cache directory and key, for the tests and the processes that they start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("TILEWRIGHT_KEY", str(tmp_path_factory.mktemp("key") / "key"))
        for name in ("", "_BYTES", "_ENTRIES"):
            patch.delenv(f"TILEWRIGHT_CACHE{name}", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def commands() -> Iterator[None]:
    """The command line is put together once, as in a process that a user starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", cache(typer.testing._get_command))
        yield


def shared_folder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, name: str
) -> Path:
    """A folder that lives as long as this run of the tests, and that its workers share."""
    folder = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        folder = folder.parent
    folder /= name
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session", autouse=True)
def plans(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Equal kernels are planned once."""
    known = KnownPlans(shared_folder(request, tmp_path_factory, "plans"))
    with Planner.sharing(known):
        yield


@pytest.fixture
def planned_anew() -> Iterator[None]:
    """Every compile plans, whatever plans others have made."""
    with Planner.sharing(None):
        yield


@pytest.fixture
def calibrated_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibrations measure all that they do for users."""
    for name, value in CALIBRATION.items():
        monkeypatch.setattr(calibrate, name, value)


@pytest.fixture(scope="session", autouse=True)
def builds(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Equal C is compiled once, and processors are calibrated quickly.

    A calibration has all of its parts, of fewer tiles and in fewer turns: but for tests with the
    fixture ``calibrated_in_full``, none looks at its figures.
    """
    folder = shared_folder(request, tmp_path_factory, "objects")
    with pytest.MonkeyPatch.context() as patch:
        for module in (compiler, sunway_runner):
            patch.setattr(module, "run_compiler", BuildCache(folder, module.run_compiler))
        # Most of a layer is intrinsics, which take three times as long to optimise as to run.
        patch.setattr(sunway_runner, "OPTIMISED", ("-O0", *OPTIMISED[1:]))
        patch.setattr(calibrate, "TURNS", 5)
        patch.setattr(calibrate, "POINTS", (1, 4, 6, 8, 12))
        described = request.config.getoption("--as-cpu")
        if described is not None and not described_processors.runs_here(described):
            patch.setattr(runner, "refuse_foreign", described_processors.refuse_foreign)
            run = described_processors.skipping(compiler.run_compiler)
            patch.setattr(compiler, "run_compiler", run)
        yield


@pytest.fixture
def built_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages are built as they are for users, also with ``--quick``."""
    _build_for_users(monkeypatch)
    monkeypatch.setattr(sunway_runner, "OPTIMISED", OPTIMISED)


@pytest.fixture
def built_apart(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Each file of a package is compiled on its own and in full, as it is for users."""
    if not request.config.getoption("--quick"):
        _build_for_users(monkeypatch)


def _build_for_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "build_library", compiler.build_library)
    monkeypatch.setattr(libraries, "compiler_version", compiler.compiler_version)
