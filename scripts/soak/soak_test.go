//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/tasks"
	"muster/tasks/redistest"
)

func TestSameSeedMakesTheSameFaults(t *testing.T) {
	t.Parallel()
	faultsOf := func(seed uint64) (all []string) {
		r := rand.New(rand.NewPCG(seed, 1))
		for n := range 60 {
			all = append(all, pick(r, n >= 30).String())
		}
		return all
	}
	if a, b := faultsOf(7), faultsOf(7); !slices.Equal(a, b) {
		t.Errorf("got %v and %v, want the same", a, b)
	}
	if a, b := faultsOf(7), faultsOf(8); slices.Equal(a, b) {
		t.Errorf("got %v for two seeds", a)
	}
}

func TestSecondHalfDoesNotStopLastingProcesses(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	first := map[string]bool{}
	for range 2000 {
		first[pick(r, false).action] = true
		if f := pick(r, true); (f.action == "kill" || f.action == "stop") && slices.Contains(lasting, f.target) {
			t.Fatalf("got %s in the second half", f)
		}
	}
	for _, action := range []string{"kill", "stop", "freeze", "cut"} {
		if !first[action] {
			t.Errorf("no fault with action %s", action)
		}
	}
}

func TestKeyPrefix(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"muster:{3}:w:soak-123":      "muster:*:w:*",
		"muster:{3}:agenda":          "muster:*:agenda",
		"muster:wq:{soak}:spec":      "muster:wq:{soak}:spec",
		"muster:store":               "muster:store",
		"asynq:{default}:t:1f0c-aab": "asynq:{default}:t:*",
		"asynq:servers":              "asynq:servers",
		"muster:job:1079af84-a789-4640-b8de-bb79a7abc3ab:items": "muster:job:*:items",
	} {
		if got := keyPrefix(key); got != want {
			t.Errorf("%s: got %s, want %s", key, got, want)
		}
	}
}

func TestMetric(t *testing.T) {
	t.Parallel()
	text := "# HELP go_goroutines x\ngo_goroutines_other 4\ngo_goroutines 31\n"
	if got, err := metric(strings.NewReader(text), "go_goroutines"); got != 31 || err != nil {
		t.Errorf("got %g, %v, want 31", got, err)
	}
	if _, err := metric(strings.NewReader("nothing 1\n"), "go_goroutines"); err == nil {
		t.Error("got no error for a missing metric")
	}
}

// reportOf returns the report of a run of 40 minutes with one value, which is of(quarter) in each quarter.
func reportOf(name string, of func(quarter int) float64) *report {
	r := &report{Minutes: 40, Accounts: []book{{Kind: kindFlow, Sent: 3, Ended: 3}}}
	for q := range quarters {
		for range 3 {
			for _, drained := range []bool{false, true} {
				r.Samples = append(r.Samples, sample{Quarter: q, Drained: drained, Values: map[string]float64{name: of(q), "fds redis": 5}})
			}
		}
	}
	return r
}

func TestGrowthIsFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		second, last float64
		ok           bool
	}{
		{"rss orchestrator", 100 << 20, 130 << 20, true},
		{"rss orchestrator", 100 << 20, 150 << 20, false},
		{"goroutines queue run", 30, 60, true},
		{"goroutines queue run", 30, 90, false},
		{"fds worker-1", 20, 60, false},
		{"keys muster:*:w:*", 100, 300, false},
		{"new keys", 0, 100, false},
		{"files data/records", 10, 40, false},
		{"redis memory", 4 << 20, 20 << 20, false},
		{"expiring keys muster:*:w:*", 100, 300, false},
	} {
		r := reportOf(c.name, func(q int) float64 {
			switch q {
			case 1:
				return c.second
			case quarters - 1:
				return c.last
			}
			return 0
		})
		if r.judge(); r.OK != c.ok {
			t.Errorf("%s from %g to %g: got good %t, want %t: %v", c.name, c.second, c.last, r.OK, c.ok, r.Problems)
		}
		if text := r.markdown(); strings.Contains(text, "FAILED") == c.ok || !strings.Contains(text, c.name) {
			t.Errorf("the growth is not in the table:\n%s", text)
		}
	}
}

func TestGrowthIsNotJudgedInAShortRun(t *testing.T) {
	t.Parallel()
	r := reportOf("fds worker-1", func(q int) float64 { return float64(100 * q) })
	r.Minutes = leastMinutes - 1
	if r.judge(); !r.OK {
		t.Errorf("got %v, want no problems", r.Problems)
	}
}

func TestKeysThatExpireLaterThanAQuarterMayGrow(t *testing.T) {
	t.Parallel()
	for expiry, ok := range map[time.Duration]bool{time.Hour: true, 5 * time.Minute: false} {
		r := reportOf("expiring keys x", func(q int) float64 { return float64(100 * q) })
		for i := range r.Samples {
			r.Samples[i].Values["expiry of x"] = expiry.Seconds()
		}
		if r.judge(); r.OK != ok {
			t.Errorf("keys that expire after %s: got good %t, want %t: %v", expiry, r.OK, ok, r.Problems)
		}
	}
}

