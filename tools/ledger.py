"""The ledger of what the book owes its reader: read it, check it, render it as the scoreboard page.

``book/claims.yml`` has one row for every algorithm, guarantee, figure, table and number of the source
papers. A row is open, or it says which function is the claim, which test pins it, where the book
shows it, what was measured, and with what verdict.

usage: python -m tools.ledger
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tools.notebooks import read
from tools.paths import BOOK, ROOT

CLAIMS = BOOK / "claims.yml"
CHAPTERS = {
    "AF": "1. Accuracy first",
    "PI": "2. Per-instance privacy",
    "GP": "3. Generalized propose-test-release",
    "OP": "4. Objective perturbation",
    "ST": "5. Stability and output perturbation",
}
KINDS = ("algorithm", "guarantee", "baseline", "figure", "table", "number", "demonstration")
VERDICTS = {
    "reproduced": "ours agrees with the paper, within the stated interval",
    "refuted": "the claim is false as printed; the page shows why",
    "sharper": "the claim holds, and with a better constant or a weaker assumption than printed",
    "shown": "a definition, an algorithm or a picture that has no printed number to agree with",
    "open": "not yet taken",
}
FIELDS = {
    *("id", "source", "kind", "what", "value", "erratum"),
    *("function", "test", "page", "measured", "verdict"),
}


@dataclass(frozen=True, slots=True)
class Claim:
    """One row of the ledger.

    Parameters
    ----------
    id : str
        Chapter prefix and number, for instance ``"AF-01"``.
    source : str
        Key of the paper in the bibliography, then the place in it.
    kind, what, value : str
        Kind of claim, the claim in our words, and what the paper prints (empty if no number).
    erratum : bool
        Whether the paper is known to be wrong here.
    function, test, page : tuple of str
        Dotted paths, pytest node ids, and ``file#label`` relative to ``book/``.
    measured, verdict : str
        What came out, and one of ``VERDICTS``.
    """

    id: str
    source: str
    kind: str
    what: str
    value: str = ""
    erratum: bool = False
    function: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    page: tuple[str, ...] = ()
    measured: str = ""
    verdict: str = "open"

    @property
    def chapter(self) -> str:
        """The prefix of the id."""
        return self.id.split("-")[0]

    @property
    def key(self) -> str:
        """The paper's key in the bibliography; empty for what goes beyond the papers."""
        first = self.source.split()[0]
        return first if re.fullmatch(r"[a-z]+\d{4}", first) else ""


def as_tuple(value: object) -> tuple[str, ...]:
    """Read a field that holds nothing, one text, or a list of texts."""
    if value in (None, ""):
        return ()
    return tuple(str(item) for item in value) if isinstance(value, list) else (str(value),)


def parse(row: dict[str, Any]) -> Claim:
    """Turn one row of the file into a claim.

    Raises
    ------
    ValueError
        The row has an unknown field, or lacks one of id, source, kind, what.
    """
    unknown, missing = set(row) - FIELDS, {"id", "source", "kind", "what"} - set(row)
    if unknown or missing:
        raise ValueError(f"row {row.get('id', row)}: unknown {sorted(unknown)}, missing {sorted(missing)}")
    return Claim(
        **{name: str(row[name]) for name in ("id", "source", "kind", "what")},
        value=str(row.get("value") or ""),
        erratum=bool(row.get("erratum", False)),
        function=as_tuple(row.get("function")),
        test=as_tuple(row.get("test")),
        page=as_tuple(row.get("page")),
        measured=str(row.get("measured") or ""),
        verdict=str(row.get("verdict") or "open"),
    )


def load(path: Path = CLAIMS) -> list[Claim]:
    """Read the ledger."""
    return [parse(row) for row in yaml.safe_load(path.read_text(encoding="utf-8"))["claims"]]


def resolve(dotted: str) -> Any:
    """Import the longest module prefix of ``dotted`` and follow the rest by attributes.

    Raises
    ------
    ImportError, AttributeError
        There is no such object.
    """
    names = dotted.split(".")
    for cut in range(len(names), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(names[:cut]))
        except ModuleNotFoundError as error:
            if error.name and not dotted.startswith(error.name):
                raise  # a dependency of the module is missing, which is another fault
            continue
        for name in names[cut:]:
            found = getattr(found, name)
        return found
    raise ImportError(f"no module is a prefix of {dotted}")


