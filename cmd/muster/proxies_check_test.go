package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// All proxies of a list are checked, even more than a refresh reads from a source.
func TestCheckReadsLongListsWhole(t *testing.T) {
	t.Parallel()
	var list strings.Builder
	for i := range 100_001 {
		fmt.Fprintf(&list, "10.%d.%d.%d:80\n", i>>16, i>>8&255, i&255)
	}
	var out, errs bytes.Buffer
	env := environment{stdin: strings.NewReader(list.String()), stdout: &out, stderr: &errs, hard: t.Context()}
	run(t.Context(), env, []string{"muster", "proxies", "check", "--allow-local", "--judge", "http://127.0.0.1:1", "--file", "-"})
	if got := errs.String(); !strings.Contains(got, "no judge answers") || strings.Contains(got, "left out") {
		t.Errorf("got %q, want the judge's error and nothing left out", got)
	}
}
