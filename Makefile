# muster: make help

GO      ?= go
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# The redis-server that tests use; empty where there is none.
REDIS = $$(scripts/redis.sh || echo off)

.PHONY: openapi render help build release test short miniredis test-servers race raced unraced sim faults lint vuln bench peers soak fuzz browser pictures docs e2e up agents down

help: ## what there is
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## bin/muster
	$(GO) build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o bin/muster ./cmd/muster

release: ## dist/VERSION: archives with bills of materials, sums, images; vets the code
	MUSTER_TEST_INSTALL=1 $(GO) test -count=1 -run '^TestModuleIsInstalled$$' ./scripts
	GO="$(GO)" scripts/release.sh $(VERSION)

test: ## the tests with -short, and a few in a browser, on a real Redis if there is one; prints which
	@$(MAKE) --no-print-directory --jobs=2 SHORT=-short browser short

# Most tests wait, so more packages than CPUs are tested at a time.
short:
	@redis=$(REDIS); \
	if [ "$$redis" = off ]; then \
	  echo "test: NO redis-server: tests run on miniredis; outages, persistence, Cluster and speed are NOT covered" >&2; \
	else echo "test: $$($$redis --version)" >&2; fi; \
	MUSTER_TEST_REDIS_SERVER=$$redis $(GO) test -short -p $$(( 2 * $$(getconf _NPROCESSORS_ONLN) )) $(QUICK) ./tasks ./cmd/muster ./orchestrator ./tasks/api ./sites/crawl ./orchestrator/webhook ./... # the longest packages first

# The packages whose scripts or error texts depend on the Redis, and whose tests take seconds.
MINI = ./internal/limit ./internal/redistest ./proxies ./sites/polite ./sites/internal/store \
	./orchestrator/access ./orchestrator/event ./orchestrator/health ./orchestrator/redisd ./internal/schema

miniredis: ## some packages on miniredis, as make test runs all of them where there is no redis-server
	MUSTER_TEST_REDIS_SERVER=off $(GO) test $(QUICK) $(MINI)

test-servers: ## the tests of the parts with keys in Redis on each server named in SERVERS, as "redis-server valkey-server"
	@for server in $(or $(SERVERS),redis-server); do \
	  path=$$(command -v $$server) || { echo "test-servers: no $$server" >&2; exit 1; }; \
	  echo "test-servers: $$($$path --version)"; \
	  MUSTER_TEST_REDIS_SERVER=$$path $(GO) test -short $(QUICK) -count=1 ./tasks/... ./jobs/... ./proxies/... ./sites/... ./orchestrator/... || exit 1; \
	done

race: raced unraced ## the same with the race detector where goroutines meet; it needs a C compiler

# The packages whose goroutines share memory. The others call these, or have one goroutine, and the detector makes them slow.
RACED = ^muster/(tasks($$|/(internal/(engine|store)|metrics|otel|taskstest|ui|workqueue)$$)|proxies($$|/(gateway|probe|source|tunnel)$$)|sites($$|/(fetch|polite|record)$$)|orchestrator/(access|event|redisd|supervise|ui|webhook)$$|jobs($$|/agent$$)|internal/(limit|testutil|webhook|webui)$$)

# make lint vets, and no debugger reads these binaries. A busy machine needs ten minutes for ./tasks.
QUICK = -vet=off -ldflags='-s -w' -timeout 20m

# Compilers, linkers and tests take less CPU time with larger heaps.
short raced unraced miniredis test-servers lint browser e2e sim openapi: export GOGC = 400

# The packages with tests: go test compiles the others, too.
TESTED = $(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...

# Each script of miniredis runs in an interpreter of its own, which shares no memory and needs no race detector. A package that has
# instances of generic types of others, such as sync.Map, must not be added: the linker takes one instance for all.
UNSHARED = -gcflags='github.com/yuin/gopher-lua/...=-race=false'

# The longest packages are the first.
raced:
	MUSTER_TEST_REDIS_SERVER=$(REDIS) $(GO) test $(QUICK) -race $(UNSHARED) ./tasks $$($(TESTED) | grep -E '$(RACED)')

unraced:
	MUSTER_TEST_REDIS_SERVER=$(REDIS) $(GO) test $(QUICK) ./tasks/internal/sim $$($(TESTED) | grep -vE '$(RACED)')

sim: ## the engine in HISTORIES (100,000) random histories, from seed FIRST (1)
	MUSTER_TEST_REDIS_SERVER=$(REDIS) MUSTER_SIM_FIRST=$(or $(FIRST),1) MUSTER_SIM_HISTORIES=$(or $(HISTORIES),100000) $(GO) test $(QUICK) -count=1 -timeout 3h -run '^TestSimulation$$' -v ./tasks/internal/sim

faults: ## every call to Redis refused, unheard, repeated, slow or frozen, one at a time
	MUSTER_TEST_REDIS_SERVER=$(REDIS) MUSTER_FAULTS=all $(GO) test -count=1 -timeout 1h -run 'AFaultAtAnyCall$$' ./tasks ./tasks/workqueue ./jobs ./orchestrator/webhook ./jobs/agent ./orchestrator/event ./proxies ./sites/record

lint: ## gofmt, go vet, staticcheck, manifests of Kubernetes
	@files=$$(gofmt -l $$(git ls-files '*.go')); \
	if [ -n "$$files" ]; then echo "gofmt -w these:"; echo "$$files"; exit 1; fi
	$(GO) vet -tags e2e ./...
	$(GO) -C scripts/browser vet ./...
	$(GO) -C scripts/crawlbench vet ./...
	$(GO) -C scripts/peers/muster vet ./...
	GOGC=100 $(GO) tool -modfile=scripts/lint/go.mod staticcheck ./...
	$(GO) -C scripts/lint test -count=1 .

vuln: ## known vulnerabilities in what is called; says so where the database cannot be reached
	@out=$$($(GO) tool -modfile=scripts/lint/go.mod govulncheck ./... 2>&1); code=$$?; echo "$$out"; \
	case "$$out" in *"fetching vulnerabilities:"*) \
	  echo "vuln: NOT CHECKED: the database of vulnerabilities cannot be reached from here" >&2; code=0;; esac; \
	exit $$code

