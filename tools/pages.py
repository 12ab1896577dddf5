"""Write the pages that are generated: the scoreboard from the ledger, the API page from the modules.

usage: python -m tools.pages
"""

from __future__ import annotations

import sys
from pathlib import Path

from tools import api, ledger
from tools.paths import BOOK, relative


def pages() -> dict[Path, str]:
    """Return path and text of every generated page."""
    return {BOOK / "api.md": api.render(), BOOK / "scoreboard.md": ledger.render(ledger.load())}


def main() -> int:
    """Write what changed."""
    for path, text in pages().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8", newline="\n")
            print(f"{relative(path)}: written", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
