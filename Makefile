# Farwrite. `make` alone lists the targets; `make demo` and `make test` do all the set-up they need.
CARGO ?= cargo
# Outside of the clone, so that the next clone finds them.
TOOLS ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/farwrite-tools
DENY := $(TOOLS)/bin/cargo-deny
DENY_VERSION := 0.20.2

# Property tests draw the same cases in each run. `PROPTEST_RNG_SEED=2 make unit` draws others.
export PROPTEST_RNG_SEED ?= 1

# Many tests wait in real time, so more of them run at once than there are cores.
export RUST_TEST_THREADS ?= 4

# Continuous integration compiles everything once, and nobody debugs what it compiles: an eighth less work.
ifeq ($(CI),true)
export CARGO_INCREMENTAL := 0
export CARGO_PROFILE_DEV_DEBUG := 0
endif

.DEFAULT_GOAL := help
.PHONY: help demo explorer test test-small package macos check unit isal arm loom tsan asan system test-verbs test-verbs-short browser deny python torch torch-versions gpu wheel figures figures-protocol figures-boxes figures-optinic figures-collectives figures-training figures-vm figures-paths bench bench-cores bench-packet-time bench-completion bench-agreement bench-path bench-paths bench-durable bench-many-files bench-scale bench-copies bench-model bench-sim bench-torch bench-collectives bench-hadamard bench-train bench-train-matrix bench-inference model-check sim-check fuzz soak mutants miri deb deb-c dist install install-c hooks clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

DEMO := $(CARGO) run --profile demo --package farwrite-cli -- demo

demo: ## a long and a short message over an emulated long link, with each scheme; pictures in out/
	@echo "A long message: repeats take a round trip, sending takes forty."
	$(DEMO) --out out/long
	@echo
	@echo "A short message at higher loss: parity saves the round trips of repeats."
	$(DEMO) --size 4MiB --loss 1% --out out/short

WASM := wasm32-unknown-unknown

explorer: ## the completion-time model as a web page that works offline: out/explorer.html
	@[ -d "$$(rustc --print sysroot)/lib/rustlib/$(WASM)" ] || rustup target add $(WASM)
	$(CARGO) build --locked --profile page --target $(WASM) --package farwrite-explorer
	python3 crates/explorer/bundle.py \
		$${CARGO_TARGET_DIR:-target}/$(WASM)/page/farwrite_explorer.wasm out/explorer.html

# Each stage runs, also after one has failed.
test: ## all tests: format, lints, dependency policy, unit, scenario, system, browser, Python and PyTorch tests, packages, what compiles for macOS, RDMA devices in a virtual machine
	@MAKE="$(MAKE)" tests/stages check deny unit isal loom system browser python torch package macos test-verbs-short

test-small: ## the tests that need neither root nor PyTorch
	@MAKE="$(MAKE)" tests/stages check deny unit loom python package

package: ## pack all crates for crates.io, without compiling them from there, and check their descriptions
	@# Cargo also packs the crates that are not published: to name the others takes a list.
	$(CARGO) package --workspace --no-verify --allow-dirty --quiet --target-dir $${CARGO_TARGET_DIR:-target}/package-check
	dist/metadata

# `make macos PROCESSOR=x86_64` for the other processor; `make dist` checks both.
PROCESSOR ?= aarch64
macos: ## check that the model, the simulator and the Python package without torch compile for macOS (downloads zig)
	dist/macos $(TOOLS) $(PROCESSOR)

# Features that are off by default, and are tested.
FEATURES := farwrite-stream/tokio

CORES := wire codes link route rate deadline sdr schemes rc boxes

