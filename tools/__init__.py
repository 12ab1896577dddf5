"""The commands behind the Makefile; each runs as ``python -m tools.<name>`` from the top folder."""
