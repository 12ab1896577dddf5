"""Find numbers that stand bare in prose, where nothing keeps them equal to what the code computes."""

from __future__ import annotations

import re

# Where a decimal is not a result: code, mathematics, roles (glue, citations), comments, targets of links.
LEGITIMATE = {
    "fenced blocks": re.compile(r"^(`{3,}|~{3,}).*?^\1", re.S | re.M),
    "displayed mathematics": re.compile(r"\$\$.*?\$\$", re.S),
    "inline code and roles": re.compile(r"(?:\{[\w:+-]+\})?`[^`]*`"),
    "inline mathematics": re.compile(r"\$[^$]+\$"),
    "comments": re.compile(r"<!--.*?-->|^%.*?$", re.S | re.M),
    "targets of links": re.compile(r"\]\([^)]*\)"),
    "licences": re.compile(r"\bCC BY(?:-SA)? \d\.\d\b"),
    "addresses": re.compile(r"https?://\S+"),
}
# A decimal that is no part of a longer name, a version with two dots, a path, a section (§2.3) or a range.
DECIMAL = re.compile(r"(?<![\w.§/=-])\d+\.\d+(?:e[-+]?\d+)?(?![\w/-]|\.\d)")


def bare_decimals(text: str) -> list[str]:
    """Return the decimals of a Markdown text that no code, formula or glue stands behind."""
    for pattern in LEGITIMATE.values():
        text = pattern.sub(" ", text)
    return DECIMAL.findall(text)
