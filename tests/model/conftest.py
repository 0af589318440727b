"""What the tests of the model share."""

from __future__ import annotations

import pytest

from tests.model.checker import Report, check
from tests.model.session_model import session
from tests.model.session_world import World


@pytest.fixture(scope="session")
def explored() -> Report[World]:
    """Our lifecycle, explored once for all tests that look at the whole of it."""
    return check(session())