check: ## format, lints (with ISA-L, whose tools it installs on Debian as root), citations, links and messages of commits; also that the core crates are no_std, without clock, sockets and randomness
	@for core in $(CORES); do grep -q '^#!\[no_std\]' crates/$$core/src/lib.rs \
		|| { echo "crates/$$core must be no_std"; exit 1; }; done
	tests/docs/check
	python3 tests/commits/test_check.py --quiet
	tests/commits/check
	python3 tests/test_stages.py --quiet
	$(CARGO) fmt --all --check
	@# With the feature `isal` where ISA-L can be built, so that nothing is checked twice. The tests of RDMA
	@# devices, which `make unit` does not compile, by their names.
	@if crates/bench/prepare-isal; then isal="--features farwrite-bench/isal"; fi; set -x; \
		$(CARGO) clippy --workspace --features $(FEATURES) $$isal --all-targets --quiet -- -D warnings && \
		$(CARGO) clippy --workspace --features $(FEATURES) $$isal --test contract --test device --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --features $(FEATURES) --no-deps --quiet

unit: ## unit, property, scenario and loopback tests
	@# Examples are not built here: `check` compiles them. Tests send Ctrl-C to programs: a shell that runs
	@# `make test &` makes them ignore it.
	@set -x; failed=0; \
		env --default-signal=INT,HUP $(CARGO) test --workspace --features $(FEATURES) --tests --no-fail-fast || failed=1; \
		$(CARGO) test --workspace --features $(FEATURES) --doc || failed=1; exit $$failed

isal: ## compare parity bytes with those of ISA-L (installs nasm and autotools on Debian)
	@# Of the whole workspace, so that `unit` has built the rest.
	@if crates/bench/prepare-isal; then set -x; \
		$(CARGO) test --workspace --features $(FEATURES) --features farwrite-bench/isal --bin codes; \
	else test "$$CI" != true; fi

arm: ## the codes, and the fabric's copies, on an emulated 64-bit Arm (installs qemu and a linker on Debian)
	crates/codes/tests/arm

# Sanitizers need a nightly compiler. This one was tried.
NIGHTLY ?= nightly-2026-05-20
# $(call sanitized,NAME,FLAGS): fabrics, endpoints with threads, the C library and its C programs, with the sanitizer NAME.
# FLAGS are what -fsanitize of the C compiler gets; the runtime is that of the Rust compiler.
define sanitized
	@[ -d "$$(rustc +$(NIGHTLY) --print sysroot 2>/dev/null)/lib/rustlib/src" ] || \
		rustup toolchain install $(NIGHTLY) --profile minimal --component rust-src
	RUSTFLAGS="-Zsanitizer=$(firstword $(subst $(comma), ,$(2)))" CARGO_TARGET_DIR=target/$(1) FARWRITE_SANITIZERS=$(2) \
		FARWRITE_SANITIZER_RUNTIME="$$(rustc +$(NIGHTLY) --print target-libdir)/librustc-nightly_rt.$(1).a" \
		$(CARGO) +$(NIGHTLY) test -Zbuild-std --target x86_64-unknown-linux-gnu --package farwrite-fabric --test contract \
		--package farwrite --test threads --package farwrite-capi --test programs
endef
comma := ,

tsan: ## fabrics, endpoints with threads and C programs under ThreadSanitizer (downloads a nightly compiler)
	$(call sanitized,tsan,thread)

asan: ## the same under AddressSanitizer, which also looks for leaks (downloads a nightly compiler)
	$(call sanitized,asan,address$(comma)undefined)

loom: ## interleavings of receive workers on the slot table, of their notices and of coding threads
	@# The tests are short and everything below them is compiled again, so it is compiled without optimisation.
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom CARGO_PROFILE_DEV_OPT_LEVEL=0 $(CARGO) test \
		--package farwrite-sdr --package farwrite --lib -- interleavings

system: ## tests in network namespaces, checked with tshark and ISA-L (root; installs what they need on Debian)
	tests/system/run

# `make test-verbs VERBS="--json out/verbs.json contract"`: options, and the names of some cases of tests/vm/cases.py.
test-verbs: ## tests with RDMA devices, also through boxes: Soft-RoCE in a virtual machine (root; installs what it needs on Debian; five minutes)
	FEATURES="$(FEATURES)" tests/vm/run $(TOOLS) $(VERBS)

test-verbs-short: ## the most important cases of test-verbs (root; two minutes on two idle cores)
	FEATURES="$(FEATURES)" tests/vm/run $(TOOLS) --short

