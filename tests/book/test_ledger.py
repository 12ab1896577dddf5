"""The ledger: true about the code, complete, and rendered."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tools import ledger
from tools.ledger import CHAPTERS, Claim, check, faults, load, parse
from tools.pages import pages
from tools.paths import BOOK, relative

OWED = {"AF": 24, "PI": 22, "GP": 20, "OP": 26, "ST": 25}
HERE = "tests/book/test_ledger.py"
GOOD = Claim(
    id="AF-01",
    source="ligett2017 Alg. 1",
    kind="algorithm",
    what="an example",
    function=("adaptive_dp.privacy.Domain.check",),
    test=(f"{HERE}::test_ledger_is_true",),
    page=("notation.md#def-dp",),
    measured="agrees",
    verdict="shown",
)


def test_ledger_is_true() -> None:
    assert check(load()) == []


def test_ledger_has_every_row_once() -> None:
    claims = load()
    assert Counter(claim.chapter for claim in claims) == OWED
    for prefix, count in OWED.items():
        ids = [claim.id for claim in claims if claim.chapter == prefix]
        assert ids == [f"{prefix}-{number:02d}" for number in range(1, count + 1)]
    assert set(OWED) == set(CHAPTERS)


def test_sources_are_in_the_bibliography() -> None:
    bibliography = (BOOK / "references.bib").read_text(encoding="utf-8")
    keys = {claim.key for claim in load()} - {""}
    assert len(keys) == 4
    assert [key for key in keys if f"{{{key}," not in bibliography] == []


def test_generated_pages_are_current() -> None:
    stale = [relative(path) for path, text in pages().items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run `make html` and commit these pages"


def test_a_sound_row_passes() -> None:
    assert faults(GOOD) == []
    assert faults(Claim(id="AF-01", source="x", kind="table", what="an open row")) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"function": ("adaptive_dp.privacy.Nothing",)}, "does not resolve"),
        ({"function": ("adaptive_dp.nothing.at_all",)}, "does not resolve"),
        ({"function": ()}, "function is empty"),
        ({"test": (f"{HERE}::test_of_nothing",)}, "is not defined"),
        ({"test": ("tests/book/no_such_file.py::test_x",)}, "is not defined"),
        ({"test": (HERE,)}, "is not defined"),
        ({"page": ("nowhere.md#def-dp",)}, "does not exist"),
        ({"page": ("notation.md#no-such-label",)}, "has no label"),
        ({"page": ("notation.md",)}, "names no label"),
        ({"measured": ""}, "measured is empty"),
        ({"verdict": "fine"}, "verdict fine"),
        ({"verdict": "open"}, "although the row is open"),
        ({"kind": "poem"}, "kind poem"),
        ({"id": "ZZ-01"}, "chapter ZZ"),
    ],
)
def test_a_planted_fault_is_found(change: dict[str, object], fault: str) -> None:
    found = faults(replace(GOOD, **change))  # type: ignore[arg-type]
    assert any(fault in line for line in found), found


def test_a_row_twice_is_found() -> None:
    assert any("appears twice" in line for line in check([GOOD, GOOD]))


def test_a_misspelt_field_is_refused() -> None:
    with pytest.raises(ValueError, match="mesured"):
        parse({"id": "AF-01", "source": "x", "kind": "table", "what": "y", "mesured": "z"})
    with pytest.raises(ValueError, match="missing"):
        parse({"id": "AF-01"})


def test_one_text_and_a_list_of_texts_are_both_read() -> None:
    row = {"id": "AF-01", "source": "x", "kind": "table", "what": "y", "test": "a::b", "page": ["c#d", "e#f"]}
    claim = parse(row)
    assert claim.test == ("a::b",)
    assert claim.page == ("c#d", "e#f")


def test_scoreboard_links_page_function_and_test() -> None:
    page = ledger.render([GOOD])
    assert "[notation](#def-dp)" in page
    assert "{py:obj}`check <adaptive_dp.privacy.Domain.check>`" in page
    assert "`test_ledger.py::test_ledger_is_true`" in page
    assert "| 1. Accuracy first | 0 | 0 | 0 | 1 | 0 | 1 |" in page


def test_scoreboard_escapes_markup() -> None:
    page = ledger.render([replace(GOOD, what="|k| < a_b * c_d", measured="[1, 2] $3")])
    assert r"\|k\| \< a\_b \* c\_d" in page
    assert r"\[1, 2\] \$3" in page
