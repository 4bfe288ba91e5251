// Package sim runs the engine's objects and scripts under a scheduler and a clock that a seed decides on: random
// workflows, interleavings, crashes, lost, repeated and late calls, and clocks that differ. A history that goes
// wrong prints its seed, which mostly makes it again: the order of calls that the goroutines of a worker begin at
// the same time is not decided by it.
package sim