bench: ## benchmarks; BENCH=Chord for some, TIME=5s for longer runs; x-NAME is the time of a baseline divided by ours
	MUSTER_TEST_REDIS_SERVER=$(REDIS) $(GO) test -p 1 -run '^$$' -bench '$(or $(BENCH),.)' -benchtime $(or $(TIME),1s) ./tasks/... ./proxies/... ./sites/...
	MUSTER_TEST_REDIS_SERVER=$(REDIS) $(GO) -C scripts/crawlbench test -run '^$$' -bench '$(or $(BENCH),.)' -benchtime 3x .

soak: ## the whole system for MINUTES (120) under load, with a fault a minute; accounts must balance, nothing may grow
	MUSTER_TEST_REDIS_SERVER=$(REDIS) $(GO) test -vet=off -count=1 -timeout 0 -tags e2e -run '^TestSoak$$' -v ./scripts/e2e -args -minutes $(or $(MINUTES),120) $(SOAK)

fuzz: ## fuzz the packages changed since FUZZ (main; all for every package), INPUTS (50000) per target
	GO="$(GO)" scripts/fuzz.sh $(or $(INPUTS),50000) $(or $(FUZZ),main)

peers: ## the same work on other task queues; writes docs/performance.md
	$(GO) -C scripts/peers run .

browser: ## the web pages in a real browser; says so where there is none
	@browser=$$(scripts/browser.sh) || { echo "browser: the web pages are NOT tested in a browser" >&2; exit 0; }; \
	echo "browser: $$($$browser --version)" >&2; \
	MUSTER_TEST_BROWSER=$$browser MUSTER_TEST_REDIS_SERVER=$(REDIS) $(GO) -C scripts/browser test $(QUICK) $(SHORT) -count=1 .

render: ## the renderer of sites in a real browser, which needs an idle machine
	MUSTER_TEST_BROWSER=$$(scripts/browser.sh) MUSTER_TEST_REDIS_SERVER=$(REDIS) $(GO) test -count=1 -run 'Browser|Render|Page|Session' ./sites/render ./sites/crawl

openapi: ## check the OpenAPI document, and compile clients generated from it; says so where npm is missing
	scripts/openapi.sh

pictures: ## docs/pictures, of the demo; with EACH=DIR every page, at three widths, light and dark
	$(GO) -C scripts/browser run ./pictures -browser $$(scripts/browser.sh) -each "$(EACH)"

docs: ## dist/site: the documentation as web pages, with search, and llms.txt; says which packages are missing
	@scripts/docs.sh

# Most tests wait, so twice as many as CPUs run at a time.
e2e: ## the real binary: kill -9, outages, Ctrl-C
	PATH="$$(dirname $(REDIS)):$$PATH" MUSTER_TEST_REDIS_SERVER=$(REDIS) $(GO) test $(QUICK) -count=1 -parallel $$(( 2 * $$(getconf _NPROCESSORS_ONLN) )) -tags e2e ./scripts/e2e

up: .env ## redis, orchestrator and two workers in containers
	docker compose up --build --detach
	@echo "pages: http://localhost:8000, any user name, password: $$(sed -n 's/^MUSTER_API_KEY=//p' .env)"

agents: up ## the same with two agents, which have a key of their role
	@grep -q ^MUSTER_AGENT_KEY= .env || key=$$(docker compose exec -T orchestrator /muster keys create --name agents --role agent) && \
		{ [ -z "$$key" ] || echo "MUSTER_AGENT_KEY=$$key" >>.env; }
	docker compose --profile agents up --detach

.env:
	@umask 077; for name in MUSTER_API_KEY MUSTER_REDIS_PASSWORD; do \
		echo "$$name=$$(head -c 24 /dev/urandom | base64 | tr '+/' '-_')"; done >$@

down: ## stop them; their data stays
	docker compose down
