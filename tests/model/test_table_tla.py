"""docs/spec/Table.tla is the table that the code uses."""

from __future__ import annotations

from tests.model.table_tla import TARGET, module


def test_the_table_that_tlc_checks_is_the_table_of_the_code() -> None:
    assert TARGET.read_text(encoding="utf-8") == module(), (
        "run `python -m tests.model.table_tla`: the lifecycle table has changed"
    )
