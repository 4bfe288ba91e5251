// Package e2e tests the real binary against the demo's world, through what a run meets in the wild:
// workers and Redis killed with -9, Ctrl-C in every phase, a machine without Redis. Each test wants
// exactly the records that the sites have, each once.
//
// Agents of examples/agents, in Python, Node and Go, work on jobs meanwhile: each item must be settled once, as its agent
// was told. MUSTER_E2E_AGENTS=200x50x60 runs that test with 200 jobs of 50 items and 60 kills.
//
// The tests take a minute, and a tag: go test -tags e2e ./scripts/e2e, or make e2e.
package e2e
