"""Render the page that documents the library, from the modules that exist."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import adaptive_dp

# The order in which a reader meets the modules; what is not named here follows alphabetically.
ORDER = (
    "privacy",
    "validation",
    "datasets",
    "noise",
    "losses",
    "solvers",
    "experiments",
    "plots",
    "accuracy_first",
)

HEADER = """\
(api)=
# The library

The package `adaptive_dp` has three layers, and arrows point down only: the chapters' mechanisms, the foundations under
them, and, beside both, data sets, experiments and plots. This page is generated from the docstrings; every claim of the
[scoreboard](scoreboard.md) links into it.
"""


def modules() -> list[str]:
    """Return the dotted names of all public modules, in reading order, a package before its parts."""

    def position(name: str) -> tuple[int, str]:
        top = name.split(".")[1]
        return (ORDER.index(top) if top in ORDER else len(ORDER), name)

    found = [info.name for info in pkgutil.walk_packages(adaptive_dp.__path__, "adaptive_dp.")]
    return sorted((n for n in found if not any(p.startswith("_") for p in n.split("."))), key=position)


def defines(name: str) -> bool:
    """Whether a module defines a public function or class of its own, rather than passing others on."""
    module = importlib.import_module(name)
    return any(
        getattr(member, "__module__", None) == name
        for key, member in vars(module).items()
        if not key.startswith("_") and (inspect.isfunction(member) or inspect.isclass(member))
    )


def section(name: str) -> list[str]:
    """Render one module: a heading, and its documentation taken from the docstrings."""
    level = "#" * name.count(".") + "#"
    members = "   :members:" if defines(name) else "   :no-members:"
    directive = ["```{eval-rst}", f".. automodule:: {name}", members, "```"]
    return ["", f"{level} `{name}`", "", *directive]


def render() -> str:
    """Render the whole page."""
    return HEADER + "\n".join(line for name in modules() for line in section(name)) + "\n"
