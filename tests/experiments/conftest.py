"""Where the repository is, for tests that read what is committed."""

from pathlib import Path

import pytest

from tests.report.browser import browser, opened  # noqa: F401 - fixtures


@pytest.fixture(scope="session")
def root() -> Path:
    return Path(__file__).parents[2]