browser: explorer ## the explorer in headless Chromium (installs it on Debian as root)
	tests/explorer/run out/explorer.html

# Tests build the wheel with the profile that has compiled the rest of the workspace.
python: ## the Python package: format, lints, types, tests
	WHEEL_PROFILE=dev python/run $(TOOLS) python/check

torch: ## farwrite.torch, in a separate environment with PyTorch (4.3 GB, downloaded once): types, tests
	@# Of the whole workspace, whose libraries `make unit` has built: the package alone would compile them again.
	$(CARGO) build --quiet --workspace --bin farwrite
	FARWRITE=$$(realpath $${CARGO_TARGET_DIR:-target})/debug/farwrite \
		WHEEL_PROFILE=dev python/run $(TOOLS) --torch python/check-torch

# Not part of `make test`: 5 GB are downloaded for each version, and removed afterwards.
TORCH_VERSIONS ?= 2.7.1 2.11.0 newest
torch-versions: ## the tests of farwrite.torch with old and new versions of PyTorch, one after the other (15 GB of downloads)
	$(CARGO) build --quiet --workspace --bin farwrite
	FARWRITE=$$(realpath $${CARGO_TARGET_DIR:-target})/debug/farwrite \
		WHEEL_PROFILE=dev python/run $(TOOLS) python/torch-versions $(TOOLS) $(TORCH_VERSIONS)

gpu: ## tests with tensors of a GPU (needs a GPU of CUDA)
	python/run $(TOOLS) --torch python -P -m pytest --quiet -p no:cacheprovider python/tests_torch/test_gpu.py

wheel: ## the Python package as a wheel, in target/wheels
	@python/run $(TOOLS) sh -c 'ls "$$PYTHONPATH"/../wheels/*.whl'

deny: $(DENY) ## licences, sources, the borders between crates, and advisories where their database can be fetched
	$(DENY) --locked --log-level error check bans licenses sources
	@if timeout 60 $(DENY) fetch db 2>/dev/null; then $(DENY) --locked --log-level error check advisories; \
	else echo "deny: ADVISORIES ARE NOT CHECKED: the database of RustSec on github.com cannot be fetched" >&2; fi

$(DENY):
	$(CARGO) install --locked --root $(TOOLS) cargo-deny@$(DENY_VERSION)

COMPLETION := $(CARGO) run --release --quiet --package farwrite-bench --bin completion --
AGREEMENT := $(CARGO) run --release --quiet --package farwrite-bench --bin agreement --

# `make bench-cores CORES="--threads 1,2,4 --runs 5"`
bench-cores: ## measure: codes, receiving, and messages with parity against threads (five minutes)
	$(CARGO) build --release --package farwrite-bench
	tests/bench/cores $${CARGO_TARGET_DIR:-target}/release/farwrite-bench $(CORES)

# One part alone: `cargo run --release --package farwrite-bench -- PART`; --help lists the parts.
bench: ## measure: goodput and processor time compared with a raw blast, many queue pairs, memory, packets into bitmaps, codes compared with ISA-L, schemes over a lossy path
	crates/bench/prepare-isal && $(CARGO) run --release --package farwrite-bench --features isal --bin codes
	$(COMPLETION) --size-kib 8192 --loss 1e-4,1e-2 --samples 20
	$(CARGO) run --release --package farwrite-bench

bench-packet-time: ## measure: where the processor time of a packet goes, beside a raw blast, with perf (root)
	$(CARGO) build --release --quiet --package farwrite-bench
	python3 tests/bench/packet_time.py $${CARGO_TARGET_DIR:-target}/release/farwrite-bench

bench-completion: ## measure: completion times by scheme, over an emulated path (long)
	$(COMPLETION) --size-kib 8192 --samples 100
	$(COMPLETION) --size-kib 131072 --samples 20
	$(COMPLETION) --size-kib 8192 --loss 1e-3,1e-2 --burst 10,100 --samples 50

