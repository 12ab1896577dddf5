"""The repository as a whole: its layout, and what must not be in it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tools.paths import ROOT

TOP = (
    *("README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "LICENSE-text", "Makefile", "environment.yml"),
    *("pyproject.toml", "requirements.lock", "_config.yml", "_toc.yml", ".ci/run", ".gitignore"),
    *("book", "data", "src/adaptive_dp", "tests", "tools"),
)


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    return [ROOT / name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("name", TOP)
def test_layout(name: str) -> None:
    assert (ROOT / name).exists()


def test_commands_are_executable() -> None:
    for name in (".ci/run", "tools/find-python.sh"):
        assert (ROOT / name).stat().st_mode & 0o111, name


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="an unpacked archive has no list of tracked files")
def test_no_address_of_this_machine_or_of_a_registry_is_tracked() -> None:
    # Written in halves, so that this file does not find itself.
    hosts = [
        a + b for a, b in (("pypi", ".org"), ("pythonhosted", ".org"), ("npmjs", ".org"), ("npmjs", ".com"))
    ]
    needles = [text.encode() for text in (*hosts, f"{ROOT}/", f"{Path.home()}/")]
    paths = tracked()
    assert len(paths) > 30
    found = [(path, needle) for path in paths for needle in needles if needle in path.read_bytes()]
    assert found == []


def test_citation_names_the_version_of_the_project() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert citation["cff-version"] == "1.2.0"
    assert f'version = "{citation["version"]}"' in project
    assert citation["license"] == "MIT"
    assert {"title", "message", "authors"} <= set(citation)


def test_both_licences_are_stated() -> None:
    assert "MIT License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "CC-BY-4.0" in (ROOT / "LICENSE-text").read_text(encoding="utf-8")


def test_every_make_target_is_documented_and_listed() -> None:
    make = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = next(line for line in make.splitlines() if line.startswith(".PHONY:")).split()[1:]
    assert {"help", "book", "test", "html", "paper", "serve", "clean"} <= set(phony)
    for target in phony:
        assert f"\n{target}:" in make
        assert any(line.startswith(f"{target}:") and "## " in line for line in make.splitlines()), target
