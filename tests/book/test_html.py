"""The built pages: no network, every link and image sound, light and dark.

All tests on the pages stand in this one file, so that one worker builds the book once.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

from adaptive_dp.plots import SITE_CSS
from tools.paths import ROOT

# What a browser fetches by itself when it shows a page, from another host.
LOADED = re.compile(
    r"<(?:script|link|img|iframe|source|video|audio)\b[^>]*?\b(?:src|href)\s*=\s*[\"']((?:https?:)?//[^\"']+)",
    re.IGNORECASE,
)
FETCHED = re.compile(
    r"(?:import\(|fetch\(|THEBE_JS_URL\s*=|@import|url\()\s*[\"']?((?:https?:)?//[^\"')\s]+)"
)


def foreign(text: str) -> list[str]:
    return LOADED.findall(text) + FETCHED.findall(text)


def test_offline_pattern_sees_what_it_must() -> None:
    assert foreign('<script async src="https://cdn.example/x.js"></script>')
    assert foreign("<link rel='stylesheet' href='//fonts.example/a.css'>")
    assert foreign("@import 'https://fonts.example/a.css';")
    assert foreign("body { background: url(//host.example/a.png) }")
    assert not foreign(
        '<a href="https://opendp.org">a link loads nothing</a><img src="data:image/png;base64,AA">'
    )


def test_pages_load_nothing_from_another_host(html: Path) -> None:
    read = [path for path in sorted(html.rglob("*")) if path.suffix in {".html", ".css"}]
    assert len(read) > 10
    found = {str(path.relative_to(html)): foreign(path.read_text(encoding="utf-8")) for path in read}
    assert {name: hosts for name, hosts in found.items() if hosts} == {}


def test_formulas_are_rendered_by_the_copy_in_the_book(html: Path) -> None:
    assert (html / "_static" / "mathjax" / "tex-chtml.js").stat().st_size > 1_000_000
    assert list((html / "_static" / "mathjax" / "output" / "chtml" / "fonts" / "woff-v2").glob("*.woff"))
    assert "_static/mathjax/tex-chtml.js" in (html / "book" / "notation.html").read_text(encoding="utf-8")


def test_every_entry_of_the_contents_is_a_page(html: Path) -> None:
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    chapters = [chapter for part in contents["parts"] for chapter in part["chapters"]]
    files = [page["file"] for chapter in chapters for page in (chapter, *chapter.get("sections", []))]
    assert len(files) >= 6
    assert [file for file in [contents["root"], *files] if not (html / f"{file}.html").is_file()] == []


def test_every_page_of_the_book_is_in_the_contents(html: Path) -> None:
    sources = {path.stem for path in (ROOT / "book").iterdir() if path.suffix in {".md", ".ipynb"}}
    assert sources == {path.stem for path in (html / "book").glob("*.html")}


def test_internal_links_lead_to_an_anchor(html: Path, pages: dict[Path, Any]) -> None:
    broken, followed = [], 0
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or link in {"", "#"}:
                continue
            followed += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = (
                pages[target].anchors if target in pages and parts.fragment else {unquote(parts.fragment)}
            )
            if not target.exists() or unquote(parts.fragment) not in anchors:
                broken.append(f"{path.name}: {link}")
    assert followed > 100
    assert broken == []


def test_every_image_has_a_text_that_says_what_it_shows(pages: dict[Path, Any]) -> None:
    images = [(path.name, image) for path, page in pages.items() for image in page.images]
    assert images
    texts = [(name, image.get("alt", "").strip()) for name, image in images]
    assert [(n, alt) for n, alt in texts if not alt or re.search(r"\.(png|svg|jpe?g)$", alt)] == []


def test_figures_come_in_a_light_and_a_dark_rendering(html: Path, pages: dict[Path, Any]) -> None:
    found = 0
    for page in pages.values():
        classes = [image.get("class", "").split() for image in page.images]
        light, dark = (sum(f"figure-{theme}" in names for names in classes) for theme in ("light", "dark"))
        assert light == dark, page.path.name
        found += light
    assert found > 0
    style = (html / "_static" / "custom.css").read_text(encoding="utf-8")
    assert SITE_CSS in style
    for path in pages:
        assert "custom.css" in path.read_text(encoding="utf-8")


def test_scoreboard_is_a_plain_table_without_its_script(html: Path) -> None:
    text = (html / "book" / "scoreboard.html").read_text(encoding="utf-8")
    assert len(re.findall(r'id="claim-[a-z]{2}-\d\d"', text)) == 117
    assert "<select" not in text.split("<script", 1)[0]
