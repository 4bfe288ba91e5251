package main

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMarksAreParsed(t *testing.T) {
	t.Parallel()
	all, err := parseMarks([]byte("single 7 1700000000000001\nbody 3 1700000000000002\nsingle 7 1700000000000011\n"))
	want := []mark{{"single", 7, 1700000000000001}, {"body", 3, 1700000000000002}, {"single", 7, 1700000000000011}}
	if err != nil || !slices.Equal(all, want) {
		t.Errorf("got %v, %v, want %v", all, err, want)
	}
	if got := span(all); got != 10*time.Microsecond {
		t.Errorf("span: got %v, want 10µs", got)
	}
	if got := distinct(all); got != 2 {
		t.Errorf("distinct: got %d, want 2", got)
	}
	for _, damaged := range []string{"single 7\n", "single x 1\n", "single 1 x\n"} {
		if _, err := parseMarks([]byte(damaged)); err == nil {
			t.Errorf("parse %q: got no error", damaged)
		}
	}
}

func TestCPUTimeIncludesChildren(t *testing.T) {
	t.Parallel()
	var stats []stat
	for _, line := range []string{
		"10 (a) worker) S 1 10 10 0 -1 4194304 1 2 3 4 100 20 3 4 20 0 1 0 1 2 3",
		"11 (child) S 10 10 10 0 -1 4194304 1 2 3 4 50 0 0 0 20 0 1 0 1 2 3",
		"12 (grandchild) S 11 10 10 0 -1 4194304 1 2 3 4 1 0 0 0 20 0 1 0 1 2 3",
		"13 (stranger) S 1 13 13 0 -1 4194304 1 2 3 4 999 0 0 0 20 0 1 0 1 2 3",
	} {
		s, err := parseStat(line)
		if err != nil {
			t.Fatal(err)
		}
		stats = append(stats, s)
	}
	if got, want := cpuOfTree(stats, 10), 1780*time.Millisecond; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, err := parseStat("10 (short) S 1"); err == nil {
		t.Error("a short line: got no error")
	}
}

func TestRedisBytesExcludeBuffers(t *testing.T) {
	t.Parallel()
	got, err := redisBytes("# Memory\r\nused_memory:1000\r\nused_memory_human:1K\r\nmem_clients_normal:100\r\nmem_aof_buffer:50\r\n")
	if err != nil || got != 850 {
		t.Errorf("got %v, %v, want 850", got, err)
	}
	if _, err := redisBytes("# Memory\r\nused_memory:1000\r\n"); err == nil {
		t.Error("without the sizes of the buffers: got no error")
	}
}

func TestNumbersHaveThreeSignificantDigits(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "0", 0.1234: "0.123", 1.234: "1.23", 9.999: "10.0", 12.34: "12.3", 123.4: "123", 1234: "1,230", 1234567: "1,230,000", math.NaN(): "none",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v): got %q, want %q", v, got, want)
		}
	}
}

func TestQuantiles(t *testing.T) {
	t.Parallel()
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for _, c := range []struct {
		values []float64
		q      float64
		want   float64
	}{{hundred, 0.5, 50.5}, {hundred, 0.99, 99}, {[]float64{3, 1, 2}, 0.5, 2}, {[]float64{1}, 0.99, 1}} {
		if got := quantile(c.values, c.q); got != c.want {
			t.Errorf("quantile %v of %d values: got %v, want %v", c.q, len(c.values), got, c.want)
		}
	}
	if got := quantile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("of no values: got %v, want NaN", got)
	}
}

func TestVersionsAreParsed(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]string{
		{"go version", "go version go1.26.8 linux/amd64", "Go 1.26.8"},
		{"redis-server --version", "Redis server v=7.0.15 sha=00000000:0 malloc=x", "Redis 7.0.15"},
		{"/usr/bin/python3 --version", "Python 3.11.2", "Python 3.11.2"},
		{"/usr/bin/ruby --version", "ruby 3.1.2p20 (2022-04-12) [x86_64-linux]", "Ruby 3.1.2p20"},
		{"node --version", "v20.20.2", "Node.js 20.20.2"},
		{"psql --version", "psql (PostgreSQL) 15.13 (Debian 15.13-1)", "PostgreSQL 15.13"},
	} {
		if got := versionOf(c[0], c[1]); got != c[2] {
			t.Errorf("%s: got %q, want %q", c[0], got, c[2])
		}
	}
}

func TestPageHasARowForEachSystem(t *testing.T) {
	t.Parallel()
	ours, theirs, loser := &outcome{System: system{Name: "Muster"}}, &outcome{System: system{Name: "Other", Version: "1.2"}}, &outcome{System: system{Name: "Loser", Loses: true}}
	for i, o := range []*outcome{ours, theirs} {
		v := []float64{float64(10 * (i + 1))}
		o.EnqueueCPU, o.EnqueueStoreCPU, o.WorkerCPU, o.StoreCPU, o.Rate = v, v, v, v, v
	}
	ours.Recovered = 10 * time.Second
	ours.Chain, theirs.Chain = []float64{4}, []float64{3.9999} // no weakness: the page has the same number
	text, err := render(&results{Limit: 100 * time.Second, Systems: []*outcome{ours, theirs, loser}, LeftOut: []string{"a peer: its reason"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| Muster | 40.0 | none | none | 10.0 |", "| Other | 80.0 | none | none | 20.0 |",
		"| Muster | 10.0 |  |", "| Other 1.2 | > 100 |  |", "| Loser | lost |  |", "the best system in parentheses:\n\n* rates: run 10.0 tasks/s (Other 20.0)\n\n", "| Muster | 4.00 | none |", "* a peer: its reason",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page has no %q:\n%s", want, text)
		}
	}
}

// Sections without data are omitted, and systems outside of the tables are not mentioned.
func TestPageOmitsMissingData(t *testing.T) {
	t.Parallel()
	ours, celery := &outcome{System: system{Name: "Muster"}}, &outcome{System: system{Name: "Celery", Settings: "with an option"}}
	text := func(res *results) string {
		t.Helper()
		out, err := render(res)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	got := text(&results{Systems: []*outcome{ours}})
	for _, absent := range []string{"## Weaknesses", "except", "Left out"} {
		if strings.Contains(got, absent) {
			t.Errorf("in a run of one system: got %q in the page", absent)
		}
	}
	got = text(&results{Systems: []*outcome{ours, celery}})
	for _, want := range []string{"Settings are defaults, except: Celery with an option."} {
		if !strings.Contains(got, want) {
			t.Errorf("with Celery: the page has no %q", want)
		}
	}
}
