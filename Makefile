# make demo   sets up and runs the main job on a synthetic event log, and shows its result
# make quick  sets up and runs what takes less than a minute: pure functions, the parser, the layout of the house
# make test   sets up and runs the checks of every change: lint, types, audits, and one pipeline for each transform
# make test-slow   runs the same again in other ways: all jobs, cut otherwise, in several processes, at once, and killed;
#                  with EVERYTHING=yes it also measures accuracy over many releases
# make stubs  writes what editors and type checkers read of the calls in Python and of a report's file, after a flag has changed
# make docs   builds the site into build/site, and refuses warnings and broken links
# make test-docs   runs the examples of README and docs, and compares what they print with what the pages show
# make test-flink   runs a dozen jobs and a stream on a real Flink cluster on this machine, which needs Java (11 or 17) and Maven;
#                   with EVERYTHING=yes all jobs, streams and faults, and on Beam's Prism runner if Go is installed
# make test-spark   runs three jobs on a real Spark cluster on this machine, which needs Java (11 or 17) and Maven; with
#                   EVERYTHING=yes those that Flink runs
# make everything   runs all of these whatever has changed, with EVERYTHING=yes, and records that they have passed
# make test-browser   looks at pages in a real browser, without a screen: needs Chromium; screenshots are in build/screenshots
# make test-beam   runs transforms, replays and rows held by digest on the oldest Beam and libraries that are supported
# make test-as-run   runs the installed command, in an environment that has nothing else, on files that other programs wrote
# make test-postgres   runs the ledger's tests on SQLite and on a real PostgreSQL, which it starts
# make dist   builds the sdist, and from it the wheel, into dist, and checks both
# make sbom   writes what a fresh environment with the wheel consists of, build/sbom.json
# make image   builds the image of the command and runs it, with Podman or Docker
# make workflows   checks what GitHub runs, with zizmor, and with actionlint if Go is installed

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := mechanisms transforms pipelines

# Tests start many processes, each of which would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

# Tests run in two processes: products of matrices in threads would only wait for each other, and burn a core while they do.
export OPENBLAS_NUM_THREADS := 1

# What needs nothing of the machine but Python; `make test` and `make test-slow` share it.
SUITE := --ignore=tests/runners --ignore=tests/browser --ignore=tests/postgres --ignore=tests/docs --ignore=tests/as_run tests
QUICK := tests/mechanisms tests/headcount tests/pipelines/sources tests/pipelines/test_main.py tests/pipelines/test_options.py \
	tests/test_house.py tests/test_project.py tests/test_checks.py tests/test_docs.py tests/test_package.py
# What is in the wheel.
SOURCES := setup.py pyproject.toml README.md LICENSE $(shell find headcount $(PACKAGES) -type f -not -path '*/__pycache__/*')
# With EVERYTHING=yes tests run that wait for it: all jobs on clusters, accuracy over many releases.
EVERYTHING :=
MORE := $(if $(EVERYTHING),--everything)
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal $(MORE)

.PHONY: demo everything quick test test-slow stubs docs test-docs test-flink test-spark test-browser test-postgres test-beam test-as-run dist sbom image workflows lint types unit clean

demo: $(VENV)/runtime
	$(BIN)/headcount demo --output demo

test: lint types unit

lint: $(VENV)/development
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/development
	MYPYPATH=$(VENV)/src $(BIN)/mypy

unit: $(VENV)/development
	$(PYTEST) -m "not slow" $(SUITE)

quick: $(VENV)/development
	$(PYTEST) -m "not slow and not seconds" $(QUICK)

test-slow: $(VENV)/development
	$(PYTEST) -m slow $(SUITE)

# What is recorded is compared by .ci/changed: until one of these trees changes, .ci/run runs some jobs on clusters.
everything:
	.ci/run --everything

stubs: $(VENV)/development
	$(BIN)/python -m tests.headcount.stubs
	$(BIN)/python -m tests.pipelines.report_file.schema

docs: $(VENV)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir build/site

# A version of the site, in its folder of the branch gh-pages: make site VERSION=0.1 ALIAS=latest, or VERSION=dev. Pushes nothing.
.PHONY: site
site: $(VENV)/docs
	@test -n "$(VERSION)" || { echo "make site needs a version: make site VERSION=0.1 ALIAS=latest" >&2; exit 1; }
	NO_MKDOCS_2_WARNING=1 PATH="$(abspath $(BIN)):$$PATH" $(BIN)/mike deploy $(if $(ALIAS),--update-aliases) $(VERSION) $(ALIAS)

test-docs: $(VENV)/development
	$(PYTEST) tests/docs

# One process has the cluster, which it starts once, and the other Prism. What is skipped (only Prism can be) is told with its reason.
test-flink: $(VENV)/development
	@command -v java > /dev/null || { echo "make test-flink needs Java: install 11 or 17 (apt-get install openjdk-17-jdk-headless)" >&2; exit 1; }
	@command -v mvn > /dev/null || { echo "make test-flink needs Maven: install it (apt-get install maven)" >&2; exit 1; }
	$(BIN)/python -m pytest -n 2 --dist loadgroup $(MORE) -rs --ignore=tests/runners/test_spark.py tests/runners

