import doctest
import importlib
import pkgutil

import pytest

import streamshed.sketch

MODULES = sorted(found.name for found in pkgutil.iter_modules(streamshed.sketch.__path__, "streamshed.sketch."))


@pytest.mark.parametrize("name", [*MODULES, "streamshed.sim.operator", "streamshed.sim.operator_kernel"])
def test_examples_in_docstrings(name):
    assert doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS).failed == 0
