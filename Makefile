# Every target is the one way to do a thing; CI runs the same ones.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

GO ?= go
BIN := bin
TOOL := $(GO) tool -modfile=tools/go.mod
# Timed tests, run apart from the others.
ENDTOEND := internal/endtoend
# Packages whose concurrency is their own; the others are tested without -race.
RACE := ./internal/agentloop/... ./workflows/... ./tool/... ./model/... ./db/... ./activities/... ./approval/... ./internal/authz/... ./internal/memstore/... ./internal/vault/... ./internal/codec/... ./agenttest/...
FORMATTED := activities agent agenttest approval bench db/*.go db/dbtest examples internal memorypolicy model starter temporal-dev tool worker workflows
# Sets DATABASE_URL, TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE and FAIRLEAD_UI_URL.
ENGINE_ENV = set -a; source <($(BIN)/temporal-dev env); FAIRLEAD_TEST_DATABASE_URL=$$DATABASE_URL; set +a

# Where the engine keeps its data, as temporal-dev finds it.
ENGINE_HOME = $(or $(FAIRLEAD_DEV_HOME),$(if $(filter 0,$(shell id -u)),/var/lib/fairlead-dev,$(or $(XDG_STATE_HOME),$(HOME)/.local/state)/fairlead-dev))
KEY_ENV = $(ENGINE_HOME)/encryption.env

# `go build -v` prints one line for each package that it compiles: shown as a
# count, because the Temporal server alone has 1,300 of them.
define build-with-progress
	@cd $(1) && $(GO) build -v -o $(CURDIR)/$(2) $(3) 2>&1 | awk ' \
		/^[A-Za-z0-9.@\/_~+-]+$$/ { if (++n % 25 == 0) { printf("  %d packages compiled\n", n); fflush() } next } \
		{ print; fflush() } END { if (n) printf("  %d packages compiled, done\n", n) }'
endef

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  %-12s %s\n", $$1, $$2 }'

## Build

.PHONY: build
build: $(BIN)/temporal-dev ## Build all programs into bin/
	$(call build-with-progress,.,$(BIN)/,./worker ./starter ./examples/opspilot/cmd/...)

# The engine is a module of its own and slow to compile: only when it changed.
$(BIN)/temporal-dev: $(shell find temporal-dev -name '*.go' -o -name '*.sh' -o -name 'go.*' 2>/dev/null)
	@mkdir -p $(BIN)
	@echo "Building the development engine (Temporal server, Web UI). The first time takes about 5 minutes on two cores."
	$(call build-with-progress,temporal-dev,$(BIN)/temporal-dev,.)

.PHONY: generate
generate: ## Regenerate the code under db/internal from db/query and db/schema
	$(TOOL) sqlc generate

## Run

.PHONY: up
up: $(BIN)/temporal-dev ## Start PostgreSQL, Temporal and the Web UI, and wait until they are ready
	@$(BIN)/temporal-dev up

.PHONY: down
down: $(BIN)/temporal-dev ## Stop what `make up` started; the data stays
	@$(BIN)/temporal-dev down

# A key pair for development: bin/approval.env has both halves, and the worker
# is given the public one alone, as in production.
$(BIN)/approval.env: | build
	@(umask 077; $(BIN)/starter approval-key >$@.new 2>/dev/null; mv $@.new $@)

# The key-encryption key for development: worker and starter need the same one,
# and so do all checkouts that share the engine's data. It is made once and lies
# beside that data, which cannot be read any more without it: a link takes the
# place of no key that another make has put there meanwhile.
$(KEY_ENV): | build up
	@new=$$(mktemp $@.XXXXXX); trap 'rm -f "$$new"' EXIT; \
		$(BIN)/starter encryption-key >"$$new" 2>/dev/null; ln "$$new" $@ 2>/dev/null || test -s $@

.PHONY: key
key: ## Print the encryption key that `make worker` made: eval "$$(make -s key)"
	@test -f $(KEY_ENV) || { echo "there is no key yet: run make worker first" >&2; exit 1; }
	@sed 's/^/export /' $(KEY_ENV)

.PHONY: worker
worker: build up $(BIN)/approval.env $(KEY_ENV) ## Serve the example agents until Ctrl-C
	@$(ENGINE_ENV); set -a; source $(BIN)/approval.env; source $(KEY_ENV); set +a; unset FAIRLEAD_APPROVAL_KEY; $(BIN)/worker run --migrate

.PHONY: demo
demo: build up $(KEY_ENV) ## Have OpsPilot find out why a service fails, and mend it once that is confirmed
	@$(ENGINE_ENV); set -a; source $(KEY_ENV); set +a; $(BIN)/demo

## Check

.PHONY: test
test: build up ## Run all tests on a real PostgreSQL and a real Temporal server
	@echo "Compiling and running the tests. The first time takes some minutes."
	@$(GO) vet ./...
	@$(ENGINE_ENV); $(GO) test -timeout 20m $$($(GO) list ./... | grep -v $(ENDTOEND))
	@echo "Whole runs on the servers: killed workers, stopped workers, 500 steps ..."
	@$(ENGINE_ENV); $(GO) test -count=1 -parallel 8 -timeout 20m ./$(ENDTOEND)
	@echo "The same without the workflow cache, so that every workflow task replays ..."
	@$(ENGINE_ENV); FAIRLEAD_WORKFLOW_CACHE=0 $(GO) test -count=1 -parallel 8 -timeout 20m ./$(ENDTOEND)
	@if command -v "$$($(GO) env CC)" >/dev/null; then \
		echo "With the race detector ..."; $(ENGINE_ENV); CGO_ENABLED=1 $(GO) test -race -timeout 20m $(RACE); \
	else echo "There is no C compiler, which the race detector needs: it is left out."; fi
	@cd temporal-dev && $(GO) vet ./... && FAIRLEAD_DEV_INTEGRATION=1 FAIRLEAD_DEV_BINARY=$(CURDIR)/$(BIN)/temporal-dev $(GO) test ./...

.PHONY: record
record: $(BIN)/temporal-dev up ## Record histories of real runs for replay: make record FOLDER=v2
	@test -n "$(FOLDER)" || { echo "name a new folder of $(ENDTOEND)/testdata/histories: make record FOLDER=v2"; exit 2; }
	@$(ENGINE_ENV); $(GO) test -count=1 ./$(ENDTOEND) -run TestRecordHistories -record $(FOLDER)

.PHONY: lint
lint: ## Check formatting, static analysis, determinism of workflows and generated code
	@unformatted=$$($(TOOL) gofumpt -l $(FORMATTED)); \
	if [ -n "$$unformatted" ]; then echo "not formatted (run make fmt):"; echo "$$unformatted"; exit 1; fi
	$(TOOL) staticcheck ./...
	$(TOOL) workflowcheck -config tools/workflowcheck.yaml ./workflows/... ./internal/agentloop/...
	$(TOOL) sqlc diff
	$(GO) mod tidy -diff

.PHONY: fmt
fmt: ## Format all code
	$(TOOL) gofumpt -w $(FORMATTED)

.PHONY: fuzz
fuzz: ## Fuzz all that reads what others write, each for FUZZTIME (20s)
	@for found in $$(grep -rHoE '^func Fuzz[A-Za-z]+' --include=*_test.go . | sed 's/func //'); do \
		package=$$(dirname $${found%%:*}); echo "$$package $${found##*:}"; \
		$(GO) test $$package -run '^$$' -fuzz "^$${found##*:}$$" -fuzztime $(or $(FUZZTIME),20s) -fuzzminimizetime 10x | grep -v '^fuzz: elapsed'; \
	done

.PHONY: crashes
crashes: $(BIN)/temporal-dev up ## Kill a worker at every point of a write, whatever the other side does (3 minutes)
	@$(ENGINE_ENV); FAIRLEAD_CRASH_MATRIX=all $(GO) test -count=1 -timeout 10m ./$(ENDTOEND) -run TestCrashMatrix

.PHONY: chaos
chaos: $(BIN)/temporal-dev ## Kill workers, Temporal and PostgreSQL of its own under 100 runs, and count: SEED=7 repeats a plan (3 minutes)
	@$(GO) build -o $(BIN)/chaos ./internal/chaos
	@$(BIN)/chaos -temporal-dev $(BIN)/temporal-dev -seed $(or $(SEED),0)

.PHONY: bench
bench: build up ## Print what a run costs as ratios, as lines BENCH <name> <value> <unit>
	@$(ENGINE_ENV); $(GO) run ./bench

.PHONY: clean
clean: ## Remove bin/ (the engine's data and its key stay; see temporal-dev/README.md)
	rm -rf $(BIN)