# The exit status is 1, since some cells differ by mechanisms that docs/results/agreement.md names.
bench-agreement: ## measure: completion times of shipped endpoints in virtual time, compared with the model (three quarters of an hour on two free cores)
	-$(AGREEMENT)
	-$(AGREEMENT) --rtt-ms 10,100 --size-kib 128,8192 --samples 1000
	-$(AGREEMENT) --size-kib 8192 --burst 10,100 --loss 1e-4,1e-3 --samples 1000

# `make bench-path PART="rate file"`; RUNS="--runs 5" and the like go to tests/bench/main.py. The picture of README
# has the rows of PART=alternatives RUNS="--csv figures/paths/alternatives.csv".
bench-path: ## measure: a file beside rsync and QUIC, transfers, files, messages, streams, small requests, sharing, changes, delay that varies and a flood over an emulated path, compared with TCP, rsync and quinn (root; long)
	tests/bench/run $(RUNS) $(PART)

bench-copies: ## measure: farwrite cp beside rsync, scp and tar over ssh and rsync over TCP BBR, by round trip and loss (root; an hour)
	tests/bench/run $(RUNS) copies

DISK ?= /var/tmp

bench-durable: ## measure: what it costs that files survive a power failure, on the disk of DISK=/var/tmp
	$(CARGO) build --release --quiet --package farwrite-cli --bin farwrite
	PYTHONPATH=tests/system python3 tests/bench/durable.py $${CARGO_TARGET_DIR:-target}/release/farwrite $(DISK)

bench-many-files: ## measure: 100,000 small files beside cp -r and sync -f, on the disk of DISK=/var/tmp
	$(CARGO) build --release --quiet --package farwrite-cli --bin farwrite
	PYTHONPATH=tests/system python3 tests/bench/many_files.py $${CARGO_TARGET_DIR:-target}/release/farwrite $(DISK)

# SCALE=0.01 is a check that it works.
SCALE ?= 1
bench-scale: ## measure: 1,000,000 small files beside cp -r, 100 GB through a pipe and a file of 25 GB, with the memory of both ends, on the disk of DISK=/var/tmp (55 GB; half an hour)
	$(CARGO) build --release --quiet --package farwrite-cli --bin farwrite
	PYTHONPATH=tests/system python3 tests/bench/scale.py $${CARGO_TARGET_DIR:-target}/release/farwrite $(DISK) $(SCALE)

VARIED := --rates 10,100,1000,10000 --rtts 5,50,600 --queues 1 --losses 0 --variations 1,3,10,20
bench-paths: ## measure: one endpoint on 192 paths, and 40 whose delay varies, in virtual time: goodput, queue, repeats (40 minutes on two cores)
	-$(CARGO) run --release --quiet --package farwrite-bench --bin paths
	$(CARGO) run --release --quiet --package farwrite-bench --bin paths -- $(VARIED)

