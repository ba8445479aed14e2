# Two commands: `make demo` and `make test`. Both set up what they need and can be called again at any time.

PYTHON ?= python3
VENV   ?= .venv
# The newest that can be had; used only where $(PYTHON) has no torch: `make demo TORCH=torch==2.11.0`
TORCH  ?= torch>=2.8
# Arguments for pytest: `make test ARGS='-k cancel -x'`
ARGS   ?=
# Where `make man` writes
MANDIR ?= build/man
# Seconds of `make fuzz`, of all formats and processes together
FUZZ_SECONDS ?= 600

RUN    := $(VENV)/bin/python -m
# Of the whole suite more tests wait, for timeouts and for Slurm, than compute: four workers keep two cores busy.
PYTEST := $(RUN) pytest --dist loadgroup -n
# Files and folders whose tests start nothing: 3,000 of the suite's 8,000. All without torch: ARGS="-m 'not slow'".
PURE_CORE := tests/evidence tests/diagnosis tests/lint tests/logs tests/test_plain_text.py tests/test_settings.py
# What tests call beside Python: packages of Debian and Ubuntu.
SYSTEM_PACKAGES := gcc g++ binutils libc6-dev git util-linux e2fsprogs faketime zsh fish fonts-dejavu-core
# A browser for the pages: 18 packages, and a hundred more with all that it recommends. Without one those tests are
# skipped: not every distribution has it (Ubuntu has a snap), and Chrome does as well.
BROWSER_PACKAGES := chromium-headless-shell
# What the cluster in a box is made of (tests/cluster).
BED_PACKAGES := iproute2 util-linux procps slurm-wlm libslurm-dev munge openssh-client openssh-server

# The tests start distdbg a thousand times: without bytecode each start compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-all test-fast fuzz gpu-box gpu-check newest-python lint docs man bench system-packages bed clean
.DELETE_ON_ERROR:

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

demo: $(VENV)/.ready  ## install, train on two nodes of this machine, show the report
	$(VENV)/bin/distdbg launch --nodes 2 launch/ddp.py
	$(VENV)/bin/distdbg report
	@echo "The page: $(CURDIR)/distdbg-runs/latest/report/report.html"

test: lint  ## set up and run the suite, with a sample of the cases that differ in breadth
	$(PYTEST) 4 $(ARGS)

test-all: lint  ## the same with every case, as CI does
	$(PYTEST) 4 --all $(ARGS)

test-fast: $(VENV)/.ready-test  ## the pure core, about a minute: evidence, logs, diagnosis, lint
	$(PYTEST) 2 -m 'not slow' $(PURE_CORE) $(ARGS)

fuzz: $(VENV)/.ready-test  ## mutate every format that is read, for FUZZ_SECONDS (600)
	DISTDBG_FUZZ_SECONDS=$(FUZZ_SECONDS) $(PYTEST) 3 tests/fuzz $(ARGS)

gpu-box: $(VENV)/.ready-test  ## build the simulated GPUs: torch with CUDA in the user's cache, and our libraries
	$(RUN) gpu_box.build --tested

gpu-check: $(VENV)/.ready-test  ## run tests/gpu on simulated GPUs and on this machine's: one table of what differs
	$(VENV)/bin/python tests/gpu/check.py $(ARGS)

newest-python: $(VENV)/.ready-test  ## the pure core and one launch with Python 3.14, in a chroot (root, Debian)
	@$(call install-missing,debootstrap)
	VENV=$(VENV) .ci/newest-python $(PURE_CORE) tests/collect/machine/test_pyspy.py tests/collect/machine/test_python_build.py

lint: $(VENV)/.ready-test  ## ruff and mypy --strict
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy

docs: $(VENV)/.ready-docs  ## build the documentation site into build/docs; a link that leads nowhere fails it
	NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --strict  # --quiet would hide warnings from --strict, too
	@echo "The site: $(CURDIR)/build/docs/index.html"

man: $(VENV)/.ready  ## write a man page for each command into build/man, or MANDIR
	$(VENV)/bin/distdbg man $(MANDIR)/man1

bench: $(VENV)/.ready-test  ## measure what distdbg costs, against plain torchrun
	for file in benchmarks/*.py; do $(VENV)/bin/python "$$file" || exit 1; done

# install-missing(PACKAGES, OPTIONS): nothing is asked of the network where all are there
define install-missing
	missing=$$(dpkg-query -W -f '$${Package} $${db:Status-Status}\n' $(1) 2>/dev/null \
	  | awk -v want='$(1)' '$$2 == "installed" { have[$$1] = 1 } \
	      END { n = split(want, w, " "); for (i = 1; i <= n; i++) if (!(w[i] in have)) printf "%s ", w[i] }'); \
	if [ -n "$$missing" ]; then apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(2) $$missing; fi
endef

system-packages:  ## install what the tests need from Debian (root)
	@$(call install-missing,$(SYSTEM_PACKAGES))
	-@$(call install-missing,$(BROWSER_PACKAGES),--no-install-recommends)

bed:  ## install what the cluster in a box is made of (root)
	@$(call install-missing,$(BED_PACKAGES))

clean:  ## remove what make made (runs stay)
	rm -rf $(VENV) build dist *.egg-info gpu_box/build gpu_box/*.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.ready: pyproject.toml gpu_box/pyproject.toml .ci/environment.py
	$(PYTHON) .ci/environment.py $(VENV) --torch '$(TORCH)'
	@touch $@

$(VENV)/.ready-test: pyproject.toml gpu_box/pyproject.toml .ci/environment.py
	$(PYTHON) .ci/environment.py $(VENV) --torch '$(TORCH)' --extra test
	@touch $@ $(VENV)/.ready

$(VENV)/.ready-docs: pyproject.toml gpu_box/pyproject.toml .ci/environment.py
	$(PYTHON) .ci/environment.py $(VENV) --torch '$(TORCH)' --extra docs
	@touch $@ $(VENV)/.ready
