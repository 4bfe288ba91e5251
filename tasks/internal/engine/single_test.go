package engine

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/redistest"
)

// A task that is sent as it was declared is stored as if it had been compiled by itself.
func TestSingleIsWhatCompileMakes(t *testing.T) {
	t.Parallel()
	e := engineOn(t, redistest.New(t))
	now := time.UnixMilli(1_700_000_000_000)
	e.SetClock(func() time.Time { return now })
	n, hour, at := 3, time.Hour, time.UnixMilli(1_234_567_890_123)
	for name, opts := range map[string]*graph.Opts{
		"none": graph.NoOpts, "nil": nil, "queue": {Queue: "slow", Priority: &n}, "retries": {MaxRetry: &n, Backoff: &graph.Backoff{Base: 1, Cap: 2}},
		"limits": {Timeout: &hour, Hard: &hour, Rate: &graph.Rate{N: 1, Per: hour}}, "later": {In: &hour}, "at": {At: &at, Expires: &at},
	} {
		for range 2 { // the second time it is known
			now = now.Add(time.Millisecond)
			s := &graph.Sig{Shape: graph.Call, Task: "t." + name, Opts: opts, Input: json.RawMessage(`{"a":1}`)}
			wantGraph, want, err := e.compile(s, graph.NoOpts)
			if err != nil {
				t.Fatal(err)
			}
			s.Declared = true
			gotGraph, got, err := e.compile(s, graph.NoOpts)
			if err != nil || !reflect.DeepEqual(got, want) || !reflect.DeepEqual(gotGraph, wantGraph) {
				t.Errorf("%s: got %+v, %v, want %+v\n%s\n%s", name, got, err, want, got.Graph, want.Graph)
			}
		}
	}
	bad := &graph.Sig{Shape: graph.Call, Task: "t", Declared: true, Err: errors.New("does not marshal")}
	if _, _, err := e.compile(bad, graph.NoOpts); !errors.Is(err, graph.ErrInvalid) {
		t.Errorf("got %v", err)
	}
	large := &graph.Sig{Shape: graph.Call, Task: "t", Declared: true, Input: make([]byte, maxInput+1)}
	if _, _, err := e.compile(large, graph.NoOpts); err == nil || !strings.Contains(err.Error(), "task t has") {
		t.Errorf("got %v", err)
	}
}
