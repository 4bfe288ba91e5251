package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
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
		Setup: func(e *testscript.Env) error {
			e.Setenv("MUSTER_DATA_DIR", e.WorkDir+"/data")
			return nil
		},
	})
}
