import doctest
import importlib
import pkgutil

import pytest

import streamshed.network
import streamshed.policies

MODULES = sorted(
    found.name
    for package in (streamshed.network, streamshed.policies)
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
)


@pytest.mark.parametrize(
    "name", [*MODULES, "streamshed.cli_network", "streamshed.cli_run", "streamshed.quality.history_log"]
)
def test_examples_in_docstrings(name):
    assert doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS).failed == 0
