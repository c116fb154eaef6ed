"""The examples in docstrings of admin and doctor."""

import doctest
import importlib
import pkgutil

import pytest

import accoda.admin
import accoda.doctor

MODULES = [
    each.name
    for package in (accoda.admin, accoda.doctor)
    for each in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
    if not each.name.endswith((".redis", ".rediscare", ".postgres"))  # they need drivers, and have no examples
]


@pytest.mark.parametrize("module", MODULES)
def test_examples_are_true(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0
