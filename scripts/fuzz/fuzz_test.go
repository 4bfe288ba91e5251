package main

import (
	"errors"
	"io"
	"slices"
	"testing"
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
	for _, args := range [][]string{{"-time", "soon"}, {"-unknown"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); !errors.Is(err, errUsage) {
			t.Errorf("%q: got %v, want %v", args, err, errUsage)
		}
	}
}
