package event

import (
	"fmt"
	"strconv"
	"strings"
)

// IDError means that a string is not the ID of an event.
type IDError struct{ ID string }

// Error describes the format of an ID.
func (e *IDError) Error() string {
	return fmt.Sprintf("invalid event id %.60q: want the form 1735689600000-0", e.ID)
}

// position is a place in a stream: the two numbers of an id.
type position struct{ ms, seq uint64 }

// parse parses an ID. A missing second number is 0.
func parse(id string) (position, error) {
	first, second, both := strings.Cut(id, "-")
	if !both {
		second = "0"
	}
	ms, err := strconv.ParseUint(first, 10, 64)
	if err != nil {
		return position{}, &IDError{id}
	}
	seq, err := strconv.ParseUint(second, 10, 64)
	if err != nil {
		return position{}, &IDError{id}
	}
	return position{ms, seq}, nil
}

func (p position) String() string { return fmt.Sprintf("%d-%d", p.ms, p.seq) }

func (p position) before(q position) bool {
	return p.ms < q.ms || p.ms == q.ms && p.seq < q.seq
}
