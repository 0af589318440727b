"""The syntax trees of our own files, for the tests that read them."""

from __future__ import annotations

import ast
import gc


def parsed(source: str) -> ast.Module:
    """`ast.parse`, and nothing in between.

    CPython 3.11 counts the depth of all trees under construction in one place (python/cpython
    issue 106905). What a collection runs meanwhile can leave it a count that is not this tree's.
    """
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        gc.enable()
