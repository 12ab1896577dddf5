"""The book, built once for the tests into a folder of their own."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from tools.build_html import build

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


class Page(HTMLParser):
    """What the tests ask of a page: its anchors, its links, and the images of its article."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.path = path
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.images: list[dict[str, str]] = []
        self._open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag == "img" and "article" in self._open:
            self.images.append(values)
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass


@pytest.fixture(scope="session")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build with warnings as errors and unresolved references as warnings; return the folder of the pages."""
    output = tmp_path_factory.mktemp("book")
    done = build(output)
    assert done.returncode == 0, done.stdout
    return output / "_build" / "html"


@pytest.fixture(scope="session")
def pages(html: Path) -> dict[Path, Page]:
    """Parse every page of the book, without those that the theme generates (search, index)."""
    return {path: Page(path) for path in sorted((html / "book").glob("*.html"))}
