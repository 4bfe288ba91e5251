// Package e2e tests the muster binary against the world of the demo under faults: killed workers and Redis, Ctrl-C in every
// phase, and a machine without Redis. Each test expects exactly the records of the sites, once each.
//
// Agents of examples/agents in Python and Node.js process jobs.
//
// The tests take a minute and require a build tag: go test -tags e2e ./scripts/e2e, or make e2e.
package e2e