# The rate is that of packets with their headers: 4160 bytes carry 4096. An exit status of 1 is about the
# goals of docs/results/agreement.md.
PROTOCOL := $(AGREEMENT) --rate-gbps 406.25
PROTOCOL_OUT := figures/protocol
figures-protocol: ## measure: shipped endpoints in virtual time at the settings of the paper's figures, for `make figures` (minutes)
	@mkdir -p $(PROTOCOL_OUT)
	-$(PROTOCOL) --size-kib 128,1024 --samples 10000 --csv $(PROTOCOL_OUT)/short.csv
	-$(PROTOCOL) --size-kib 8192 --loss 1e-6,1e-5,1e-4,1e-3 --samples 1000 --csv $(PROTOCOL_OUT)/8mib.csv
	-$(PROTOCOL) --size-kib 8192 --loss 1e-2 --samples 10000 --csv $(PROTOCOL_OUT)/8mib-lossy.csv
	-$(PROTOCOL) --size-kib 131072 --samples 60 --csv $(PROTOCOL_OUT)/128mib.csv
	-$(PROTOCOL) --size-kib 131072 --loss 1e-1 --schemes sr-rto --samples 20 --csv $(PROTOCOL_OUT)/lossy.csv
	-$(PROTOCOL) --size-kib 1048576 --schemes "sr-rto;ec-mds:32,8" --samples 10 --csv $(PROTOCOL_OUT)/1gib.csv
	-$(PROTOCOL) --size-kib 8388608 --loss 1e-6 --rtt-ms 25,66.66666666666667 --schemes "sr-rto;ec-mds:32,8" --samples 6 --csv $(PROTOCOL_OUT)/8gib.csv
	-$(PROTOCOL) --sites 4 --size-kib 8192 --loss 1e-5,1e-4,1e-3,1e-2 --schemes "sr-rto;ec-mds:32,8" --samples 150 --csv $(PROTOCOL_OUT)/rings.csv
	-$(PROTOCOL) --sites 2,6,8 --size-kib 8192 --loss 1e-3 --schemes "sr-rto;ec-mds:32,8" --samples 60 --csv $(PROTOCOL_OUT)/rings-by-sites.csv
	-$(PROTOCOL) --sites 4 --size-kib 1024 --loss 1e-5,1e-4,1e-3,1e-2 --schemes "sr-rto;ec-mds:32,8" --samples 10000 --csv $(PROTOCOL_OUT)/rings-tails.csv
	-$(AGREEMENT) --rate-gbps 3250 --size-kib 8388608 --loss 1e-6 --schemes "sr-rto;ec-mds:32,8" --samples 6 --csv $(PROTOCOL_OUT)/8gib-wide.csv

# With the settings of docs/results/boxes.md.
BOXES := $(CARGO) run --release --quiet --package farwrite-bench --example
BOXES_OUT := figures/boxes
figures-boxes: ## measure: LoWAR and NetRT boxes in virtual time at the settings of the papers' figures, for `make figures` and docs/results/boxes.md (three hours of processor time)
	@mkdir -p $(BOXES_OUT)
	$(BOXES) lowar -- goodput --rtt-us 40000 --loss 0 --seconds 1 --csv $(BOXES_OUT)/goodput-40ms-lossless.csv
	$(BOXES) lowar -- goodput --rtt-us 40000 --loss 1e-5,3e-5,3e-4,1e-3 --seconds 1 --seeds 4 --csv $(BOXES_OUT)/goodput-40ms.csv
	$(BOXES) lowar -- goodput --rtt-us 40000 --loss 1e-4 --seconds 1 --seeds 16 --csv $(BOXES_OUT)/goodput-40ms-1e-4.csv
	$(BOXES) lowar -- goodput --rtt-us 80000 --loss 0,1e-5,1e-4 --seconds 1.5 --csv $(BOXES_OUT)/goodput-80ms.csv
	$(BOXES) lowar -- goodput --rtt-us 80000 --loss 1e-3 --seconds 1.5 --seeds 16 --csv $(BOXES_OUT)/goodput-80ms-1e-3.csv
	$(BOXES) lowar -- connections --rtt-us 40000 --seconds 1 --csv $(BOXES_OUT)/connections.csv
	$(BOXES) lowar -- connections --rtt-us 80000 --seconds 1.5 --csv $(BOXES_OUT)/connections-80ms.csv
	$(BOXES) lowar -- nics --rtt-us 40000 --seconds 1 --csv $(BOXES_OUT)/nics-40ms.csv
	$(BOXES) lowar -- nics --rtt-us 80000 --seconds 1.5 --csv $(BOXES_OUT)/nics-80ms.csv
	$(BOXES) lowar -- degradation --connections 1,16,32 --seconds 0.2 --csv $(BOXES_OUT)/degradation.csv
	$(BOXES) lowar -- times --seconds 1 --seeds 4 --csv $(BOXES_OUT)/times.csv
	$(BOXES) lowar -- bursts small --seconds 1 --csv $(BOXES_OUT)/lowar.csv
	$(BOXES) lowar -- latency --csv $(BOXES_OUT)/latency.csv
	$(BOXES) netrt -- chain incast --csv $(BOXES_OUT)/netrt.csv
	$(BOXES) netrt -- spines --csv $(BOXES_OUT)/netrt-spines.csv
	$(BOXES) netrt -- window --csv $(BOXES_OUT)/netrt-window.csv
	for path in wan incast both; do $(BOXES) together -- $$path --csv $(BOXES_OUT)/together-$$path.csv || exit; done
	$(BOXES) websearch -- --load 0.5 --buffer 2048 --seeds 8 --csv $(BOXES_OUT)/websearch-0.5-2048.csv
	$(BOXES) websearch -- --load 0.8 --buffer 1024 --seeds 8 --csv $(BOXES_OUT)/websearch-0.8-1024.csv
	$(BOXES) websearch -- --load 0.8 --buffer 512 --seeds 4 --csv $(BOXES_OUT)/websearch-0.8-512.csv
	$(BOXES) websearch -- --paper --flows 2000 --load 0.8 --buffer 1024 --seeds 4 --csv $(BOXES_OUT)/websearch-paper.csv

