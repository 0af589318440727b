"""Pages that are made from the code say what the code says, and links lead from one to the next."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.generate import HERE, PAGES, rendered

REPOSITORY = HERE.parent
README = REPOSITORY / "README.md"
#: What comes of running something: a page that explains it links to it.
TRANSCRIPTS = HERE / "deploy" / "transcripts"
WRITTEN = sorted(
    [
        *REPOSITORY.glob("*.md"),
        *(page for page in HERE.rglob("*.md") if TRANSCRIPTS not in page.parents),
    ]
)
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")


def linked(page: Path) -> list[Path]:
    """What the page's links within the repository lead to."""
    targets = _LINK.findall(page.read_text("utf-8"))
    return [(page.parent / target).resolve() for target in targets]


def reachable(start: Path) -> set[Path]:
    """The pages that a reader of `start` gets to. A directory shows the pages right in it."""
    found, ahead = {start}, [start]
    while ahead:
        for target in linked(ahead.pop()):
            pages = set(target.glob("*.md") if target.is_dir() else [target])
            ahead += [page for page in pages - found if page.suffix == ".md"]
            found |= pages
    return found


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    assert (HERE / name).read_text("utf-8") == rendered(name), "make docs"


def test_every_page_is_reached_by_links_from_the_readme() -> None:
    lost = set(WRITTEN) - reachable(README)
    assert not lost, sorted(str(page.relative_to(REPOSITORY)) for page in lost)


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_a_link_leads_to_something(page: Path) -> None:
    assert [target for target in linked(page) if not target.exists()] == []
