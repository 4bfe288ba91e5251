package main

import (
	"errors"
	"io"
	"slices"
	"testing"
	"time"
)

func TestFoldersOfFiles(t *testing.T) {
	t.Parallel()
	got := folders("proxies/source/parse_test.go\nREADME.md\nproxies/source/parse.go\nmain.go\ntasks/lua/a.lua\n")
	if want := []string{"./.", "./proxies/source"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTargetsOfAList(t *testing.T) {
	t.Parallel()
	got := targetsIn("FuzzParse\nFuzzPage\nok  \tmuster/sites/extract\t0.01s\n")
	if want := []string{"FuzzParse", "FuzzPage"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	out := "fuzz: elapsed: 0s, gathering baseline coverage: 0/27 completed\n" +
		"fuzz: elapsed: 3s, execs: 1024 (341/sec), new interesting: 2 (total: 29)\n" +
		"fuzz: elapsed: 6s, execs: 4096 (1000/sec), new interesting: 3 (total: 30)\nPASS\n"
	if n, found := summary(out); n != 4096 || found != "3 new inputs" {
		t.Errorf("got %d and %q, want 4096 and 3 new inputs", n, found)
	}
	if n, found := summary("no output"); n != 0 || found != "nothing new" {
		t.Errorf("got %d and %q, want 0", n, found)
	}
}

func TestAFoundInputIsNoLateEnd(t *testing.T) {
	t.Parallel()
	late := "--- FAIL: FuzzOpen (15.03s)\n    context deadline exceeded\nFAIL\n"
	if !endedLate(late) || endedLate("Failing input written to testdata/fuzz/x\n"+late) || endedLate("--- FAIL: FuzzOpen\npanic: x\n") {
		t.Error("a late end is not told apart from a failure")
	}
}

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-time", "soon"}, {"-unknown"}, {"-total", "soon"}, {"-total", "-1s"}, {"-time", "10x", "-total", "1m"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); !errors.Is(err, errUsage) {
			t.Errorf("%q: got %v, want %v", args, err, errUsage)
		}
	}
}

// However many targets have changed, together they take no longer than -total, but for a second each.
func TestTargetsShareTheTotalTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		most  string
		total time.Duration
		n     int
		want  string
	}{
		{"10s", time.Minute, 1, "10s"},
		{"10s", time.Minute, 6, "10s"},
		{"10s", time.Minute, 7, "8.571s"},
		{"10s", time.Minute, 30, "2s"},
		{"10s", time.Minute, 72, "1s"},
		{"500ms", time.Minute, 72, "500ms"},
	} {
		if got, err := share(c.most, c.total, c.n); err != nil || got != c.want {
			t.Errorf("%d targets in %v, at most %s each: got %s, %v; want %s", c.n, c.total, c.most, got, err, c.want)
		}
	}
}

func TestTargetsOfPackagesAreCounted(t *testing.T) {
	t.Parallel()
	one, err := count(t.Context(), []string{"../../internal/clip"})
	if err != nil || one != 1 {
		t.Fatalf("internal/clip: got %d, %v; want 1", one, err)
	}
	other, err := count(t.Context(), []string{"../../sites/extract"})
	if err != nil || other < 5 {
		t.Fatalf("sites/extract: got %d, %v; want 5 or more", other, err)
	}
	if both, err := count(t.Context(), []string{"../../internal/clip", "../../sites/extract"}); err != nil || both != one+other {
		t.Errorf("both: got %d, %v; want %d", both, err, one+other)
	}
}
