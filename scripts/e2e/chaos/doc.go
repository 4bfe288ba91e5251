// Package chaos tests workflows on fleets of worker processes that are killed with SIGKILL, frozen and disconnected from Redis.
// Every workflow must finish with the correct result, and only tasks that were in flight in a killed process may run twice.
//
// The tests take two minutes and require a build tag: go test -tags e2e ./scripts/e2e/chaos, or make e2e. Each test prints its
// seed, which MUSTER_CHAOS_SEED sets.
package chaos
