.DEFAULT_GOAL := help
PY := .venv/bin/python
TEST_PROCESSES ?= 2
# Without compiled modules every process spends half a minute importing torch and LeRobot.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo picture study base base-proof test test-all check verify bench bench-env bench-eval expert plus-instances pro-tasks fullsize docs \
	explorer-speed serve-load serve-fuzz serve-hostile soak study-kills adaptive real-time bounds-study alarm-study acting-study choice-study miniature \
	format lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/.ready ## two demonstrations, four heads, every route: the study in miniature, with a report (ten minutes on two cores)
	@$(PY) scripts/check_gl.py
	@.venv/bin/qhead study two-demo --settings demo --out runs/demo

picture: .venv/.ready ## docs/routes.gif, the README's moving picture, from the episodes of make demo
	@.venv/bin/qhead film "runs/demo/embedded+obstacle" --out docs/routes.gif \
		--episode '["embedded+obstacle",0,0,0,"quantile-0","median"]' \
		--episode '["embedded+obstacle",0,0,0,"quantile-0","density(rho=0.9, n=2)"]'

study: .venv/.ready ## the two-demonstration study at full length, embedded and LIBERO (many hours); resumes; writes runs/study/
	@.venv/bin/qhead study two-demo --settings study --out runs/study

test: .venv/.ready ## install what is missing and run the tests (a few minutes on two cores)
	@$(PY) scripts/check_gl.py
	@OMP_NUM_THREADS=1 $(PY) -m pytest -n $(TEST_PROCESSES) --dist loadfile

test-all: .venv/.ready ## all tests, the slow ones too: kills, two training processes, every suite (a quarter of an hour)
	@$(PY) scripts/check_gl.py
	@OMP_NUM_THREADS=1 $(PY) -m pytest -n $(TEST_PROCESSES) --dist loadfile --slow --durations=10

check: .venv/.ready ## lint, format, types, import boundaries
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports

verify: .venv/.ready ## print the theory's claims beside what was measured
	@.venv/bin/qhead verify

bench: .venv/.ready ## speed and memory of the maths against plain PyTorch, of the policy against LeRobot's; writes runs/bench/
	@$(PY) benchmarks/core_speed.py
	@$(PY) benchmarks/policy_sweeps.py
	@$(PY) benchmarks/policy_speed.py

fullsize: .venv/.ready ## build, run, save, reload the full-size pi0.5 with random weights (20 GiB of memory, 14 GB of disk)
	@$(PY) scripts/fullsize.py

bench-env: .venv/.ready ## steps per second with pictures on demand against rendering every step; writes runs/bench-env/
	@OMP_NUM_THREADS=1 $(PY) benchmarks/env_speed.py

bench-eval: .venv/.ready ## episodes per minute of qhead eval against lerobot-eval; how time grows with workers; writes runs/bench-eval/ (20 minutes)
	@OMP_NUM_THREADS=1 $(PY) benchmarks/eval_sweeps.py
	@OMP_NUM_THREADS=1 $(PY) benchmarks/eval_speed.py

explorer-speed: .venv/.ready ## qhead explore on a run of 6,000 episodes in Chromium: opening, scrubbing, memory, size of the single file
	@OMP_NUM_THREADS=1 $(PY) -m scripts.explorer_speed

expert: .venv/.ready ## the scripted experts: 50 embedded states, 10 x 10 of LIBERO-Object, 40 x 10 of LIBERO (an hour); writes docs/results/libero_scripted.md
	@OMP_NUM_THREADS=1 $(PY) scripts/prove_expert.py

serve-load: .venv/.ready ## 100 clients x 100 requests, slow clients, a killed server; writes runs/serve-load/
	@OMP_NUM_THREADS=1 $(PY) -m scripts.serve_load

serve-fuzz: .venv/.ready ## 200,000 malformed frames against a running server; writes runs/serve-fuzz/
	@OMP_NUM_THREADS=1 $(PY) -m scripts.serve_fuzz

serve-hostile: .venv/.ready ## drift, floods, lockout, descriptors, memory, mixed pictures against a running server; writes runs/serve-hostile/ (minutes)
	@OMP_NUM_THREADS=1 $(PY) -m scripts.serve_hostile

