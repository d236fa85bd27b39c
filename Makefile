# The commands of the project. `make demo` and `make test` are all that a newcomer needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python

# Bytecode is kept, also where the environment says otherwise: every process that tests start would
# compile all modules again, and pytest rewrite all tests.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/build/bytecode

.PHONY: fuzz fuzz-ascend fuzz-cambricon fuzz-hlal suite help demo test test-slow test-exhaustive test-all test-frontends \
  test-oracles test-clang test-cpus durations check docs format bench clean

help:
	@echo "make demo    set up, then compile LeNet-5 for two targets and classify the held-out digits"
	@echo "make test    set up, then run all tests but the slow ones"
	@echo "make test-all"
	@echo "             the same, then the slow ones (make test-slow), then more cases of these"
	@echo "             (make test-exhaustive)"
	@echo "make test-frontends"
	@echo "             install PyTorch and the other front-ends' packages, then run their tests"
	@echo "make test-oracles"
	@echo "             install AscendNPU-IR's tools (160 MB, Linux on x86-64), then ask them about HIVM"
	@echo "make test-clang"
	@echo "             install clang from PyPI (100 MB), then build what is emitted with it, too"
	@echo "make test-cpus"
	@echo "             run the cpu target's tests as if this were each of three other processors"
	@echo "make durations"
	@echo "             write build/durations.txt: how long each test took when it was last run"
	@echo "make check   lint, types, tests of the files that differ from main and a few of every room"
	@echo "make docs    write docs/api.md, docs/limits.md and the pictures anew (needs Chromium)"
	@echo "make suite   run ONNX's backend suite and write the table of what passes"
	@echo "make fuzz    run COUNT=1000 random graphs (SEED=0) on all engines and compare"
	@echo "make fuzz-ascend"
	@echo "             take each flag away from COUNT=1000 DaVinci kernels (SEED=0): is it reported?"
	@echo "make fuzz-cambricon"
	@echo "             run COUNT=1000 programs of random words (SEED=0) on Cambricon's simulator"
	@echo "make fuzz-hlal"
	@echo "             assemble and run COUNT=1000 changed HLAL texts (SEED=0)"
	@echo "make bench   print the project's tables (takes a while)"

$(RUN):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Tilewright needs Python 3.11 or newer; name one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Versions are held by constraints.txt, so that the same commands work next year.
$(VENV)/.demo: $(RUN) pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.test: $(RUN) pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	@touch $@

$(VENV)/.check: $(VENV)/.test
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,lint]'
	@touch $@

demo: $(VENV)/.demo
	$(RUN) examples/lenet5/demo.py

# What numba compiles in a fresh clone is compiled once, beside the tests, not by each worker.
AHEAD := $(RUN) -m tests.compile_ahead

# The tests' times are kept, for `make durations`. Further options: make test PYTEST=--durations=25
PYTEST ?=
TESTED := $(RUN) -m pytest -n 2 --dist worksteal $(PYTEST)

# All C is built without optimisation here; slow tests of C itself build it with (tests/conftest.py).
test: $(VENV)/.test
	$(AHEAD) & $(TESTED) --quick --junitxml build/tests/test.xml -m "not slow or smoke"

test-slow: $(VENV)/.test
	$(AHEAD) & $(TESTED) --junitxml build/tests/slow.xml -m "slow and not smoke and not exhaustive"

# A few cases of each slow test find what breaks it; these are the others.
test-exhaustive: $(VENV)/.test
	$(AHEAD) & $(TESTED) --junitxml build/tests/exhaustive.xml -m "exhaustive and not smoke"

test-all: test
	$(MAKE) test-slow
	$(MAKE) test-exhaustive

durations: $(VENV)/.test
	@test -d build/tests || { echo "no test has been run: make test, or make test-all"; exit 1; }
	$(RUN) -m tests.durations build/tests/*.xml > build/durations.txt
	@head -12 build/durations.txt

# The front-ends' own packages are large; their tests skip themselves under `make test`.
FRONTEND_TESTS := $(wildcard tests/test_pins.py tests/frontends/torch tests/frontends/stablehlo \
  tests/frontends/tensorflow tests/errors/test_stablehlo_refusals.py tests/numbers/calibration \
  tests/integrations/dlplib/test_pytorch.py)

$(VENV)/.frontends: $(VENV)/.test
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt \
	  -e '.[test,test-frontends]'
	@touch $@

test-frontends: $(VENV)/.frontends
	$(TESTED) $(FRONTEND_TESTS)

# Tools of others, that judge what is emitted; nothing else needs them.
ORACLES := build/oracles
$(ORACLES)/.npuir: $(VENV)/.test
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target $(ORACLES) --upgrade \
	  --only-binary :all: --platform manylinux_2_28_x86_64 --python-version 3.11 ascendnpu-ir==1.2.0
	@touch $@

test-oracles: $(ORACLES)/.npuir
	BISHENGIR_OPT=$(CURDIR)/$(ORACLES)/ascendnpuir/bin/bishengir-opt \
	  $(RUN) -m pytest -m oracle tests/targets/ascend

CLANG := build/clang
$(CLANG)/bin/clang: tests/clang.sh $(VENV)/.test
	$(BIN)/pip install --quiet --disable-pip-version-check --target $(CLANG) --upgrade ziglang==0.17.1
	@mkdir -p $(@D)
	install -m 755 tests/clang.sh $@

# What is emitted is built with clang too, where there is one.
test-clang: $(CLANG)/bin/clang
	PATH="$(CURDIR)/$(CLANG)/bin:$$PATH" $(TESTED) -m "not smoke" tests/targets/generic/c \
	  tests/targets/ascend/test_emit.py tests/targets/cpu/test_builds.py \
	  tests/targets/cpu/test_short_floats.py

# No test may ask what is planned for the processor at hand (tests/described_processors.py).
test-cpus: $(VENV)/.test
	for cpu in xeon-amx zen5 sse2; do \
	  $(TESTED) -q -m "not slow" --as-cpu $$cpu tests/targets/cpu || exit 1; done

check: $(VENV)/.check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@# Types are one process for half a minute: tests run beside it. With room for what is new, node
	@# collects garbage less often, which took a fifth of its time.
	NODE_OPTIONS=--max-semi-space-size=128 $(BIN)/pyright & types=$$!; $(AHEAD) & \
	  $(RUN) -m pytest -q -n 2 --dist worksteal -m "not slow" --quick $$($(RUN) -m tests.changed); \
	  tested=$$?; \
	  wait $$types && exit $$tested

docs: $(VENV)/.test
	$(RUN) docs/api.py
	$(RUN) docs/limits.py
	$(RUN) docs/report_picture.py

format: $(VENV)/.check
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

COUNT ?= 1000
SEED ?= 0

fuzz: $(VENV)/.test
	$(RUN) -m tests.fuzz --count $(COUNT) --seed $(SEED)

fuzz-ascend: $(VENV)/.test
	$(RUN) -m tests.targets.ascend.mutations --count $(COUNT) --seed $(SEED)

fuzz-cambricon: $(VENV)/.test
	$(RUN) -m tests.targets.cambricon.fuzz --count $(COUNT) --seed $(SEED)

fuzz-hlal: $(VENV)/.test
	$(RUN) -m tests.targets.cambricon.hlal.fuzz --count $(COUNT) --seed $(SEED)

suite: $(VENV)/.test
	$(RUN) -m tests.suites.table

bench: $(VENV)/.test
	$(RUN) -m benchmarks

clean:
	rm -rf $(VENV) build .pytest_cache .ruff_cache .hypothesis
