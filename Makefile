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
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

LIST = @awk -F ':.* $(1) ' '/^[a-z-]+:.* $(1) / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

help: ## list the usual targets
	$(call LIST,##)

help-all: ## list all targets; `make -C lab` lists those that measure
	$(call LIST,#[-#])

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

# Each stage runs, also after one has failed. Those after `--` compile while tests wait.
test: ## all tests: format, lints, dependency policy, unit, scenario, system, browser, Python and PyTorch tests, packages, what compiles for macOS, RDMA devices in a virtual machine
	@MAKE="$(MAKE)" tests/stages deny unit isal loom system browser python torch test-verbs-short -- macos package check

test-small: ## the tests that need neither root nor PyTorch
	@MAKE="$(MAKE)" tests/stages check deny unit loom python package

package: #- pack all crates for crates.io, without compiling them from there, and check their descriptions
	@# Cargo also packs the crates that are not published: to name the others takes a list.
	$(CARGO) package --no-verify --allow-dirty --quiet --target-dir $${CARGO_TARGET_DIR:-target}/package-check
	dist/metadata

# `make macos PROCESSOR=x86_64` for the other processor; `make dist` checks both.
PROCESSOR ?= aarch64
macos: #- check that the model, the simulator and the Python package without torch compile for macOS (downloads zig)
	dist/macos $(TOOLS) $(PROCESSOR)

# Features that are off by default, and are tested.
FEATURES := farwrite-stream/tokio

CORES := wire codes link route rate deadline sdr schemes rc boxes

check: ## format, lints, citations, links and messages of commits; also that the core crates are no_std, without clock, sockets and randomness
	@for core in $(CORES); do grep -q '^#!\[no_std\]' crates/$$core/src/lib.rs \
		|| { echo "crates/$$core must be no_std"; exit 1; }; done
	@[ "$$($(MAKE) --no-print-directory help | wc -l)" -le 24 ] || { echo "make help shows more than 24 targets"; exit 1; }
	tests/lines/check
	tests/docs/check
	python3 tests/commits/test_check.py --quiet
	tests/commits/check
	python3 tests/test_stages.py --quiet
	$(CARGO) fmt --all --check
	$(CARGO) clippy --features $(FEATURES) --all-targets --quiet -- -D warnings
	@# The tests of RDMA devices, which `make unit` does not compile, by their names.
	$(CARGO) clippy --features $(FEATURES) --test contract --test device --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --features $(FEATURES) --no-deps --quiet

unit: ## unit, property, scenario and loopback tests
	@# Examples are not built here: `check` compiles them. Tests send Ctrl-C to programs: a shell that runs
	@# `make test &` makes them ignore it.
	@set -x; failed=0; \
		env --default-signal=INT,HUP $(CARGO) test --features $(FEATURES) --tests --no-fail-fast || failed=1; \
		$(CARGO) test --features $(FEATURES) --doc || failed=1; exit $$failed

isal: #- compare parity bytes with those of ISA-L (installs nasm and autotools on Debian)
	@if crates/codes/tests/isal/prepare; then set -x; $(CARGO) test --package farwrite-isal; else test "$$CI" != true; fi

arm: #- the codes, and the fabric's copies, on an emulated 64-bit Arm (installs qemu and a linker on Debian)
	crates/codes/tests/arm

# Sanitizers need a nightly compiler. This one was tried.
NIGHTLY ?= nightly-2026-05-20
# $(call sanitized,NAME,FLAGS): fabrics, endpoints with threads, and the C library and the NCCL plugin with their C
# programs, with the sanitizer NAME. FLAGS are what -fsanitize of the C compiler gets; the runtime is that of the Rust
# compiler.
define sanitized
	@[ -d "$$(rustc +$(NIGHTLY) --print sysroot 2>/dev/null)/lib/rustlib/src" ] || \
		rustup toolchain install $(NIGHTLY) --profile minimal --component rust-src
	RUSTFLAGS="-Zsanitizer=$(firstword $(subst $(comma), ,$(2)))" CARGO_TARGET_DIR=target/$(1) FARWRITE_SANITIZERS=$(2) \
		FARWRITE_SANITIZER_RUNTIME="$$(rustc +$(NIGHTLY) --print target-libdir)/librustc-nightly_rt.$(1).a" \
		$(CARGO) +$(NIGHTLY) test -Zbuild-std --target x86_64-unknown-linux-gnu --package farwrite-fabric --test contract \
		--package farwrite --test threads --package farwrite-capi --test programs \
		--package farwrite-nccl --test nccl
endef
comma := ,

tsan: #- fabrics, endpoints with threads, C programs and the NCCL plugin under ThreadSanitizer (downloads a nightly compiler)
	$(call sanitized,tsan,thread)

asan: #- the same under AddressSanitizer, which also looks for leaks (downloads a nightly compiler)
	$(call sanitized,asan,address$(comma)undefined)

loom: #- interleavings of receive workers on the slot table, of their notices, of coding threads and of threads that poll in turn
	@# The tests are short and everything below them is compiled again, so it is compiled without optimisation.
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom CARGO_PROFILE_DEV_OPT_LEVEL=0 $(CARGO) test \
		--package farwrite-sdr --package farwrite --lib -- interleavings

system: ## tests in network namespaces, checked with tshark and ISA-L (root; installs what they need on Debian)
	tests/system/run

# `make test-verbs VERBS="--json out/verbs.json contract"`: options, and the names of some cases of tests/vm/cases.py.
test-verbs: ## tests with RDMA devices, also through boxes: Soft-RoCE in a virtual machine (root; installs what it needs on Debian; five minutes)
	FEATURES="$(FEATURES)" tests/vm/run $(TOOLS) $(VERBS)

test-verbs-short: #- the most important cases of test-verbs (root; two minutes on two idle cores)
	FEATURES="$(FEATURES)" tests/vm/run $(TOOLS) --short

browser: explorer #- the explorer in headless Chromium (installs it on Debian as root)
	tests/explorer/run out/explorer.html

# Tests build the wheel with the profile that has compiled the rest of the workspace.
python: ## the Python package: format, lints, types, tests
	WHEEL_PROFILE=dev python/run $(TOOLS) python/check

torch: ## farwrite.torch, in a separate environment with PyTorch (4.3 GB, downloaded once): types, tests
	@# Of the whole workspace, whose libraries `make unit` has built: the package alone would compile them again.
	$(CARGO) build --quiet --bin farwrite
	FARWRITE=$$(realpath $${CARGO_TARGET_DIR:-target})/debug/farwrite \
		WHEEL_PROFILE=dev python/run $(TOOLS) --torchft python/check-torch

# `make torch-public TORCH_TESTS=FOLDER`: also tests of torch's repository, from its folder test/distributed.
torch-public: #- tests that torch and torchft bring along, with gloo as the judge (half an hour)
	WHEEL_PROFILE=dev python/run $(TOOLS) --torchft python -P python/tests_public/public.py \
		$(if $(TORCH_TESTS),--given $(TORCH_TESTS))

torch-frameworks: #- the examples of Accelerate, Lightning, Transformers, DeepSpeed and Ray Train (downloads 150 MB)
	WHEEL_PROFILE=dev python/run $(TOOLS) --frameworks python -P python/examples/frameworks/run.py

torch-diloco: #- DiLoCo between two sites on this machine, of which one dies and returns (minutes)
	WHEEL_PROFILE=dev python/run $(TOOLS) --torchft python -P python/examples/diloco.py

# Not part of `make test`: 5 GB are downloaded for each version, and removed afterwards.
TORCH_VERSIONS ?= 2.7.1 2.11.0 newest
torch-versions: #- the tests of farwrite.torch with old and new versions of PyTorch, one after the other (15 GB of downloads)
	$(CARGO) build --quiet --bin farwrite
	FARWRITE=$$(realpath $${CARGO_TARGET_DIR:-target})/debug/farwrite \
		WHEEL_PROFILE=dev python/run $(TOOLS) python/torch-versions $(TOOLS) $(TORCH_VERSIONS)

nccl: #- the NCCL plugin in all versions with memory of the host: a table of cases, the long ones whole (minutes)
	FARWRITE_NCCL_WHOLE=1 $(CARGO) test --features $(FEATURES) --test nccl -- --nocapture

gpu: #- tests with tensors of a GPU (needs a GPU of CUDA)
	python/run $(TOOLS) --torch python -P -m pytest --quiet -p no:cacheprovider python/tests_torch/test_gpu.py

wheel: ## the Python package as a wheel, in target/wheels
	@python/run $(TOOLS) sh -c 'ls "$$PYTHONPATH"/../wheels/*.whl'

deny: $(DENY) #- licences, sources, the borders between crates, and advisories where their database can be fetched
	$(DENY) --locked --log-level error check bans licenses sources
	@if timeout 60 $(DENY) fetch db 2>/dev/null; then $(DENY) --locked --log-level error check advisories; \
	else echo "deny: ADVISORIES ARE NOT CHECKED: the database of RustSec on github.com cannot be fetched" >&2; fi

$(DENY):
	$(CARGO) install --locked --root $(TOOLS) cargo-deny@$(DENY_VERSION)

model-check: #- compare the exact completion-time model with a million draws for each setting (minutes)
	$(CARGO) test --release --package farwrite-model --test agreement -- --ignored --nocapture

sim-check: #- compare permutations on a Clos network with htsim and ns-3 (minutes)
	$(CARGO) test --release --package farwrite-experiment --test experiment -- --ignored --nocapture

example-controller: #- build and run examples/own: farwrite sim with a controller, a repair and a load balancer of a crate outside
	$(CARGO) run --manifest-path examples/own/Cargo.toml --target-dir $${CARGO_TARGET_DIR:-target}/own --locked -- \
		sim examples/own/plan.toml --out out/own

fuzz: ## fuzz every parser for FUZZ_SECONDS (60) each
	fuzz/run

# `make soak SOAK="--base 0x100 --seconds 600 --stop"`; --help lists the options.
SOAK ?= --base 0x$(shell od -An -N6 -tx1 /dev/urandom | tr -d ' \n')

soak: ## the fault swarm, one seed after another, until you stop it
	$(CARGO) run --release --package farwrite-swarm --bin soak -- $(SOAK)

mutants: #- break the code in one way at a time: the fault swarm must find each defect (minutes)
	crates/swarm/mutants/run

miri: #- the SDR core, the memory of NICs and the Hadamard transform under Miri (needs a nightly toolchain)
	$(CARGO) +nightly miri test --package farwrite-sdr
	$(CARGO) +nightly miri test --package farwrite-fabric --lib -- contract::memory contract::racing nic::windows
	MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=8 $(CARGO) +nightly miri test --package farwrite-codes --test hadamard

deb: ## a Debian package: program, manual pages, shell completions, systemd units; in out/
	$(CARGO) build --release --locked --package farwrite-cli
	dist/deb $${CARGO_TARGET_DIR:-target}/release/farwrite out

deb-c: ## Debian packages of the C library, libfarwrite0 and libfarwrite-dev; in out/
	$(CARGO) build --release --locked --package farwrite-capi
	dist/c/deb $${CARGO_TARGET_DIR:-target}/release/libfarwrite_capi.a out

deb-nccl: #- a Debian package of the NCCL plugin; in out/
	$(CARGO) build --release --locked --package farwrite-nccl
	dist/nccl $${CARGO_TARGET_DIR:-target}/release/libnccl_net_farwrite.so out

DIST := out/dist
dist: ## all packages of a release for x86_64 and aarch64, with checksums, in out/dist (long; downloads zig); dist/check tries them
	dist/make $(TOOLS) $(DIST)

install: ## install the program
	$(CARGO) install --locked --path crates/cli

PREFIX ?= /usr/local
install-c: ## install the C library below PREFIX=/usr/local: headers, static and shared library, pkg-config, CMake, manual pages
	$(CARGO) build --release --locked --package farwrite-capi
	dist/c/install $${CARGO_TARGET_DIR:-target}/release/libfarwrite_capi.a "$(DESTDIR)" $(PREFIX)

install-nccl: #- install the NCCL plugin, libnccl-net-farwrite.so, below PREFIX=/usr/local
	$(CARGO) build --release --locked --package farwrite-nccl
	install -D --mode 644 $${CARGO_TARGET_DIR:-target}/release/libnccl_net_farwrite.so \
		"$(DESTDIR)$(PREFIX)/lib/libnccl-net-farwrite.so"

hooks: ## install the git hook that checks the message of each commit in this clone
	@hook="$$(git rev-parse --git-path hooks)/commit-msg"; \
	if [ -e "$$hook" ] && ! grep -q tests/commits/check "$$hook"; then \
		echo "$$hook exists already; add this line to it: tests/commits/check --file \"\$$1\""; exit 1; fi; \
	mkdir -p "$$(dirname "$$hook")"; \
	printf '%s\n' '#!/bin/sh' '[ ! -e tests/commits/check ] || exec tests/commits/check --file "$$1"' > "$$hook"; chmod +x "$$hook"; echo "installed $$hook"

clean: ## remove what was built
	$(CARGO) clean
	rm -rf out
