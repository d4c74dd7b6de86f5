# `make demo` and `make test` set up everything they need in .venv; nothing else is installed anywhere.

PYTHON ?= python3
DEMO_DIR ?= demo
DEMO_FLAGS ?=
CAMPAIGN_FLAGS ?=
KILL_FLAGS ?=
RESULTS_FLAGS ?=
PTB_DIR ?= runs/ptb
PTB_FLAGS ?= --only='^(text|corpus|start-1)'
TEST_PATHS := $(CURDIR):$(CURDIR)/tests:$(CURDIR)/tests/programs:$(CURDIR)/tests/small:$(CURDIR)/tests/references
# Two processes: TensorFlow leaves one core idle while it traces and compiles. Each has half of the tests, in order, so
# that fixtures are shared; the one that ends first takes tests from the end of the other's.
TEST_FLAGS ?= --numprocesses=2 --dist=worksteal

.PHONY: demo demo-xlnet ptb quick test test-times test-slow test-tpu test-beam test-clients test-engines test-full-size campaign kills results notebook wheel lint docs figures clean

demo: .venv/installed
	.venv/bin/python scripts/demos/demo.py --dir=$(DEMO_DIR) $(DEMO_FLAGS)

demo-xlnet: .venv/installed-demo
	.venv/bin/python scripts/demos/demo_xlnet.py $(DEMO_FLAGS)

# The paper's table 5: `make ptb PTB_SOURCE=FOLDER`, with ptb.train.txt, ptb.valid.txt and ptb.test.txt in FOLDER. The same
# command goes on where it stopped; PTB_FLAGS has other runs, such as --only=. for all seeds and both second phases.
ptb: .venv/installed
	@test -n "$(PTB_SOURCE)" || { echo "error: make ptb PTB_SOURCE=FOLDER: the folder with ptb.train.txt" >&2; exit 1; }
	mkdir -p $(PTB_DIR)
	test -f $(PTB_DIR)/page.md || printf '# Penn Treebank\n\n---\n' > $(PTB_DIR)/page.md
	.venv/bin/python evidence/studies/ptb.py --source=$(PTB_SOURCE) --out=$(PTB_DIR) --scale=paper --page=$(PTB_DIR)/page.md \
	  $(PTB_FLAGS)

test: .venv/installed-dev
	.venv/bin/python -m pytest $(TEST_FLAGS) -m 'not slow'

# The first tests for a change: the code's layout, layers, models, operations, objectives, tasks, tables and settings, in a
# minute or two on two cores. They make no SavedModel and start no command.
QUICK := tests/test_layout.py tests/test_counted.py tests/test_progress.py tests/layers tests/models/test_transformer_xl.py \
	tests/models/test_xlnet.py tests/models/test_heads.py tests/models/test_wrong_inputs.py tests/ops/test_attention.py \
	tests/ops/test_shift.py tests/ops/test_int8.py tests/ops/test_cpu.py tests/objectives/test_permutation_lm.py \
	tests/objectives/test_penalties.py tests/training/optimizer/test_schedules.py tests/tasks tests/metrics tests/settings \
	tests/references tests/data/tables tests/data/text/test_row_texts.py tests/data/test_words.py tests/data/test_threads.py \
	tests/storage/test_strict_json.py
quick: .venv/installed-dev
	.venv/bin/python -m pytest $(TEST_FLAGS) -m 'not slow' $(QUICK) --ignore=tests/tasks/test_a_new_task.py

# The same, and then where the time went, by file.
test-times: .venv/installed-dev
	mkdir -p build
	.venv/bin/python -m pytest $(TEST_FLAGS) -m 'not slow' --junitxml=build/tests.xml
	.venv/bin/python tests/times.py build/tests.xml

# Whole commands, killed runs and several processes.
test-slow: .venv/installed-dev
	.venv/bin/python -m pytest $(TEST_FLAGS) -m slow

# The same suite with TensorFlow's TPU wheel, whose library stays unloaded: no TPU is needed.
test-tpu: .venv-tpu/installed
	TPU_LOAD_LIBRARY=0 TPU_SKIP_MDS_QUERY=1 .venv-tpu/bin/python -m pytest $(TEST_FLAGS)

# The tests that need Apache Beam, which has a .venv of its own.
test-beam: .venv-beam/installed
	.venv-beam/bin/python -m pytest tests/data/test_large.py

# The tests with programs that people use beside txl_tf, such as lm_eval and openai, which have a .venv of their own.
test-clients: .venv-clients/installed
	.venv-clients/bin/python -m pytest tests/clients

# The programs of examples/engines/ on Ray, Spark (which needs Java 17 or newer) and Beam, with workers that are killed.
test-engines: .venv-engines/installed .venv-beam/installed
	.venv-engines/bin/python -m pytest tests/engines
	.venv-beam/bin/python -m pytest tests/engines/test_beam.py