OPTINIC := $(CARGO) run --release --quiet --package farwrite-bench --bin optinic --
OPTINIC_OUT := figures/optinic
figures-optinic: ## measure: the Hadamard transform, the adaptive timeouts and the memory of queue pairs at the settings of OptiNIC, for `make figures` (a minute or two on one core)
	@mkdir -p $(OPTINIC_OUT)
	$(OPTINIC) layouts --csv $(OPTINIC_OUT)/layouts.csv
	$(OPTINIC) splits --csv $(OPTINIC_OUT)/splits.csv
	$(OPTINIC) timeouts --csv $(OPTINIC_OUT)/timeouts.csv
	$(CARGO) run --release --quiet --package farwrite-bench -- memory --csv $(OPTINIC_OUT)/state.csv

# With the settings of figures/C2, figures/O5, figures/O6 and figures/OL.
TAILS := $(CARGO) run --release --quiet --package farwrite-bench --example tails
COLLECTIVES_OUT := figures/collectives
figures-collectives: ## measure: collectives with RDMA NICs and endpoints in virtual time at the settings of the papers' figures, for `make figures` (100 minutes of processor time, on all cores)
	@mkdir -p $(COLLECTIVES_OUT)
	$(TAILS) celeris --csv $(COLLECTIVES_OUT)/celeris.csv
	$(TAILS) optinic --csv $(COLLECTIVES_OUT)/optinic.csv
	$(TAILS) sizes --runs 10 --csv $(COLLECTIVES_OUT)/sizes.csv
	$(TAILS) xp --csv $(COLLECTIVES_OUT)/xp.csv
	$(TAILS) shipped --runs 20 --csv $(COLLECTIVES_OUT)/shipped.csv
	$(TAILS) shipped-sizes --runs 5 --csv $(COLLECTIVES_OUT)/shipped-sizes.csv
	$(TAILS) losses --runs 12 --csv $(COLLECTIVES_OUT)/losses.csv

TRAINING_OUT := figures/training
figures-training: ## measure: accuracy of training and inference with drops, for `make figures` (two minutes on one core)
	@mkdir -p $(TRAINING_OUT)
	python/run $(TOOLS) --torch python -P python/benches/drops.py --tasks digits --csv $(TRAINING_OUT)/digits.csv

VM_OUT := figures/vm
figures-vm: ## measure: reliable connections of Soft-RoCE through boxes and beside schemes, in a virtual machine, for `make figures` (root; 20 minutes)
	@mkdir -p $(VM_OUT)
	tests/vm/run $(TOOLS) --points 3 --csv $(VM_OUT)/rdma.csv

PATHS_OUT := figures/paths
figures-paths: ## measure: loss by the size of packets over an emulated path with bit errors, for `make figures` (root; four minutes)
	@mkdir -p $(PATHS_OUT)
	$(CARGO) build --release --quiet --package farwrite-cli --bin farwrite
	PYTHONPATH=tests/system python3 tests/bench/loss_by_size.py $${CARGO_TARGET_DIR:-target}/release/farwrite --csv $(PATHS_OUT)/sizes.csv

