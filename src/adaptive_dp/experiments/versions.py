"""What results depend on beside the code: versions and the date."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform

import adaptive_dp


def versions() -> dict[str, str]:
    """Versions that results depend on: Python, numpy, scipy and this package."""
    return {
        "python": platform.python_version(),
        "numpy": importlib.metadata.version("numpy"),
        "scipy": importlib.metadata.version("scipy"),
        "adaptive_dp": adaptive_dp.__version__,
    }


def today() -> str:
    """The date in universal time, as in 2026-01-31."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()
