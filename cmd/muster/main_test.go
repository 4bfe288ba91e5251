package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/urfave/cli/v2"

	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/agent"
)

func TestMain(m *testing.M) {
	cli.HelpPrinter = printHelp                            // as Main does
	if err := flag.Set("test.parallel", "8"); err != nil { // the tests wait for the processes of commands
		panic(err)
	}
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
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"waitfor": waitFor, "serve": serve, "agents": agents, "capture": capture},
		Setup: func(e *testscript.Env) error {
			e.Setenv("MUSTER_DATA_DIR", e.WorkDir+"/data")
			// Never a Redis of this machine that has other uses.
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

// serve serves a folder by HTTP until the script ends, and sets SITE to its URL.
func serve(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: serve DIR")
	}
	srv := httptest.NewServer(http.FileServer(http.Dir(ts.MkAbs(args[0]))))
	ts.Defer(srv.Close)
	ts.Setenv("SITE", srv.URL)
}

// agents serves the agents of the default pipeline until the script ends, and puts
// them into the settings. The creator makes an item of each word of the prompt; the
// validator rejects bad ones, and fails for odd ones.
func agents(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: agents")
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet { // the check of its health
			return
		}
		var work agent.Body
		if err := json.NewDecoder(r.Body).Decode(&work); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var reply agent.Reply
		switch {
		case work.Item == nil:
			for word := range strings.FieldsSeq(work.Job.Prompt) {
				reply.Items = append(reply.Items, jobs.Item{Key: word, Text: "Item " + word})
			}
		case work.Item.Key == "bad":
			reply.Verdict, reply.Reason = "reject", "it is bad"
		case work.Item.Key == "odd":
			reply.Error, reply.Permanent = "it is odd", true
		}
		_ = json.NewEncoder(w).Encode(reply) // the script fails if it is missing
	}))
	ts.Defer(srv.Close)
	ts.Setenv("CREATOR_AGENT_URL", srv.URL+"/creator")
	ts.Setenv("VALIDATOR_AGENT_URL", srv.URL+"/validator")
}

// capture sets a variable to the first group of a regular expression in the output of the last command.
func capture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: capture NAME REGEXP")
	}
	m := regexp.MustCompile("(?m)" + args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if m == nil {
		ts.Fatalf("no match for %s", args[1])
	}
	ts.Setenv(args[0], m[1])
}

// waitFor waits until a file exists: a background command has then got that far.
func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: waitfor FILE")
	}
	if !testutil.Becomes(func() bool { _, err := os.Stat(ts.MkAbs(args[0])); return err == nil }) {
		ts.Fatalf("there is still no file %s", args[0])
	}
}

// Names of the first design run the same commands, and help omits them.
func TestHiddenNamesOfCommands(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"orchestrator start", "api serve", "job start", "job status", "job list", "job cancel", "queue pause", "queue resume", "proxies count", "site scrape", "site status", "site list"} {
		var out bytes.Buffer
		app := newApp(environment{stdout: &out, stderr: &out})
		app.Writer = &out
		if err := app.Run(append([]string{"muster"}, append(strings.Fields(line), "--help")...)); err != nil || !strings.Contains(out.String(), "muster "+line) {
			t.Errorf("muster %s --help: got %v and %q, want the help of the command", line, err, out.String())
		}
	}
	var out bytes.Buffer
	app := newApp(environment{stdout: &out, stderr: &out})
	app.Writer = &out
	if err := app.Run([]string{"muster", "--help"}); err != nil || strings.Contains(out.String(), "another name") {
		t.Errorf("muster --help: got %v and\n%s\nwant no hidden names", err, out.String())
	}
}
