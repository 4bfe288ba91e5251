// Package chaos tests workflows on fleets of real worker processes that are killed with -9, frozen and
// cut off from Redis while they work: whatever happens, every workflow ends, ends right, and nothing is
// done twice that was not in flight in something killed.
//
// The tests take two minutes, and a tag: go test -tags e2e ./scripts/e2e/chaos, or make e2e. Each prints
// its seed; MUSTER_CHAOS_SEED takes it.
package chaos
