// Package e2e tests the muster binary against the world of the demo under faults: killed workers and Redis, Ctrl-C in every
// phase, and a machine without Redis. Each test expects exactly the records of the sites, once each.
//
// Meanwhile agents of examples/agents in Python, Node.js and Go process jobs. Each item must be settled once, with the result that
// was confirmed to its agent. MUSTER_E2E_AGENTS=200x50x60 runs that test with 200 jobs of 50 items and 60 kills.
//
// The tests take a minute and require a build tag: go test -tags e2e ./scripts/e2e, or make e2e.
package e2e
