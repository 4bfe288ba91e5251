package jobs_test

import (
	"strings"
	"testing"

	"muster/jobs"
)

func TestSeedCreatesJobsOnce(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		const text = `{"id":"welcome","prompt":"say hello","labels":["demo"],"priority":3}

{"id":"second","prompt":"then","after":["welcome"]}`
		for i, want := range []jobs.Seeded{{Created: 2}, {Kept: 2}} {
			if got, err := w.Seed(w.ctx, strings.NewReader(text)); err != nil || got != want {
				t.Errorf("run %d: got %+v, %v, want %+v", i+1, got, err, want)
			}
		}
		if j, err := w.Get(w.ctx, "welcome"); err != nil || j.Priority != 3 || j.Pipeline.Name != "default" {
			t.Errorf("got %+v, %v, want the job of the seed", j, err)
		}
		w.until("welcome", jobs.Processing)
	})
}

func TestSeedNamesTheInvalidLine(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		for text, want := range map[string]string{
			"\n" + `{"id":"a","promt":"x"}`: `line 2: json: unknown field "promt"`,
			`{"id":"a","prompt":"x"} {}`:    "line 1: unexpected data after the object",
			`{"prompt":"x"}`:                "line 1: id: required",
			`{"id":"a b","prompt":"x"}`:     `line 1: job_id: "a b" is not the id of a job`,
			`{"id":"a"}`:                    "line 1: prompt: ",
			`["a"]`:                         "line 1: the line: has the wrong type array",
			`{"id":"a","priority":"high"}`:  "line 1: priority: has the wrong type string",
			`{"id":"a"`:                     "line 1: unexpected EOF",
			`{"kind":"muster-export"}`:      `line 1: json: unknown field "kind"`,
			strings.Repeat("x", 17<<20):     "line 1: bufio.Scanner: token too long",
		} {
			got, err := w.Seed(w.ctx, strings.NewReader(text))
			if err == nil || !strings.Contains(err.Error(), want) || got != (jobs.Seeded{}) {
				t.Errorf("%.60q: got %+v, %v, want %q", text, got, err, want)
			}
		}
	})
}
