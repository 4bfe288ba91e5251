package event

import (
	"errors"
	"testing"

	"muster/internal/redistest"
)

// Adding events survives a fault at any call: after a retry, a named event exists once, and other events at least
// once.
func TestEventsSurviveAFaultAtAnyCall(t *testing.T) {
	t.Parallel()
	redistest.EachFault(t, map[redistest.Kind]int{
		redistest.Refused: 4, redistest.ReplyLost: 4, redistest.Repeated: 4,
	}, func(t *testing.T, f *redistest.Fault) {
		url := redistest.URL(t)
		s := New(f.Client(t, url))
		f.Arm()
		var ids []string
		for _, once := range []string{"one", "", "one", "two"} {
			id, err := s.Add(t.Context(), "agent.lost", "", once, nil)
			if errors.Is(err, redistest.ErrFault) {
				id, err = s.Add(t.Context(), "agent.lost", "", once, nil)
			}
			if err != nil {
				t.Fatalf("add: %v", err)
			}
			ids = append(ids, id)
		}
		if ids[0] != ids[2] {
			t.Errorf("the same event again: got the id %s, want %s", ids[2], ids[0])
		}
		all, err := New(redistest.NewFault(redistest.Refused, 0).Client(t, url)).Last(t.Context(), "", 10)
		if err != nil || len(all) < 3 || len(all) > 4 || len(all) == 4 && f.Kind == redistest.Refused {
			t.Fatalf("got %d events, %v, want 3, or one twice", len(all), err)
		}
		times := map[string]int{}
		for _, e := range all {
			times[e.ID]++
		}
		for _, id := range ids {
			if times[id] != 1 {
				t.Errorf("event %s is there %d times, want once", id, times[id])
			}
		}
	})
}
