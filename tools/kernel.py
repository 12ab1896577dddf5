"""The surroundings in which notebooks run: the same for the book, for papermill and for nbval."""

from __future__ import annotations

import os

from tools.paths import BUILD

KERNEL_CONFIG = """\
# ipykernel warns at each start that it listens on this machine only by TCP; nothing else is silenced.
c.IPKernelApp.log_level = 40
# No history file: kernels that start side by side would wait for its lock.
c.HistoryManager.enabled = False
"""


def kernel_environment() -> dict[str, str]:
    """Write the kernel's configuration below ``_build`` and return the variables that point at it.

    One thread for linear algebra and a fixed hash seed make outputs equal from run to run; sweeps
    over processes get their speed from joblib instead.
    """
    folder = BUILD / "ipython"
    config = folder / "profile_default" / "ipython_kernel_config.py"
    if not config.exists() or config.read_text(encoding="utf-8") != KERNEL_CONFIG:
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(KERNEL_CONFIG, encoding="utf-8")
    return {
        "IPYTHONDIR": str(folder),
        "JUPYTER_PLATFORM_DIRS": "1",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "MKL_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "PYTHONHASHSEED": "0",
    }


def use_kernel_environment() -> None:
    """Set these variables for kernels that this process starts."""
    os.environ.update(kernel_environment())
