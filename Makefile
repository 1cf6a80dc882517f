# Every chore of the repository has its entry here, and CI calls nothing else. `make check` never writes to the tree, `make fix` does.
# All targets share Cargo's one target folder (CARGO_TARGET_DIR, or target/).

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

TOOLS := $(CURDIR)/.tools
CARGO_DENY_VERSION := 0.20.2
CARGO_DENY := $(TOOLS)/bin/cargo-deny

# How many seeds `make sim` runs, from which on.
SEEDS ?= 10000
FIRST_SEED ?= 0
# How many seeds `make mutants` gives each planted fault to be caught.
MUTANT_SEEDS ?= 500
SIM := "$${CARGO_TARGET_DIR:-target}/release/taffrail-sim"
# With the same packages as `build`, so that what it built is not built again for other features.
SIM_BUILD := cargo build --release --locked -p taffrail-broker -p taffrail-operator -p taffrail-sim

# Where `image` and the Kubernetes bed put what they make.
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
# The image's name, and the client's that the Kubernetes tests run in pods. On a cluster that KUBECONFIG names they must be reachable.
IMAGE ?= localhost/taffrail:dev
CLIENT_IMAGE ?= localhost/taffrail-client:dev
# How many nodes the bed has; node1 is in zone a, node2 in zone b, ...
NODES ?= 1
KUBERNETES := e2e/kubernetes

.PHONY: chaos-build clients help quickstart build image client-image test sim mutants check fix bench bench-failover bench-groups chaos power-loss crds tools helm cluster-up cluster-down e2e fuzz seeds ci

help: ## List the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

quickstart: build ## Start three brokers and two topics on this machine; Ctrl-C stops them
	"$${CARGO_TARGET_DIR:-target}/release/taffrail-operator" local -f examples/quickstart.yaml

build: ## Build the release binaries of broker and operator
	cargo build --release --locked -p taffrail-broker -p taffrail-operator

image: build ## Pack the image as target/image/taffrail.tar, without a container engine; IMAGE names it
	image/assemble.sh "$(TARGET)/image/root" "$(TARGET)/release/taffrail-broker" "$(TARGET)/release/taffrail-operator"
	image/pack.py --dockerfile Dockerfile --context "$(TARGET)/image" --name "$(IMAGE)" "$(TARGET)/image/taffrail.tar"
	image/check.py Dockerfile "$(TARGET)/image" "$(IMAGE)" "$(TARGET)/image/taffrail.tar"

client-image: ## Pack the Kubernetes tests' client as target/client-image/taffrail-client.tar; CLIENT_IMAGE names it
	@$(KUBERNETES)/install.sh
	$(KUBERNETES)/client-image.sh "$(TARGET)/client-image" "$(CLIENT_IMAGE)"

# Every decoder is fuzzed for some seconds by `cargo test`; `make fuzz` goes beyond.
test: tools build ## Everything up to real processes with real clients; the brokers under test are the release build
	cargo test --locked --workspace
	$(SIM_BUILD)
	$(SIM) --seeds 500

sim: ## Simulate whole clusters with faults, SEEDS of them on all cores; a failure prints how to replay it
	$(SIM_BUILD)
	$(SIM) --seed "$(FIRST_SEED)" --seeds "$(SEEDS)"

mutants: ## Plant faults in the product, one after another; the simulator must catch each within MUTANT_SEEDS seeds
	cargo run --release --locked -p taffrail-sim --features mutants -- --mutants "$(MUTANT_SEEDS)"

check: $(CARGO_DENY) helm ## Formatting, lints, licences, generated files, docs; writes nothing to the tree
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets --features taffrail-e2e/kubernetes -- -D warnings
	cargo fetch --quiet --locked # also what other systems would build, whose licences count as well
	$(CARGO_DENY) --offline --locked check bans licenses sources
	cargo run --quiet --locked -p taffrail-crds --bin crdgen -- --check
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --document-private-items
	@if [ -x charts/check.sh ]; then PATH="$$($(KUBERNETES)/build.sh --path):$$PATH" charts/check.sh; fi

fix: ## Format, apply what clippy can, regenerate the CRDs
	cargo fmt --all
	cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged
	cargo fmt --all
	$(MAKE) crds

crds: ## Generate the CRD manifests beside their Rust types, and the chart's copy
	cargo run --quiet -p taffrail-crds --bin crdgen
	charts/sync.sh

bench: tools build ## Measure against the null broker and Apache Kafka; PEERS=none, ROUNDS=1 and ROWS=text shorten it
	cargo build --release --locked -p taffrail-e2e
	"$${CARGO_TARGET_DIR:-target}/release/taffrail-bench"

