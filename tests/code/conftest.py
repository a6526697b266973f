import sys

import pytest


@pytest.fixture(autouse=True)
def modules_as_before(monkeypatch):
    before = dict(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in set(sys.modules) - set(before):
        del sys.modules[name]
