"""Chapter 4, "Objective perturbation": tight profiles, approximate minima, and a fair race with DP-SGD."""