@cache
def tests_in(path: Path) -> frozenset[str]:
    """Return the node ids (without the file) that a test module defines, by reading its syntax tree."""
    found: set[str] = set()

    def visit(body: Iterable[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
                visit(node.body, f"{prefix}{node.name}::")
            elif isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
                found.add(prefix + node.name)

    visit(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return frozenset(found)


def is_test_defined(node_id: str, root: Path = ROOT) -> bool:
    """Whether a pytest node id such as ``tests/unit/test_x.py::TestY::test_z[case]`` is defined."""
    file, _, name = node_id.partition("::")
    path = root / file
    return path.is_file() and name.split("[")[0] in tests_in(path)


LABEL = re.compile(r"^\s*\(([\w:.-]+)\)=\s*$|^\s*:(?:label|name):\s*(\S+)\s*$", re.M)


@cache
def labels_in(path: Path) -> frozenset[str]:
    """Return the labels that a page defines: ``(label)=`` lines and ``:label:`` or ``:name:`` options."""
    if path.suffix == ".ipynb":
        text = "\n\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")
    else:
        text = path.read_text(encoding="utf-8")
    return frozenset(first or second for first, second in LABEL.findall(text))


def page_fault(page: str, book: Path = BOOK) -> str:
    """Say what is wrong with ``file#label``, or return an empty text."""
    file, _, label = page.partition("#")
    if not (book / file).is_file():
        return f"page {file} does not exist"
    if not label:
        return f"page {page} names no label"
    return "" if label in labels_in(book / file) else f"page {file} has no label {label}"


def function_fault(dotted: str) -> str:
    """Say why a dotted path does not resolve, or return an empty text."""
    try:
        resolve(dotted)
    except (ImportError, AttributeError) as error:
        return f"function {dotted} does not resolve ({error})"
    return ""


def faults(claim: Claim) -> list[str]:
    """Everything that is wrong with one row."""
    found = []
    if claim.chapter not in CHAPTERS:
        found.append(f"chapter {claim.chapter} is unknown")
    if claim.kind not in KINDS:
        found.append(f"kind {claim.kind} is not one of {', '.join(KINDS)}")
    if claim.verdict not in VERDICTS:
        found.append(f"verdict {claim.verdict} is not one of {', '.join(VERDICTS)}")
    taken = {name: getattr(claim, name) for name in ("function", "test", "page", "measured")}
    if claim.verdict == "open":
        found += [f"{name} is filled although the row is open" for name, value in taken.items() if value]
        return found
    found += [f"{name} is empty although the verdict is {claim.verdict}" for name in taken if not taken[name]]
    found += [fault for fault in map(function_fault, claim.function) if fault]
    found += [f"test {node} is not defined" for node in claim.test if not is_test_defined(node)]
    found += [fault for fault in map(page_fault, claim.page) if fault]
    return found


def check(claims: list[Claim]) -> list[str]:
    """Everything that is wrong with the ledger, one line each."""
    repeated = [name for name, count in Counter(claim.id for claim in claims).items() if count > 1]
    return [f"{name}: appears twice" for name in repeated] + [
        f"{claim.id}: {fault}" for claim in claims for fault in faults(claim)
    ]


# ---------------------------------------------------------------- rendering


def escape(text: str) -> str:
    """Protect what Markdown would read as markup."""
    return re.sub(r"([\\`*_{}\[\]<>$|#~^])", r"\\\1", text)


def totals(claims: list[Claim]) -> list[str]:
    """Render the table of counts by chapter and verdict."""
    lines = [f"| chapter | {' | '.join(VERDICTS)} | all |", "| :-- |" + " --: |" * (len(VERDICTS) + 1)]
    groups = [(title, [c for c in claims if c.chapter == prefix]) for prefix, title in CHAPTERS.items()]
    for title, group in [*groups, ("**all**", claims)]:
        counts = Counter(claim.verdict for claim in group)
        cells = [str(counts[verdict]) for verdict in VERDICTS]
        lines.append(f"| {title} | {' | '.join(cells)} | {len(group)} |")
    return lines


def source_cell(claim: Claim) -> str:
    """Render the paper as a citation, followed by the place in it."""
    if not claim.key:
        return escape(claim.source)
    place = claim.source.removeprefix(claim.key).strip()
    return f"{{cite:t}}`{claim.key}` {escape(place)}".strip()


def function_cell(dotted: str) -> str:
    """Link a function to the place where it is defined, which is where the API page documents it."""
    found = resolve(dotted)
    module, name = getattr(found, "__module__", None), getattr(found, "__qualname__", None)
    if not module or not name:
        return f"`{dotted}`"
    return f"{{py:obj}}`{dotted.split('.')[-1]} <{module}.{name}>`"


def where_cell(claim: Claim) -> list[str]:
    """Render the links to page, function and test, one a line."""
    parts = [page.partition("#") for page in claim.page]
    pages = [f"[{Path(file).stem}](#{label})" for file, _, label in parts]
    tests = [f"`{node.split('/')[-1]}`" for node in claim.test]
    return pages + [function_cell(dotted) for dotted in claim.function] + tests


def row(claim: Claim) -> list[str]:
    """Render one row of the list-table."""
    mark = " (the paper errs here)" if claim.erratum else ""
    cells = [
        [f"[{claim.id}]{{#claim-{claim.id.lower()}}}"],
        [claim.kind],
        [f"{escape(claim.what)}{mark}", source_cell(claim)],
        [escape(claim.value)],
        [escape(claim.measured)],
        [claim.verdict],
        where_cell(claim),
    ]
    lines = []
    for index, paragraphs in enumerate(cells):
        lead = "* - " if index == 0 else "  - "
        body = "\n\n    ".join(text for text in paragraphs if text)
        lines.append(f"{lead}{body}".rstrip())
    return lines


HEADER = """\
---
html_theme.sidebar_secondary.remove: true
---

(scoreboard)=
# Scoreboard

Every algorithm, guarantee, figure, table and number of the source papers is a row here. A row that is not
open names the function that is the claim, the test that pins it, the place where the book shows it, what was
measured, and a verdict. A test checks that all of these exist, and that this page, which is generated from
`book/claims.yml`, is up to date.

"""

SCRIPT = """\
```{raw} html
<script>
document.addEventListener("DOMContentLoaded", function () {
  const table = document.querySelector("table.scoreboard");
  if (!table) return;
  const rows = Array.from(table.querySelectorAll("tbody tr"));
  const cell = (row, index) => row.cells[index].textContent.trim();
  const filters = [
    ["Chapter", (row) => cell(row, 0).split("-")[0]],
    ["Kind", (row) => cell(row, 1)],
    ["Verdict", (row) => cell(row, 5)],
  ].map(([title, value]) => {
    const label = document.createElement("label");
    const select = document.createElement("select");
    select.add(new Option("all", ""));
    [...new Set(rows.map(value))].forEach((name) => select.add(new Option(name, name)));
    label.append(title + " ", select);
    return { label, select, value };
  });
  const count = document.createElement("output");
  function show() {
    let shown = 0;
    rows.forEach((row) => {
      row.hidden = filters.some((f) => f.select.value && f.select.value !== f.value(row));
      shown += row.hidden ? 0 : 1;
    });
    count.textContent = shown + " of " + rows.length + " rows";
  }
  const bar = document.createElement("div");
  bar.className = "scoreboard-filters";
  bar.append(...filters.map((f) => f.label), count);
  filters.forEach((f) => f.select.addEventListener("change", show));
  (table.closest(".pst-scrollable-table-container") || table).before(bar);
  show();
});
</script>
```
"""


def render(claims: list[Claim]) -> str:
    """Render the scoreboard page."""
    verdicts = [f"| {name} | {meaning} |" for name, meaning in VERDICTS.items()]
    head = ["row", "kind", "claim and source", "paper", "measured", "verdict", "where"]
    table = [
        "````{list-table}",
        ":header-rows: 1",
        ":class: scoreboard",
        ":widths: 7 10 33 12 16 9 13",
        "",
        *(f"{'* - ' if index == 0 else '  - '}{name}" for index, name in enumerate(head)),
        *(line for claim in claims for line in row(claim)),
        "````",
    ]
    parts = [
        *("## Totals", "", *totals(claims), ""),
        *("| verdict | meaning |", "| :-- | :-- |", *verdicts, ""),
        *("## All rows", "", *table, "", SCRIPT),
    ]
    return HEADER + "\n".join(parts)


def main() -> int:
    """Check the ledger and print how much of it is settled."""
    claims = load()
    found = check(claims)
    for line in found:
        print(line, file=sys.stderr)
    settled = sum(claim.verdict != "open" for claim in claims)
    print(f"ledger: {settled} of {len(claims)} rows settled, {len(found)} fault(s)")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
