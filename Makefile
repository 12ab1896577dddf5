# A thin cover: every target calls a module of tools/, which also runs without make (README.md, "Without make").
# Another interpreter: make book PYTHON=/path/to/python3.12
PYTHON ?= $(shell sh tools/find-python.sh)
PY := .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help setup book test html paper serve clean

help: ## show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

setup: ## create .venv from requirements.lock (the other targets do it when needed)
	@test -n "$(PYTHON)" && $(PYTHON) -m tools.setup

book: setup ## execute the notebooks (in a fresh clone all, then those that changed) and build the HTML
	@$(PY) -m tools.pages
	@$(PY) -m tools.execute --here
	@$(PY) -m tools.build_html

test: setup ## run everything that continuous integration runs
	@$(PY) -m tools.check

html: setup ## build the HTML from the stored outputs, executing nothing
	@$(PY) -m tools.pages
	@$(PY) -m tools.build_html

paper: setup ## run the experiments at the sizes of the papers (up to an hour a chapter; resumable)
	@$(PY) tools/paper.py
	@$(PY) tools/paper_per_instance.py
	@$(PY) tools/paper_ptr_regression.py
	@$(PY) tools/paper_ptr_pate.py
	@$(PY) tools/paper_objective_perturbation.py
	@$(PY) tools/paper_beyond_convexity.py
	@$(PY) tools/paper_beyond_convexity_solvers.py

serve: html ## build the HTML and serve it at http://localhost:8000
	@$(PY) -m http.server 8000 --bind 127.0.0.1 --directory _build/html

clean: ## remove what was built; keep .venv, stored outputs and recorded results
	@rm -rf _build .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*