test-spark: $(VENV)/development
	@command -v java > /dev/null || { echo "make test-spark needs Java: install 11 or 17 (apt-get install openjdk-17-jdk-headless)" >&2; exit 1; }
	@command -v mvn > /dev/null || { echo "make test-spark needs Maven: install it (apt-get install maven)" >&2; exit 1; }
	$(BIN)/python -m pytest $(MORE) tests/runners/test_spark.py

test-browser: $(VENV)/development $(VENV)-plain/ready
	@command -v chromium > /dev/null || command -v google-chrome > /dev/null || { echo "make test-browser needs Chromium: install it (apt-get install chromium)" >&2; exit 1; }
	$(BIN)/python -m pytest $(MORE) tests/browser --headcount $(VENV)-plain/bin/headcount

# The server is found on the PATH or where Debian puts it, and each process of the tests starts one of its own.
test-postgres: $(VENV)/development
	@command -v initdb > /dev/null || ls /usr/lib/postgresql/*/bin/initdb > /dev/null 2>&1 || { echo "make test-postgres needs PostgreSQL: install it (apt-get install postgresql)" >&2; exit 1; }
	$(PYTEST) -rs tests/postgres

# The wheel, with its own dependencies alone, and then the oldest of these. The programs that write the files are in the other
# environment.
test-as-run: $(VENV)/development $(VENV)-plain/ready $(VENV)-oldest/ready
	$(PYTEST) tests/as_run --headcount $(VENV)-plain/bin/headcount
	$(PYTEST) --ignore=tests/as_run/test_dist.py tests/as_run --headcount $(VENV)-oldest/bin/headcount

# Rows must be the same as with the newest, to the digest.
test-beam: $(VENV)-oldest/ready
	$(VENV)-oldest/bin/python -m pytest -n 2 --dist worksteal $(MORE) tests/golden/test_transforms.py tests/transforms/test_replay.py

# Made anew, since a tag changes the version and no file.
dist:
	rm -f build/dist-checked
	$(MAKE) build/dist-checked

# The wheel is made of the sdist. The time in it is that of the commit, so that who builds it again gets the same bytes.
build/dist-checked: $(SOURCES) | $(VENV)-release/ready
	mkdir -p build
	rm -rf dist build/lib
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2> /dev/null || date +%s) PATH="$(abspath $(BIN)):$$PATH" $(VENV)-release/bin/python -m build --installer $$(test -x $(BIN)/uv && echo uv || echo pip) --outdir dist . > build/dist.log 2>&1 || { cat build/dist.log; exit 1; }
	$(VENV)-release/bin/twine check --strict dist/*
	$(VENV)-release/bin/check-wheel-contents dist/*.whl
	touch $@

sbom: $(VENV)-plain/ready
	$(VENV)-release/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible --output-file build/sbom.json $(VENV)-plain/bin/python

BUILDER ?= $(shell command -v podman || command -v docker)
image:
	@test -n "$(BUILDER)" || { echo "make image needs Podman or Docker: install one (apt-get install podman)" >&2; exit 1; }
	tag=$$(git describe --tags --exact-match --match 'v[0-9]*' 2> /dev/null); \
	$(BUILDER) build -f deploy/image/Containerfile --build-arg "VERSION=$${tag#v}" --tag headcount .
	$(BUILDER) run --rm --network none --read-only --tmpfs /tmp headcount --version

workflows: $(VENV)-release/ready
	$(VENV)-release/bin/zizmor --offline --quiet .github
	if command -v go > /dev/null; then go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12; fi

# An environment with nothing but the wheel and what it needs.
$(VENV)-plain/ready: build/dist-checked
	rm -rf $(VENV)-plain
	.ci/environment $(VENV)-plain dist/*.whl
	touch $@

$(VENV)-release/ready: deploy/release/requirements.txt | $(VENV)/uv
	.ci/environment $(VENV)-release -r deploy/release/requirements.txt
	touch $@

$(VENV)-oldest/ready: tests/oldest.txt setup.py pyproject.toml | $(VENV)/uv
	.ci/environment $(VENV)-oldest -r tests/oldest.txt -e .
	touch $@

# The first environment, and in it what installs into all: a machine has Python, and needs no uv.
$(VENV)/uv: deploy/release/uv.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile -r deploy/release/uv.txt || echo "uv cannot be had here: pip installs, in minutes" >&2
	touch $@

$(VENV)/runtime: requirements.txt setup.py pyproject.toml | $(VENV)/uv
	.ci/environment $(VENV) -r requirements.txt -e .
	touch $@

# mypy and the site's reference cannot follow the mapping of an editable install, so they get a tree of links.
$(VENV)/links: $(VENV)/runtime $(filter-out headcount/__pycache__,$(wildcard headcount/*))
	rm -rf $(VENV)/src
	mkdir -p $(VENV)/src/headcount
	for path in $(PACKAGES) $(filter-out %/__pycache__,$(wildcard headcount/*)); do ln -sfn ../../../$$path $(VENV)/src/headcount/$$(basename $$path); done
	touch $@

$(VENV)/development: $(VENV)/runtime tests/requirements.txt | $(VENV)/links
	.ci/environment $(VENV) -r tests/requirements.txt
	touch $@

$(VENV)/docs: $(VENV)/runtime docs/requirements.txt | $(VENV)/links
	.ci/environment $(VENV) -r docs/requirements.txt
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-plain $(VENV)-release build dist demo
