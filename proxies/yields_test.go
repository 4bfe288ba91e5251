package proxies

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/proxies/probe"
	"muster/proxies/proxytest"
	"muster/proxies/source"
	"muster/tasks/redistest"
)

// Refreshes without a usable proxy are counted. A source without yield is reported in the log once.
func TestYields(t *testing.T) {
	t.Parallel()
	var logs bytes.Buffer
	pool := newPool(t, redistest.New(t), func(c *PoolConfig) { c.Logger = slog.New(slog.NewTextHandler(&logs, nil)) })
	record := func(run string, sources map[string]Yield) {
		t.Helper()
		for range 2 { // a task may run twice
			testutil.Ok(t, pool.yields.record(t.Context(), run, sources))
		}
	}
	good := Yield{Candidates: 10, Unique: 4, Alive: 3, Usable: 2, Elite: 1}
	record("1", map[string]Yield{"a": good, "b": {Candidates: 5}})
	record("2", map[string]Yield{"a": good, "b": {Candidates: 5}})
	for range 2 { // two attempts of one refresh
		testutil.Ok(t, pool.yields.recordRead(t.Context(), "3", source.List{Source: "b", Rejects: map[source.Reject]int{source.Private: 3}}, source.ErrEmpty))
	}
	yields, err := pool.Yields(t.Context())
	testutil.Ok(t, err)
	if a := yields["a"]; a.Last != good || a.DryFor != 0 || a.State() != "yields" {
		t.Errorf("a: got %+v, want the last refresh", a)
	}
	b := yields["b"]
	if b.DryFor != 3 || b.State() != "DRY for 3" || b.Error != source.ErrEmpty.Error() || b.Rejects[source.Private] != 3 || b.Last != (Yield{}) {
		t.Errorf("b: got %+v, want dry for three refreshes", b)
	}
	if n := strings.Count(logs.String(), "no usable proxies"); n != 1 || !strings.Contains(logs.String(), "source=b") {
		t.Errorf("logged %d times: %s", n, logs.String())
	}
	record("4", map[string]Yield{"b": good})
	if yields, _ := pool.Yields(t.Context()); yields["b"].DryFor != 0 {
		t.Errorf("got %+v, want it not dry", yields["b"])
	}
}

// A refresh records for each source the rejects, shared candidates and read errors. Members in no list count for no
// source.
func TestRefreshRecordsYields(t *testing.T) {
	t.Parallel()
	p := startProxy(t, proxytest.Elite, 1)
	f := newFleet(t, probe.Config{Judges: startJudge(t)})
	both, only := writeFile(t, p.URL.String()+"\n224.0.0.1:80\n"), writeFile(t, p.URL.String()+"\nhttp://127.0.0.9:1\n")
	sources := []source.Source{{Name: "both", URL: both, AllowLocal: true}, {Name: "only", URL: only, AllowLocal: true}, {Name: "gone", URL: both + ".gone"}}
	if _, _, err := f.refresh(t, sources...); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.refresh(t, source.Source{Name: "dead", URL: writeFile(t, "http://127.0.0.9:1"), AllowLocal: true}); err != nil {
		t.Fatal(err)
	}
	yields, err := f.pool.Yields(t.Context())
	testutil.Ok(t, err)
	for name, want := range map[string]Yield{"both": {1, 0, 1, 1, 1}, "only": {2, 1, 1, 1, 1}, "gone": {}, "dead": {1, 1, 0, 0, 0}} {
		if got := yields[name]; got.Last != want || got.Run == "" {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
	if got := yields["both"].Rejects[source.Reserved]; got != 1 {
		t.Errorf("both: got %d reserved rejects, want 1", got)
	}
	if got := yields["gone"]; !strings.Contains(got.Error, "no such file") || got.State() != "unreadable" {
		t.Errorf("gone: got %+v, want it unreadable", got)
	}
}
