"""Chapter 3, "Generalized propose-test-release" (redberg2023, chapter 3 and appendix B)."""
