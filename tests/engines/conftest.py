"""One fixture for every contract test: each engine of the registry in turn."""

from __future__ import annotations

import pytest
from registry import ENGINES


@pytest.fixture(params=list(ENGINES))
def engine(request):
    return ENGINES[request.param]
