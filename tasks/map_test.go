package tasks_test

import (
	"testing"

	"muster/tasks"
)

func TestMapsJoinsAndRescues(t *testing.T) {
	t.Parallel()
	runRows(t, mapRows)
}

// mapRows are the values of maps, joins, settled lists and rescues.
var mapRows = []row{
	value("map", func() tasks.Signature[int] { return tasks.Chord(tasks.Map(Range.S(100), Double), Sum) }, 9900),
	value("map of nothing", func() tasks.Signature[[]int] { return tasks.Map(Range.S(0), Double) }, []int{}),
	value("map of a map", func() tasks.Signature[[]int] { return tasks.Map(tasks.Map(Range.S(5), Inc), Double) }, []int{2, 4, 6, 8, 10}),
	value("map over plans", func() tasks.Signature[[][]int] {
		return tasks.Map(tasks.Map(Range.S(3), Range), ToAll)
	}, [][]int{{}, {1}, {1, 2}}),
	fails("map with a failure", func() tasks.Signature[int] { return tasks.Chord(tasks.Map(Range.S(1), Fail), Sum) }, "E0"),
	value("map, few at once", func() tasks.Signature[int] {
		return tasks.Chord(tasks.Map(Range.S(50), Double, tasks.AtMost(3)), Sum)
	}, 2450),
	value("group of chains, few at once", func() tasks.Signature[[]int] {
		ms := make([]tasks.Signature[int], 10)
		for i := range ms {
			ms[i] = tasks.Chain(ID.S(i), Inc)
		}
		return tasks.GroupOf(ms, tasks.AtMost(2))
	}, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}),
	value("join", func() tasks.Signature[int] {
		return tasks.Chain(tasks.Join(ID.S(1), tasks.Each([]int{2, 3}, ID)), PairSum)
	}, 6),
	value("settled group", func() tasks.Signature[string] {
		return tasks.Chord(tasks.Settle(tasks.Group(ID.S(1), Fail.S(2), tasks.Chain(Fail.S(3), Inc))), Settled)
	}, "1 E2 E3"),
	value("settled map", func() tasks.Signature[string] {
		return tasks.Chord(tasks.Settle(tasks.Map(Range.S(2), Fail)), Settled)
	}, "E0 E1"),
	value("settled empty map", func() tasks.Signature[string] {
		return tasks.Chord(tasks.Settle(tasks.Map(Range.S(0), Fail)), Settled)
	}, ""),
	value("settled list of one task", func() tasks.Signature[string] {
		return tasks.Chord(tasks.Settle(Range.S(3)), Settled)
	}, "0 1 2"),
	fails("settled map over a failure", func() tasks.Signature[string] {
		return tasks.Chord(tasks.Settle(tasks.Map(tasks.Chain(Fail.S(4), Range), Inc)), Settled)
	}, "E4"),
	value("rescued", func() tasks.Signature[int] { return tasks.Chain(Fail.S(1).Rescue(Instead), Inc) }, 0),
	value("rescue not needed", func() tasks.Signature[int] { return tasks.Chain(ID.S(1).Rescue(Instead), Inc) }, 2),
	value("rescued chain", func() tasks.Signature[int] {
		return tasks.Chain(Fail.S(1), Inc).Rescue(Instead)
	}, -1),
}