test-full-size: .venv/installed-dev
	.venv/bin/python -m pytest -s tests/published/full_size.py

# Every number, file and path that a command takes, made wrong in every way, and odd ones; CONTRIBUTING.md has the kinds.
campaign: .venv/installed-dev
	PYTHONPATH=$(TEST_PATHS) .venv/bin/python -m campaign $(CAMPAIGN_FLAGS)

# kill -9 at random moments; KILL_FLAGS="--kills=20 --seed=1".
kills: .venv/installed-dev
	PYTHONPATH=$(TEST_PATHS) .venv/bin/python -m campaign.kills $(KILL_FLAGS)

# Measures this machine for docs/results.md; RESULTS_FLAGS="--machine=NAME --peer=tf_models=PYTHON".
results: .venv/installed-dev
	.venv/bin/python evidence/bench/results.py $(RESULTS_FLAGS)

# Runs examples/tour.ipynb from the first cell to the last, and keeps what it shows.
notebook: .venv/installed-notebook
	.venv/bin/jupyter nbconvert --to notebook --execute --inplace \
	  --ExecutePreprocessor.record_timing=False examples/tour.ipynb

# dist/txl_tf-*.whl; tests/test_txl.py checks what is in it.
wheel: .venv/installed
	.venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir=dist .

lint: docs .venv/installed-dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/shellcheck --external-sources --source-path=SCRIPTDIR .ci/run tpu/*.sh
	.venv/bin/hadolint docker/cpu.Dockerfile docker/gpu.Dockerfile

# The documentation site, in build/site. A broken link is an error.
docs: .venv-docs/installed
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build

# The pictures of docs/figures/, each by the program of its name.
figures: .venv/installed
	for figure in $(filter-out docs/figures/drawing.py,$(wildcard docs/figures/*.py)); do \
	  .venv/bin/python $$figure || exit 1; \
	done

clean:
	rm -rf .venv .venv-tpu .venv-beam .venv-clients .venv-engines .venv-docs demo demo-xlnet build dist *.egg-info

.venv/installed: requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || \
	  { echo "error: $(PYTHON) must be Python 3.10 to 3.13 (TensorFlow's range): make PYTHON=/path/to/python3.12 ..." >&2; exit 1; }
	@echo "installing TensorFlow and what else txl_tf needs into .venv: 2.5 GB on the disk, in one to three minutes; pip says how it goes on"
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --disable-pip-version-check -r requirements.txt
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

.venv/installed-server: .venv/installed serving/requirements.txt
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -r serving/requirements.txt
	touch $@

# The bag of words of `make demo-xlnet` is scikit-learn's.
.venv/installed-demo: .venv/installed-server
	.venv/bin/python -m pip install --quiet --disable-pip-version-check 'scikit-learn>=1.4,<2'
	touch $@

.venv/installed-notebook: .venv/installed requirements-notebook.txt
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-notebook.txt
	touch $@

.venv-tpu/installed: tpu/requirements.txt requirements-sklearn.txt requirements-tables.txt serving/requirements.txt examples/requirements-litert.txt pyproject.toml
	$(PYTHON) -m venv .venv-tpu
	.venv-tpu/bin/python -m pip install --quiet --disable-pip-version-check -r tpu/requirements.txt \
	  -r requirements-sklearn.txt -r requirements-tables.txt -r serving/requirements.txt -r examples/requirements-litert.txt \
	  'pytest>=8,<10' 'pytest-xdist>=3.2,<4' 'scipy>=1.11,<2'
	.venv-tpu/bin/python -m pip install --quiet --disable-pip-version-check --no-deps tensorflow-text==2.20.1 --editable .
	touch $@

# An environment of its own with txl_tf, pytest and what the argument names.
define environment
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt $(1) 'pytest>=8,<10'
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@
endef

.venv-beam/installed: requirements.txt requirements-beam.txt pyproject.toml
	$(call environment,-r requirements-beam.txt)

.venv-clients/installed: requirements.txt requirements-clients.txt requirements-harness.txt serving/requirements.txt pyproject.toml
	$(call environment,-r requirements-clients.txt -r serving/requirements.txt)

.venv-engines/installed: requirements.txt requirements-engines.txt pyproject.toml
	$(call environment,-r requirements-engines.txt)

.venv-docs/installed: requirements-docs.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-docs.txt
	touch $@

.venv/installed-dev: .venv/installed requirements-dev.txt requirements-sklearn.txt requirements-tables.txt evidence/compilers/requirements-aot.txt serving/requirements.txt examples/requirements-litert.txt
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@
