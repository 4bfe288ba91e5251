// Package e2e tests the real binary against the demo's world, through what a run meets in the wild:
// workers and Redis killed with -9, Ctrl-C in every phase, a machine without Redis. Each test wants
// exactly the records that the sites have, each once.
//
// The tests take a minute, and a tag: go test -tags e2e ./scripts/e2e, or make e2e.
package e2e
