"""Set the surroundings of notebook kernels before any test, or nbval, starts one."""

from tools.kernel import use_kernel_environment

use_kernel_environment()
