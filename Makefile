# make help lists the targets.

GO ?= go
# The linters have their own module, so that the library gets none of their dependencies.
TOOL = $(GO) tool -modfile=tools/go.mod

# Modules with a go.mod of their own, so that the library gets none of their dependencies. make modules tests MODULES; INNER have
# targets of their own.
INNER = internal/lab/bench internal/lab/histories
MODULES = caddy examples/caddy examples/recipes internal/lab/interop/frameworks middleware/echov5 otelreqlock promreqlock internal/lab/interop/sql deploy middleware/fiber

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## show what the middleware does, then serve until Ctrl-C; needs only Go
	$(GO) run ./examples

.PHONY: test-tools
test-tools: ## install what the tests need: redis-server, a C compiler and a browser
	@GO=$(GO) scripts/install-test-tools.sh

# make vet runs more checks than go test would.
.PHONY: test
test: test-tools ## run all tests under the race detector, three packages at a time, because most of them wait
	$(GO) test -race -vet=off -count=1 -p 3 -timeout 20m ./...

# Under -short, tests that need a server are skipped. The variable makes any test fail that starts one anyway. Some packages wait
# for leases or loops, so more of them run at a time than there are processors. Without tables for a debugger, they link faster.
.PHONY: test-fast
test-fast: ## run the tests that need no server, except the examples, for the inner loop
	REQLOCK_REDIS_SERVER=not-under-short $(GO) test -short -p 4 -ldflags=-w $$($(GO) list ./... | grep -v /examples/)

# Without a package argument, go test prints the states of each world as they are found.
.PHONY: explore
explore: ## search all states of small worlds of every kind of lock, for some minutes and in some GB; make test searches smaller ones
	$(GO) test -C core/internal/worlds -count=1 -timeout 2h -run '^TestWorlds$$' -full

# One process for each processor. The first build takes a minute or two: it compiles a modified Go runtime.
.PHONY: sim
sim: ## simulate clients, network and Redis in virtual time, for DUR (2m); FROM=42 begins with that seed, SEED=42 replays it
	$(GO) run ./internal/lab/sim/run $(if $(SEED),-seed $(SEED),$(if $(FROM),-from $(FROM)) -for $(or $(DUR),2m))

.PHONY: servers
servers: test-tools ## run tests of core on other versions of Redis, and on Valkey, which it fetches; SERVERS="redis-6.2" picks some
	@GO=$(GO) scripts/servers.sh $(SERVERS)

.PHONY: examples
examples: test-tools ## start every example and send it requests
	$(GO) test -count=1 ./examples/...

.PHONY: site
site: ## build docs/ as a site with search, in site/; fails on dead links
	scripts/site.sh

.PHONY: footprint
footprint: ## measure the modules and the size of a program with the middleware, and of one with redsync
	@GO=$(GO) scripts/footprint.sh

.PHONY: pictures
pictures: test-tools ## make the pictures in docs/images again, from runs of the payments page and the page of locks
	$(GO) test -C examples/payments -count=1 -run TestPage -pictures "$(CURDIR)/docs/images" .
	$(GO) test -C inspect -count=1 -run TestHandler_InABrowser -pictures "$(CURDIR)/docs/images" .

# Beside the platform of the machine. Integers of 32 bits are where Go programs differ most, and a machine with 64 runs 386 too.
PLATFORMS = windows/amd64 darwin/arm64 linux/arm linux/386
# The modules that users build.
PUBLISHED = . caddy middleware/echov5 middleware/fiber otelreqlock promreqlock

.PHONY: cross
cross: ## build what users build for Windows, macOS, 32-bit ARM and 386, and test on 386 what needs no server
	@for platform in $(PLATFORMS); do for dir in $(PUBLISHED); do \
		echo "build $$dir for $$platform" && GOOS=$${platform%/*} GOARCH=$${platform#*/} CGO_ENABLED=0 $(GO) build -C $$dir ./... || exit 1; \
	done; done
	@for dir in $(INNER) $(MODULES); do echo "vet $$dir for 386" && GOARCH=386 CGO_ENABLED=0 $(GO) vet -C $$dir ./... || exit 1; done
	REQLOCK_REDIS_SERVER=not-under-short GOARCH=386 CGO_ENABLED=0 $(GO) test -short $$($(GO) list ./... | grep -v /examples/)