# Why it is a release build: the clients share the machine with the brokers.
CHAOS = "$(TARGET)/release/taffrail-chaos" --evidence "$(TARGET)/chaos"
chaos-build: tools build
	cargo build --release --locked -p taffrail-e2e --bin taffrail-chaos

chaos: chaos-build ## Torment a cluster and judge it: DURATION=30m, COUNT, SEED, BROKERS, FAULTS=kill,pause,... choose (root for most faults)
	$(CHAOS) $(if $(DURATION),--duration $(DURATION)) $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED)) \
		$(if $(BROKERS),--brokers $(BROKERS)) $(if $(FAULTS),--faults $(FAULTS))

# The next loss comes once everything is in sync again and so many records were acknowledged since, in every partition some.
POWER_LOSS = $(CHAOS) --duration 4h --count $(or $(COUNT),50) --between 600 $(if $(SEED),--seed $(SEED))
power-loss: chaos-build ## 50 power losses of all brokers with taffrail.flush=ack, and 50 of single ones with the default (root)
	$(POWER_LOSS) --faults power-loss-all
	$(POWER_LOSS) --faults power-loss

bench-failover: tools build ## Measure how long a producer waits while a broker goes away, beside Apache Kafka; PEERS=none, REPS=1 and EVENTS=text shorten it
	cargo build --release --locked -p taffrail-e2e
	"$${CARGO_TARGET_DIR:-target}/release/taffrail-bench" failover

bench-groups: tools build ## Measure how long a consumer group takes to give its partitions anew, beside Apache Kafka; PEERS=none, REPS=1 and EVENTS=text shorten it
	cargo build --release --locked -p taffrail-e2e
	"$${CARGO_TARGET_DIR:-target}/release/taffrail-bench" groups

clients: tools build ## Run real clients of every ecosystem against three brokers and write e2e/clients/RESULTS.md; ONLY=kafkajs for one
	@e2e/clients/install.sh
	cargo build --release --locked -p taffrail-e2e --bin taffrail-clients
	"$(TARGET)/release/taffrail-clients" $(if $(ONLY),--only "$(ONLY)") $(if $(BROKER),--broker "$(BROKER)")

tools: ## Install what the tests drive: kcat, Kafka's jars, a Python client (into .tools/)
	@e2e/tools/install.sh

helm: ## Build helm into the cache outside of the tree, where it is missing
	@$(KUBERNETES)/build.sh helm

cluster-up: ## Start a real Kubernetes on this machine (root, Linux with cgroup v1); NODES=3 for zones a, b, c
	@$(KUBERNETES)/install.sh
	@$(KUBERNETES)/bed.py check
	@$(KUBERNETES)/build.sh
	@$(KUBERNETES)/bed.py up --nodes "$(NODES)"

cluster-down: ## End it, and leave nothing behind
	@$(KUBERNETES)/bed.py down

e2e: tools ## Everything on a real Kubernetes: the bed's, or the cluster that KUBECONFIG names (then with IMAGE and CLIENT_IMAGE)
	@IMAGE="$(IMAGE)" CLIENT_IMAGE="$(CLIENT_IMAGE)" $(KUBERNETES)/run.sh

fuzz: ## Search for inputs that break a decoder: DURATION=30s for each, SEED=2 for another run, TARGETS="request recovery" for some
	cargo run --quiet --locked -p taffrail-fuzz -- --duration "$(or $(DURATION),30s)" --seed "$(or $(SEED),1)" --found "$(TARGET)/fuzz" $(TARGETS)

seeds: ## Write the seeds of the fuzz targets anew, after a definition of a message changed
	cargo run --quiet --locked -p taffrail-protocol --example fuzz_seeds

# A machine that cannot hold a cluster (cgroup v2 alone, not root, …) says so and leaves the last part out; `make e2e` fails there.
# The same for the tests that fill, fail and unplug disks, where nothing can be mounted.
ci: check ## What CI runs: all of it
	@if ! (unshare --mount mount -t tmpfs none /mnt && losetup --find) > /dev/null; then \
		echo "NOT RUN: tests that mount file systems are left out, because this machine cannot" >&2; \
		export TAFFRAIL_SKIP_MOUNTS=1; \
	fi; $(MAKE) --no-print-directory test
	@E2E_WHERE_POSSIBLE=1 $(MAKE) --no-print-directory e2e

# The advisory database has to be fetched, so `check` leaves advisories out;
# `.tools/bin/cargo-deny check advisories` runs them with the waivers of deny.toml.
$(CARGO_DENY):
	cargo install --locked --version $(CARGO_DENY_VERSION) --root $(TOOLS) --no-default-features cargo-deny
