"""Chapter 4, "Beyond smoothness and convexity": private release through oracles that certify their optimum."""
