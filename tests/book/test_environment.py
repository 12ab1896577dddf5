"""pyproject.toml, requirements.lock and environment.yml tell the same story."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from rattler import MatchSpec, PackageName, PackageRecord, VersionWithSource
from rattler.package.build_string import BuildString

from tools.paths import LOCK, ROOT
from tools.setup import NEWEST, OLDEST, check_version, fingerprint

PYTHONS = ("3.11", "3.12", "3.13")
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)(?:\s*;\s*(.*?))?\s*\\?$", re.M)


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirements() -> list[Requirement]:
    extras = project()["optional-dependencies"]
    texts = [*project()["dependencies"], *extras["book"], *extras["test"]]
    return [Requirement(text) for text in texts]


def locked(python: str) -> dict[str, Version]:
    """Return what the lock installs on Linux under one version of Python."""
    surroundings = {
        "python_version": python,
        "python_full_version": f"{python}.5",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": "",
    }
    pins = {}
    for name, version, marker in PIN.findall(LOCK.read_text(encoding="utf-8")):
        if not marker or Marker(marker).evaluate(surroundings):
            pins[canonicalize_name(name)] = Version(version)
    return pins


@pytest.mark.parametrize("python", PYTHONS)
def test_lock_satisfies_every_requirement_of_the_project(python: str) -> None:
    pins = locked(python)
    assert len(requirements()) > 20
    bad = [
        (str(wanted), str(pins.get(canonicalize_name(wanted.name))))
        for wanted in requirements()
        if canonicalize_name(wanted.name) not in pins
        or not wanted.specifier.contains(pins[canonicalize_name(wanted.name)])
    ]
    assert bad == []


def test_lock_pins_what_the_installation_itself_needs() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    for wanted in map(Requirement, build):
        assert wanted.specifier.contains(locked("3.11")[canonicalize_name(wanted.name)])


def test_lock_has_a_hash_for_every_pin_and_no_address() -> None:
    text = LOCK.read_text(encoding="utf-8")
    assert "://" not in text
    blocks = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.M)[1:]
    assert len(blocks) == len(PIN.findall(text)) > 100
    assert [block.split()[0] for block in blocks if "--hash=sha256:" not in block] == []


def test_supported_pythons_agree() -> None:
    assert project()["requires-python"] == ">=3.11,<3.14"
    named = [c.rsplit(" ", 1)[1] for c in project()["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert tuple(named) == PYTHONS
    assert (f"{OLDEST[0]}.{OLDEST[1]}", f"{NEWEST[0]}.{NEWEST[1]}") == (PYTHONS[0], PYTHONS[-1])
    assert "(3, 11) <= sys.version_info[:2] <= (3, 13)" in (ROOT / "tools" / "find-python.sh").read_text()


def test_setup_refuses_other_pythons() -> None:
    for version in ((3, 10), (3, 14)):
        with pytest.raises(SystemExit, match=r"3\.11 to 3\.13"):
            check_version(version)
    check_version((3, 12))


def test_stamp_depends_on_python_lock_and_package() -> None:
    stamp = fingerprint((3, 11))
    assert stamp == fingerprint((3, 11))
    assert stamp["python"] == "3.11"
    assert {name for name in stamp if stamp[name] != fingerprint((3, 12))[name]} == {"python"}


def test_stamp_ignores_the_rules_of_the_linter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    monkeypatch.setattr("tools.setup.ROOT", tmp_path)
    stamps = []
    for change in (("", ""), ("line-length = 110", "line-length = 90"), ("joblib>=1.4", "joblib>=1.5")):
        assert change[0] in text
        (tmp_path / "pyproject.toml").write_text(text.replace(*change), encoding="utf-8")
        stamps.append(fingerprint((3, 11)))
    assert stamps[0] == stamps[1] != stamps[2]


def environment() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))


def record(name: str, version: str) -> PackageRecord:
    return PackageRecord(
        name=PackageName(name),
        version=VersionWithSource(version),
        build=BuildString("0"),
        build_number=0,
        subdir="linux-64",
    )


def test_conda_specs_parse_and_name_the_tested_python() -> None:
    specs = {
        spec.name.normalized if hasattr(spec.name, "normalized") else str(spec.name): spec
        for spec in (
            MatchSpec(text, strict=True) for text in environment()["dependencies"] if isinstance(text, str)
        )
    }
    assert set(specs) == {"python", "pip"}
    assert specs["python"].matches(record("python", "3.11.7"))
    assert not specs["python"].matches(record("python", "3.12.1"))
    assert specs["pip"].matches(record("pip", "24.0"))


def test_conda_takes_everything_else_from_the_lock() -> None:
    nested = [item["pip"] for item in environment()["dependencies"] if isinstance(item, dict)]
    assert nested == [["--requirement requirements.lock"]]
    assert environment()["name"] == project()["name"]
