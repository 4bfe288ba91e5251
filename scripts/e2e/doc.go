// Package e2e tests the muster binary against the world of the demo under faults: killed workers and Redis, Ctrl-C in every
// phase, and a machine without Redis. Each test expects exactly the records of the sites, once each.
//
// Agents of examples/agents in Python and Node.js process jobs.
//
// Workflows run on fleets of worker processes that are killed with SIGKILL, frozen and disconnected from Redis. Every workflow must
// finish with the correct result, and only tasks that were in flight in a killed process may run twice. Each of these tests prints
// its seed, which MUSTER_CHAOS_SEED sets.
//
// The tests take three minutes and require a build tag: go test -tags e2e ./scripts/e2e, or make e2e.
package e2e
