"""Pages that are made from the code say what the code says."""

from __future__ import annotations

import pytest

from docs.generate import HERE, PAGES, rendered


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    assert (HERE / name).read_text("utf-8") == rendered(name), "make docs"