.PHONY: release-check
release-check: ## install our modules as the docs say, from what the next version would be; WRITE=1 writes its number into the go.mod files
	$(if $(WRITE),$(GO) run -C tools ./release -write,$(GO) test -C tools ./release && $(GO) run -C tools ./release)

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (20s); FUZZ=Cookie picks some
	@GO=$(GO) FUZZTIME=$(or $(FUZZTIME),20s) scripts/fuzz.sh $(FUZZ)

.PHONY: histories
histories: test-tools ## check what processes do with locks on failing servers, for DUR (50s) or longer
	$(GO) test -C internal/lab/histories -count=1 -timeout 0 -run 'TestCheck|TestHistories' -v -dur $(or $(DUR),50s) $(if $(OUT),-out "$(abspath $(OUT))")

.PHONY: soak
soak: test-tools ## send requests of every mode for DUR (30s), and plot what servers and Redis use into OUT
	$(GO) test -C internal/lab/histories -count=1 -timeout 0 -run 'TestSoak' -v -dur $(or $(DUR),30s) $(if $(OUT),-out "$(abspath $(OUT))")

.PHONY: wasm-soak
wasm-soak: ## send a million calls to honest and hostile plugins while versions are loaded, in 15 minutes; then measure each hostile guest
	$(GO) test -count=1 -timeout 1h ./wasm -run '^TestMixed$$|^TestHostile$$' -v -soak $(or $(CALLS),1000000)

# The tests mostly wait for leases and dead waiters, so many run in parallel.
.PHONY: interop
interop: test-tools ## test sharing locks with Java Redisson, and print hand-over times; REDISSON=4.7.0 picks the version
	@scripts/install-interop-tools.sh
	$(GO) test -C internal/lab/interop/redisson -tags interop -count=1 -parallel 16 -timeout 20m $(if $(REDISSON),-redisson "$(REDISSON)") # without a package argument, go test prints the matrix

.PHONY: modules
modules: test-tools ## test the modules that have a go.mod of their own, two at a time
	@scripts/install-prometheus.sh # for deploy
	@scripts/install-postgres.sh # for examples/recipes
	@printf '%s\n' $(MODULES) | xargs -P 2 -I{} $(GO) test -C {} -race -count=1 -timeout 20m ./...

.PHONY: drill
drill: test-tools ## run two instances of a service with Redis, Prometheus and the command; find and free a stuck lock
	@scripts/install-prometheus.sh
	$(GO) test -C deploy -count=1 -v -run '^TestDrill$$' .

.PHONY: cost
cost: test-tools ## compare the speed of locks with and without metrics and traces, for two minutes on an idle machine
	$(GO) test -C deploy -run '^$$' -bench Cost -benchtime 40x -timeout 20m .

.PHONY: wasm-guests
wasm-guests: ## rebuild the WebAssembly guests in Go, C, Rust and AssemblyScript, and test that they behave like the committed ones
	@scripts/install-wasm-tools.sh
	dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
		GO=$(GO) wasm/testdata/build.sh "$$dir" go c c2 docs lang-go lang-c lang-rust lang-as && \
		$(GO) test -count=1 ./wasm -run '^TestGuests|^TestFaults$$|^TestStart_Fails$$|^TestLanguages$$' -guests "$$dir"
	if command -v cargo >/dev/null; then \
		dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && CARGO_TARGET_DIR="$$dir" cargo test --quiet --manifest-path wasm/guest-rust/Cargo.toml; \
	fi

.PHONY: bench
bench: test-tools ## compare with other locks for 15 minutes on an idle machine, and rewrite internal/lab/bench/README.md
	$(GO) run -C internal/lab/bench . -out ../../../docs/performance -markdown README.md

.PHONY: bench-far
bench-far: test-tools ## compare at distances, with TLS, by callers, pools and arrivals, for 20 minutes on an idle machine, and rewrite internal/lab/bench/README.md
	$(GO) run -C internal/lab/bench . -only Far,Pools,Slow,Arrivals -rounds 3 -out ../../../docs/performance -markdown README.md