figures: ## draw the papers' figures in figures/ and README's docs/copies.svg, and compare the papers' numbers in out/figures.html
	@mkdir -p out
	$(CARGO) run --release --package farwrite-cli -- codes bench --json > out/codes.json
	FARWRITE_CODES_BENCH=out/codes.json python/run $(TOOLS) python python/benches/make_figures.py figures --page out/figures.html
	python/run $(TOOLS) python python/benches/copies_picture.py $(PATHS_OUT) --svg docs/copies.svg

bench-sim: ## measure: packet-hops a second and memory of simulated networks, on one core
	$(CARGO) run --release --package farwrite-bench --example simulation_speed

bench-model: ## measure: the map of the paper's Fig. 9, exact and with a NumPy sampler
	python/run $(TOOLS) python python/benches/map.py

# `make bench-torch ALLREDUCE="--device cuda"`; --help lists the options.
bench-torch: ## measure: all-reduces through PyTorch compared with gloo, over loopback
	python/run $(TOOLS) --torch python -P python/benches/allreduce.py $(ALLREDUCE)

bench-hadamard: ## measure: the Hadamard transform on a GPU, compared with a copy (needs a GPU of CUDA)
	python/run $(TOOLS) --torch python -P python/benches/hadamard.py

# `make bench-collectives COLLECTIVES="--ranks 4 --losses 1%"`; --help lists the options.
bench-collectives: ## measure: collectives over a path between two sites, compared with gloo over TCP BBR (root; minutes)
	$(CARGO) build --release --package farwrite-cli
	python/run $(TOOLS) --torch python -P python/benches/collectives.py \
		--program $$(realpath $${CARGO_TARGET_DIR:-target})/release/farwrite $(COLLECTIVES)

# `make bench-train TRAIN="--tasks digits --seeds 5"`; --help lists the options.
bench-train: ## measure: training over a path that loses packets, compared with gloo over TCP BBR (root; long)
	$(CARGO) build --release --package farwrite-cli
	python/run $(TOOLS) --torch python -P python/benches/training.py \
		--program $$(realpath $${CARGO_TARGET_DIR:-target})/release/farwrite $(TRAIN)

# 10 cells; each takes about 10 minutes on two cores. `make bench-train-matrix MATRIX="--seeds 1"` is a short form.
# --limit is about twice the time of a training over a path without loss, so that a stuck one costs little. With ZeRO-3, a
# step waits for many small operations, one after the other, so its path is shorter.
MATRIX_RUN = python/run $(TOOLS) --torch python -P python/benches/training.py \
	--program $$(realpath $${CARGO_TARGET_DIR:-target})/release/farwrite --figure training --ranks 4 \
	--steps 40 --test-every 5 --seeds 5 --limit 70 --log $(TRAINING_OUT)/matrix.jsonl
MATRIX_TEXT = $(MATRIX_RUN) --target-loss 2.8
LINK := --rate 1Gbit --rtt 40ms
bench-train-matrix: ## measure: training by loss, bursts, other traffic, sharding, task and number of ranks, compared with gloo over TCP BBR (root; hours)
	$(CARGO) build --release --package farwrite-cli
	@mkdir -p $(TRAINING_OUT)
	$(MATRIX_TEXT) --csv $(TRAINING_OUT)/matrix-paths.csv --links '$(LINK)' '$(LINK) --loss 0.1%' '$(LINK) --loss 1%' \
		'$(LINK) --loss 5%' '$(LINK) --loss 5% --burst 20' $(MATRIX)
	$(MATRIX_TEXT) --csv $(TRAINING_OUT)/matrix-background.csv --links '$(LINK) --loss 1%' --background 1 --ranks 2 \
		--steps 20 $(MATRIX)
	$(MATRIX_TEXT) --csv $(TRAINING_OUT)/matrix-fsdp2.csv --links '$(LINK) --loss 1%' --ways fsdp2 $(MATRIX)
	$(MATRIX_TEXT) --csv $(TRAINING_OUT)/matrix-zero3.csv --links '--rate 1Gbit --rtt 10ms --loss 1%' --ways zero3 \
		--steps 10 --limit 150 $(MATRIX)
	$(MATRIX_RUN) --csv $(TRAINING_OUT)/matrix-digits.csv --links '$(LINK) --loss 1%' --tasks digits --steps 60 $(MATRIX)
	$(MATRIX_TEXT) --csv $(TRAINING_OUT)/matrix-8-ranks.csv --links '$(LINK) --loss 1%' --ranks 8 --limit 300 $(MATRIX)

