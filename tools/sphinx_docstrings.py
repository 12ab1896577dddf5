"""A Sphinx extension: docstrings that read well in an editor also render well on the API page.

- Absolute values such as ``|x|`` are not substitutions, and ``theta_`` is not a link.
- The docstring of an attribute is a sentence, even when it holds a colon: napoleon would take what
  stands before the colon for a type.
- An enumeration shows no call.
- A name that a package re-exports links to the place where it is defined; a type variable or an alias
  has no page and stays text. Any other missing name of the library remains a warning, hence an error.
"""

from __future__ import annotations

import re
from enum import EnumType
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from tools.ledger import resolve

SENTENCES = ("attribute", "data", "property")
MARKED = re.compile(r"(``.*?``|:[\w:]+:`[^`]*`|`[^`]*`_*)")
SPECIAL = re.compile(r"\||(?<=\w)_(?!\w)")

_saved: dict[str, list[str]] = {}


def protect(line: str) -> str:
    """Escape what reStructuredText would read as markup, outside code and roles."""
    if line.lstrip().startswith(">>>"):
        return line
    pieces = MARKED.split(line)
    return "".join(
        piece if index % 2 else SPECIAL.sub(lambda found: "\\" + found.group(), piece)
        for index, piece in enumerate(pieces)
    )


def before_napoleon(_app: Sphinx, what: str, name: str, _obj: Any, _options: Any, lines: list[str]) -> None:
    """Protect the lines, and remember those of attributes."""
    lines[:] = [protect(line) for line in lines]
    if what in SENTENCES:
        _saved[name] = list(lines)


def after_napoleon(_app: Sphinx, _what: str, name: str, _obj: Any, _options: Any, lines: list[str]) -> None:
    """Put the sentence of an attribute back."""
    if name in _saved:
        lines[:] = _saved.pop(name)


def hide_enum_signature(
    _app: Sphinx,
    _what: str,
    _name: str,
    obj: Any,
    _options: Any,
    _signature: str | None,
    _returns: str | None,
) -> tuple[str, None] | None:
    """An enumeration is used by its members; how the class is called says nothing."""
    return ("", None) if isinstance(obj, EnumType) else None


def link_to_definition(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element
) -> nodes.Element | None:
    """Resolve a name of the library that is documented elsewhere, or that has no page at all."""
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py" or not target.startswith("adaptive_dp."):
        return None
    try:
        found = resolve(target)
    except (ImportError, AttributeError):
        return None
    name = getattr(found, "__qualname__", None)
    if name is None or name != target.split(".")[-1]:
        return content
    full = f"{found.__module__}.{name}"
    document = node.get("refdoc", env.docname)
    return env.domains["py"].resolve_xref(env, document, app.builder, "obj", full, node, content)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the steps; napoleon, in the middle, has priority 500."""
    app.connect("autodoc-process-docstring", before_napoleon, priority=400)
    app.connect("autodoc-process-docstring", after_napoleon, priority=600)
    app.connect("autodoc-process-signature", hide_enum_signature)
    app.connect("missing-reference", link_to_definition)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
