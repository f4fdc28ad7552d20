"""Settings that hold for every test."""

import gc
import os
from collections.abc import Generator, Iterator
from shutil import rmtree
from tempfile import mkdtemp
from zlib import crc32

import pytest
from hypothesis import settings

MANY = 2  # cases of a test that `make test` runs: make test-all runs them all

# What runs remember stays with the tests, and nothing comes from the user's own runs.
CACHE = os.environ["DESCANT_CACHE"] = mkdtemp(prefix="descant-tests-")

# The same few examples on every run, or with DESCANT_EXAMPLES=new many, and other ones each time: they find what
# those miss, and are printed so that they can be tried again. No test fails because the machine was busy.
settings.register_profile("same", max_examples=10, derandomize=True, deadline=None)
settings.register_profile("new", derandomize=False, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("DESCANT_EXAMPLES", "same"))


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tests run side by side: one thread each. It also keeps sums in one order."""
    import torch  # here, since the process that hands out the tests can do without

    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """Nobody cuts the power while tests run: tests/experiment/powercut.py pretends that somebody does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: os.fstat(descriptor) and None)  # an open file, at least
        yield


def pytest_unconfigure() -> None:
    rmtree(CACHE, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests stay until the end: spare the garbage collector looking through them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let `MANY` cases of a test be quick, or n with the mark `few(n)`, and the others slow: the same always."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not item.get_closest_marker("slow"):
            tests.setdefault(item.nodeid.split("[")[0], []).append(item)
    for cases in tests.values():
        mark = cases[0].get_closest_marker("few")
        quick = mark.args[0] if mark else MANY
        for item in sorted(cases, key=lambda item: crc32(item.nodeid.encode()))[quick:]:
            item.add_marker(pytest.mark.slow)