# `make bench-inference INFERENCE="--ranks 4 --way experts --losses 1%"`; --help lists the options.
bench-inference: ## measure: inference over a path that loses packets, compared with gloo over TCP BBR (root; minutes)
	$(CARGO) build --release --package farwrite-cli
	python/run $(TOOLS) --torch python -P python/benches/inference.py \
		--program $$(realpath $${CARGO_TARGET_DIR:-target})/release/farwrite \
		--models $$(realpath $${CARGO_TARGET_DIR:-target})/models $(INFERENCE)

model-check: ## compare the exact completion-time model with a million draws for each setting (minutes)
	$(CARGO) test --release --package farwrite-model --test agreement -- --ignored --nocapture

sim-check: ## compare permutations on a Clos network with htsim and ns-3 (minutes)
	$(CARGO) test --release --package farwrite-experiment --test experiment -- --ignored --nocapture

fuzz: ## fuzz every parser for FUZZ_SECONDS (60) each
	fuzz/run

# `make soak SOAK="--base 0x100 --seconds 600 --stop"`; --help lists the options.
SOAK ?= --base 0x$(shell od -An -N6 -tx1 /dev/urandom | tr -d ' \n')

soak: ## the fault swarm, one seed after another, until you stop it
	$(CARGO) run --release --package farwrite-swarm --bin soak -- $(SOAK)

mutants: ## break the code in one way at a time: the fault swarm must find each defect (minutes)
	crates/swarm/mutants/run

miri: ## the SDR core, the memory of NICs and the Hadamard transform under Miri (needs a nightly toolchain)
	$(CARGO) +nightly miri test --package farwrite-sdr
	$(CARGO) +nightly miri test --package farwrite-fabric --lib -- contract::memory contract::racing nic::windows
	MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=8 $(CARGO) +nightly miri test --package farwrite-codes --test hadamard

deb: ## a Debian package: program, manual pages, shell completions, systemd units; in out/
	$(CARGO) build --release --locked --package farwrite-cli
	dist/deb $${CARGO_TARGET_DIR:-target}/release/farwrite out

deb-c: ## Debian packages of the C library, libfarwrite0 and libfarwrite-dev; in out/
	$(CARGO) build --release --locked --package farwrite-capi
	dist/c/deb $${CARGO_TARGET_DIR:-target}/release/libfarwrite_capi.a out

DIST := out/dist
dist: ## all packages of a release for x86_64 and aarch64, with checksums, in out/dist (long; downloads zig); dist/check tries them
	dist/make $(TOOLS) $(DIST)

install: ## install the program
	$(CARGO) install --locked --path crates/cli

PREFIX ?= /usr/local
install-c: ## install the C library below PREFIX=/usr/local: headers, static and shared library, pkg-config, CMake, manual pages
	$(CARGO) build --release --locked --package farwrite-capi
	dist/c/install $${CARGO_TARGET_DIR:-target}/release/libfarwrite_capi.a "$(DESTDIR)" $(PREFIX)

hooks: ## install the git hook that checks the message of each commit in this clone
	@hook="$$(git rev-parse --git-path hooks)/commit-msg"; \
	if [ -e "$$hook" ] && ! grep -q tests/commits/check "$$hook"; then \
		echo "$$hook exists already; add this line to it: tests/commits/check --file \"\$$1\""; exit 1; fi; \
	mkdir -p "$$(dirname "$$hook")"; \
	printf '%s\n' '#!/bin/sh' '[ ! -e tests/commits/check ] || exec tests/commits/check --file "$$1"' > "$$hook"; chmod +x "$$hook"; echo "installed $$hook"

clean: ## remove what was built
	$(CARGO) clean
	rm -rf out
