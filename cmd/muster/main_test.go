package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"muster/internal/testutil"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"muster": func() { os.Exit(Main()) }})
}

// TestScript runs the manual: every script under testdata/script is a page of
// it, executed by the real command.
func TestScript(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"waitfor": waitFor, "serve": serve},
		Setup: func(e *testscript.Env) error {
			e.Setenv("MUSTER_DATA_DIR", e.WorkDir+"/data")
			// Never the Redis that this machine may have for other purposes.
			mode := "embedded"
			if _, err := exec.LookPath("redis-server"); err == nil {
				mode = "child"
			}
			e.Setenv("MUSTER_REDIS__MODE", mode)
			e.Setenv("LONG", strings.Repeat("0", 2100)) // more than an id may have
			return nil
		},
	})
}

// serve puts a folder on the web until the script ends, and its URL into SITE.
func serve(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: serve DIR")
	}
	srv := httptest.NewServer(http.FileServer(http.Dir(ts.MkAbs(args[0]))))
	ts.Defer(srv.Close)
	ts.Setenv("SITE", srv.URL)
}

// waitFor waits until a file is there: the fact that a background command has
// come so far.
func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: waitfor FILE")
	}
	if !testutil.Becomes(func() bool { _, err := os.Stat(ts.MkAbs(args[0])); return err == nil }) {
		ts.Fatalf("there is still no file %s", args[0])
	}
}