.PHONY: bench-short
bench-short: test-tools ## check that all benchmarks run: each for a moment, the comparison for two minutes
	$(GO) test -run '^$$' -bench . -benchtime 20ms ./...
	$(GO) test -C internal/lab/bench -count=1 ./...
	dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && $(GO) run -C internal/lab/bench . -short -rounds 1 -out "$$dir" && \
		$(GO) run -C internal/lab/bench . -short -rounds 1 -only Far,Pools,Slow,Arrivals -lines loopback,TLS,1ms -callers 1,64 -out "$$dir"

.PHONY: mutants
mutants: test-tools ## break the code in one small way at a time, and show which test catches it; SHORT=1 tries eight
	$(GO) run ./internal/lab/mutants $(if $(SHORT),-sample 8)

.PHONY: lint
lint: format vet golangci echov5 options states api words tidy ## run format, vet, golangci, echov5, options, states, api, words and tidy

.PHONY: format
format: ## list files that gofmt would change
	@files=$$("$$($(GO) env GOROOT)/bin/gofmt" -l .) && if [ -n "$$files" ]; then echo "gofmt -w is due:"; echo "$$files"; exit 1; fi

.PHONY: vet
vet: ## go vet
	$(GO) vet ./...
	$(GO) vet -tags interop ./internal/lab/interop/...
	@for dir in tools $(INNER) $(MODULES); do echo "vet $$dir" && $(GO) vet -C $$dir ./... || exit 1; done

.PHONY: golangci
golangci: ## golangci-lint, as pinned in tools/go.mod and configured in .golangci.yml
	$(TOOL) golangci-lint run --allow-parallel-runners ./...
	$(TOOL) golangci-lint run --allow-parallel-runners --build-tags interop ./internal/lab/interop/...
	@for dir in $(INNER) $(MODULES); do \
		echo "golangci $$dir" && (cd $$dir && $(GO) tool -modfile="$(CURDIR)/tools/go.mod" golangci-lint run --allow-parallel-runners --config "$(CURDIR)/.golangci.yml" ./...) || exit 1; \
	done

.PHONY: echov5
echov5: ## check that the adapter for Echo v5 is that for v4, but for what differs; WRITE=1 writes it
	$(GO) test -C tools ./echov5
	$(GO) run -C tools ./echov5 $(if $(WRITE),-write)

# Vale runs our rules in .vale. Its first build takes two minutes.
VALE = github.com/vale-cli/vale/v3/cmd/vale@v3.22.0
WORDS = README.md ARCHITECTURE.md CONTRIBUTING.md AGENTS.md CHANGELOG.md SECURITY.md *.go docs core guard coalesce delegation idempotency keyfuncs \
	adapter middleware wasm embedded inspect internal examples cmd caddy otelreqlock promreqlock deploy tools

.PHONY: words
words: test-tools ## check the words of README, docs and comments: phrases, long sentences, passive verbs, reading ease
	$(GO) run $(VALE) --output=line $(WORDS)

.PHONY: options
options: ## check that docs/reference/options.md says what the doc comments of the options say; WRITE=1 writes it
	$(GO) test -C tools ./options
	$(GO) run -C tools ./options $(if $(WRITE),-write)

.PHONY: states
states: ## check that docs/inside/engine-states.md says what the engine's machines say; WRITE=1 writes it
	$(GO) test -p 1 ./core/internal/claim ./core/internal/redisop -count=1 -run TestStates_Document $(if $(WRITE),-write)

.PHONY: api
api: ## check that no exported name of the last version is gone or has changed; WRITE=1 records the names of this version
	$(GO) test -C tools ./api
	$(GO) run -C tools ./api $(if $(WRITE),-write)

.PHONY: tidy
tidy: ## check that go.mod and go.sum match the imports
	$(GO) mod tidy -diff
	@for dir in tools $(INNER) $(MODULES); do echo "tidy $$dir" && (cd $$dir && $(GO) mod tidy -diff) || exit 1; done

# It asks vuln.go.dev, so it is not part of lint. The weekly workflow runs it.
GOVULNCHECK = golang.org/x/vuln/cmd/govulncheck@v1.9.0

.PHONY: govulncheck
govulncheck: ## look for known vulnerabilities in the code that each module calls
	@status=0; for dir in . tools $(INNER) $(MODULES); do echo "govulncheck $$dir" && $(GO) run $(GOVULNCHECK) -C $$dir -test ./... || status=1; done; exit $$status
