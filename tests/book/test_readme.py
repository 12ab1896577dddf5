"""What the README tells a newcomer to type works."""

from __future__ import annotations

import doctest
import re

from tools.paths import ROOT

README = ROOT / "README.md"


def test_the_snippet_runs() -> None:
    result = doctest.testfile(str(README), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 5
    assert result.failed == 0


def test_the_modules_it_names_exist() -> None:
    named = set(re.findall(r"python\S* -m (tools\.\w+)", README.read_text(encoding="utf-8")))
    assert {"tools.setup", "tools.execute", "tools.build_html", "tools.check"} <= named
    assert [name for name in named if not (ROOT / f"{name.replace('.', '/')}.py").is_file()] == []


def test_the_make_targets_it_names_exist() -> None:
    make = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(
        re.findall(
            r"\bmake ([a-z]+)\b", " ".join(re.findall(r"`make [^`]*`|^make .*$", README.read_text(), re.M))
        )
    )
    assert {"book", "test", "html"} <= targets
    assert [target for target in targets if f"\n{target}:" not in make] == []