adaptive: .venv/.ready ## adaptive replanning against fixed steps in the embedded scene; resumes; writes runs/adaptive/
	@OMP_NUM_THREADS=1 $(PY) -m scripts.adaptive

real-time: .venv/.ready ## chunks that join while the robot moves: delays, cost, surprise; resumes; writes docs/results/real_time/ (hours)
	@OMP_NUM_THREADS=1 $(PY) -m scripts.real_time

bounds-study: .venv/.ready ## intervals before and after the conformal correction, CRPS beside flow samples, on held-out LIBERO demonstrations; resumes; writes docs/results/bounds.md (an hour)
	@OMP_NUM_THREADS=1 $(PY) -m scripts.doubt bounds

alarm-study: .venv/.ready ## failures told by quantile signals, three seeds, flow samples and time, and false alarms, in LIBERO; resumes; writes docs/results/alarm.md (hours)
	@OMP_NUM_THREADS=1 $(PY) -m scripts.doubt alarm

acting-study: .venv/.ready ## looking again on alarm against fixed and adaptive steps in LIBERO, paired; resumes; writes docs/results/acting.md (hours)
	@OMP_NUM_THREADS=1 $(PY) -m scripts.doubt acting

choice-study: .venv/.ready ## decoders chosen by successive rejects on two demonstrations and in a LIBERO task, confirmed on other episodes; resumes; writes docs/results/decoder_choice.md (half an hour)
	@OMP_NUM_THREADS=1 $(PY) -m scripts.choosing

MINIATURE := --miniature --dataset runs/miniature/data/dataset --out runs/miniature --summary docs/results/miniature
miniature: .venv/.ready ## pilot, ablations, sampling and sweeps in miniature, from scripted demonstrations of LIBERO to a verdict per claim; resumes; writes docs/results/miniature/ (a day)
	@.venv/bin/qhead collect --suite libero_object,libero_spatial --camera-size 96 --states 20-39 --episodes 6 --out runs/miniature/data
	@for study in pilot ablations sampling k_sweep r_sweep; do .venv/bin/qhead study run $$study $(MINIATURE) || exit $$?; done
	@.venv/bin/qhead study verdicts docs/results/miniature --out docs/results/does_it_hold.md

study-kills: .venv/.ready ## the ablation study in miniature from start to table, killed twice on the way; writes runs/study-kills/ (minutes)
	@OMP_NUM_THREADS=1 $(PY) -m scripts.study_kills

soak: .venv/.ready ## two hours of clients, drifting clocks and floods: the server's memory, descriptors and threads stay flat; writes runs/soak/
	@OMP_NUM_THREADS=1 $(PY) -m scripts.serve_soak

plus-instances: .venv/.ready ## reset, step and render eight instances of every LIBERO-Plus category that has its files, all of the backgrounds
	@OMP_NUM_THREADS=1 $(PY) scripts/check_perturbed.py plus --each 8 --whole "Background Textures" --pictures runs/plus-instances

pro-tasks: .venv/.ready ## reset, step and render all 160 perturbed LIBERO-Pro tasks (ten minutes)
	@OMP_NUM_THREADS=1 $(PY) scripts/check_perturbed.py pro

base: .venv/.ready ## make the base checkpoint of the tiny variant from its seed (about an hour on two idle cores)
	@OMP_NUM_THREADS=1 .venv/bin/qhead pretrain --out runs/base

base-proof: .venv/.ready ## the shipped base checkpoint on 100 unseen states and the 50 of task 0 (a quarter of an hour)
	@OMP_NUM_THREADS=1 $(PY) scripts/prove_base.py

docs: .venv/.ready ## the site: site/index.html from docs/, commands and configuration from the code; a broken link is an error
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict
	@echo "site/index.html"

format: .venv/.ready ## fix what lint and format can fix
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

lock: .venv/.ready ## resolve the newest allowed versions into requirements.lock
	@.venv/bin/uv pip compile --quiet --upgrade --universal --python-version 3.12 --no-header --extra all --group dev \
		pyproject.toml --output-file requirements.lock

clean: ## remove the environment and what runs left behind
	rm -rf .venv runs site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

.venv/.ready: requirements.lock pyproject.toml scripts/bootstrap
	@scripts/bootstrap