func TestImbalanceIsFound(t *testing.T) {
	t.Parallel()
	for _, b := range []book{{kindItem, 5, 4, 0}, {kindItem, 5, 5, 1}, {kindItem, 5, 6, 0}, {kindItem, 0, 0, 0}} {
		r := reportOf("fds worker-1", func(int) float64 { return 1 })
		r.Accounts = append(r.Accounts, b)
		if r.judge(); r.OK {
			t.Errorf("%+v: got no problem", b)
		}
	}
}

func TestFlowsCheckTheirResults(t *testing.T) {
	t.Parallel()
	kinds := map[string]bool{}
	for n := range 200 {
		f := newFlow(rand.New(rand.NewPCG(uint64(n), 2)))
		kinds[f.name] = true
		failed := fmt.Errorf("wait: %w", &tasks.Failure{Message: errWanted.Error()})
		if f.fails {
			failed, f.value = nil, 0
		}
		if f.wrong(f.value, failed) == "" {
			t.Errorf("%s: got nothing wrong for %d, %v", f.name, f.value, failed)
		}
		if f.wrong(f.value+1, errors.New("other")) == "" {
			t.Errorf("%s: got nothing wrong for another error", f.name)
		}
	}
	if len(kinds) != 8 {
		t.Errorf("got the kinds %v, want 8", kinds)
	}
}

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-minutes", "1"}, {"-rate", "0"}, {"more"}, {"-unknown"}} {
		if _, err := parse(args, io.Discard); !errors.Is(err, errUsage) {
			t.Errorf("%v: got %v, want %v", args, err, errUsage)
		}
	}
	o, err := parse([]string{"-minutes", "30", "-seed", "9"}, io.Discard)
	if err != nil || o.minutes != 30 || o.seed != 9 {
		t.Errorf("got %+v, %v", o, err)
	}
	if got := drainShare(time.Hour); got != 90*time.Second {
		t.Errorf("got %s for a drain of an hour, want 90s", got)
	}
}

// A job counts once with one verdict, even if its deletion fails or the reply is lost.
func TestJobsAreAuditedOnce(t *testing.T) {
	t.Parallel()
	status, deletes, gone := "processing", 0, false
	var mu sync.Mutex
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case r.Method == http.MethodDelete:
			deletes++
			if gone = true; deletes == 1 { // deleted, but the reply is lost
				w.WriteHeader(http.StatusBadGateway)
			}
		case r.URL.Path == "/v1/scrapes/lost" || gone:
			w.WriteHeader(http.StatusNotFound)
		default:
			fmt.Fprintf(w, `{"id":"there","name":"default","status":%q}`, status)
		}
	}))
	t.Cleanup(srv.Close)
	l := &load{
		s: &system{data: t.TempDir(), url: srv.URL, http: srv.Client()}, jobs: map[string]*sentJob{}, known: map[string]bool{},
		books: map[string]*book{kindJob: {Kind: kindJob}, kindScrape: {Kind: kindScrape}},
	}
	audit := func(wantOpen int, wantErr bool, want book) {
		t.Helper()
		l.addJob("there", sentJob{kind: kindJob}) // added again by a list or a command
		if open, err := l.auditJobs(t.Context()); open != wantOpen || (err != nil) != wantErr {
			t.Errorf("got %d open, error %v; want %d, error %t", open, err, wantOpen, wantErr)
		}
		if got := *l.books[kindJob]; got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	audit(1, false, book{kindJob, 1, 0, 0})
	mu.Lock()
	status = "completed"
	mu.Unlock()
	audit(1, true, book{kindJob, 1, 0, 0})
	audit(0, false, book{kindJob, 1, 1, 0})
	audit(0, false, book{kindJob, 1, 1, 0})
	l.addJob("lost", sentJob{kind: kindScrape})
	if _, err := l.auditJobs(t.Context()); err != nil || *l.books[kindScrape] != (book{kindScrape, 1, 1, 1}) {
		t.Errorf("got %+v, %v, want the lost scrape to be wrong", *l.books[kindScrape], err)
	}
}

func TestInterruptedRunIsResumed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	was := reportOf("fds worker-1", func(int) float64 { return 1 })
	was.Seed, was.Seconds, was.Quarter, was.Sequence, was.Ports[2] = 1<<52+1, 90, 1, 77, 4321
	if err := writeJSON(was, filepath.Join(dir, reportFile)); err != nil {
		t.Fatal(err)
	}
	r, err := readReport(dir)
	if err != nil {
		t.Fatal(err)
	}
	was.Resumed = 1
	if !reflect.DeepEqual(r, was) {
		t.Errorf("got %+v, want %+v", r, was)
	}
	l := newLoad(&system{client: tasks.NewClient(redistest.Mini(t))}, r)
	l.sent(kindFlow, 2)
	if got := l.account()[0]; got != (book{kindFlow, 5, 3, 0}) || l.n != 77 {
		t.Errorf("got %+v, sequence %d, want the counts of before and 2 more, and 77", got, l.n)
	}
	if _, err := readReport(t.TempDir()); !errors.Is(err, errUsage) || !strings.Contains(err.Error(), "-resume") {
		t.Errorf("got %v for an empty directory, want an error that names -resume", err)
	}
}
