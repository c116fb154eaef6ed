"""The examples in docstrings of operations and the doctor."""

import doctest
import importlib
import pkgutil

import pytest

import accoda.operations
import accoda.operations.doctor

MODULES = [
    each.name
    for package in (accoda.operations, accoda.operations.doctor)
    for each in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
    if not each.name.endswith((".redis", ".postgres"))  # they need drivers, and have no examples
]


@pytest.mark.parametrize("module", MODULES)
def test_examples_are_true(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0
