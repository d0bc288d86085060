# The tasks of this project, in a separate virtual environment (.venv).
# PYTHON=python3.12 chooses the Python; default: the first one of 3.10 or newer.

BIN := .venv/bin
export PYTHON
unexport PYTHONDONTWRITEBYTECODE

.PHONY: hello test test-long test-kubernetes test-slurm test-gridengine check format lint types docs site pictures wheel smoke mutants bench clean venv venv-build venv-dev venv-docs

hello: venv          ## install, and run a first job
	$(BIN)/torchx run -s local_cwd utils.echo --msg hi

test: venv-dev       ## the tests except the long ones; TESTS=tests/specs for all tests of a folder
	$(BIN)/python -m pytest -n 4 --dist loadgroup $(or $(TESTS),-m "not long")

test-long: venv-dev  ## the long tests: many retries, interruptions, hangs of PyTorch, random histories
	$(BIN)/python -m pytest -n 4 --dist loadgroup -m long $(TESTS)

test-kubernetes: venv-dev ## the conformance suite on the cluster of KUBECONFIG; TORCHX_TEST_IMAGE=… for another image
	@test -n "$$KUBECONFIG" || { echo "set KUBECONFIG to the cluster to test on, e.g. ~/.kube/config"; exit 1; }
	$(BIN)/python -m pytest -n 2 -m kubernetes tests/conformance/test_real_kubernetes.py $(TESTS)

test-slurm: venv-dev  ## jobs on a Slurm cluster that is started on this machine (as root)
	.ci/slurm
	$(BIN)/python -m pytest -n 4 -m "slurm and not alone" tests
	$(BIN)/python -m pytest -m "slurm and alone" tests

test-gridengine: venv-dev  ## jobs on a Grid Engine cluster that is started on this machine (as root)
	.ci/gridengine
	$(BIN)/python -m pytest -n 3 -m gridengine tests

# the tests include the documentation and the contents of the wheel
check: format lint types test

format: venv-dev
	$(BIN)/ruff format --check .

lint: venv-dev
	$(BIN)/ruff check .

types: venv-dev
	$(BIN)/mypy
	MYPYPATH=tests $(BIN)/mypy benchmarks docs  # the pictures are made with modules of the tests

docs: venv-dev       ## run the examples and check the links of README.md and docs/
	$(BIN)/python -m pytest tests/docs

site: venv-docs      ## build the documentation site, site/index.html; a warning is an error
	@rm -rf build/site # an interrupted build leaves half a page, newer than its source
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/site
	@rm -rf site && mv build/site site
	@echo "the start page: $(CURDIR)/site/index.html"

pictures: venv-dev   ## take the pictures of the terminal again, docs/pictures/*.svg
	$(BIN)/python docs/pictures.py

wheel: venv-build    ## build dist/
	$(BIN)/python -m build --outdir dist . > /dev/null
	@ls -t dist/*.whl | head -n 1

smoke: venv-dev wheel ## run the wheel on every Python here, with the lowest and the newest dependencies
	.ci/smoke $$(ls -t dist/*.whl | head -n 1)

mutants: venv-dev     ## count small changes of the code that no test detects; GROUP=rules SAMPLE=100
	$(BIN)/python -m tests.tools.mutants $(or $(GROUP),rules) --sample $(or $(SAMPLE),100)

bench: venv-dev      ## measure, and write benchmarks/RESULTS.md; PEER=/path/to/torchx to compare with
	$(BIN)/python benchmarks/report.py

venv:
	@.ci/venv

venv-dev:
	@.ci/venv dev

venv-build:
	@.ci/venv build

venv-docs:
	@.ci/venv docs

clean:
	rm -rf .venv build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage *.egg-info
	find . -name __pycache__ -prune -exec rm -rf {} +
