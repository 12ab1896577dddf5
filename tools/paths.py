"""Where things are. Standard library only: ``tools.setup`` runs before anything is installed."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "book"
SOURCE = ROOT / "src"
BUILD = ROOT / "_build"
HTML = BUILD / "html"
LOCK = ROOT / "requirements.lock"
DATA_INDEX = ROOT / "data" / "index.json"


def relative(path: Path) -> str:
    """``path`` below the top folder, with forward slashes."""
    return path.resolve().relative_to(ROOT).as_posix()
