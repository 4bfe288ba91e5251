package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"muster/internal/testutil"
)

// gate is a site of n items. The last of them are served when the test releases them.
type gate struct {
	*httptest.Server
	open chan struct{} // lets one item through, or all when it is closed
	once sync.Once
}

func newGate(t *testing.T, n, free int) *gate {
	t.Helper()
	g := &gate{open: make(chan struct{})}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		item := -1
		switch _, err := fmt.Sscanf(r.URL.Path, "/item/%d", &item); {
		case r.URL.Path == "/":
			for i := range n {
				fmt.Fprintf(w, `<a class=item href="/item/%d">Item %d</a> `, i, i)
			}
			return
		case err != nil:
			http.NotFound(w, r)
			return
		}
		if item >= free {
			select {
			case <-g.open:
			case <-r.Context().Done():
				return
			}
		}
		fmt.Fprintf(w, `<html><h1>Item %d</h1><p>%s</p></html>`, item, strings.Repeat("words ", 50))
	}))
	t.Cleanup(g.Close)
	t.Cleanup(g.release)
	return g
}

func (g *gate) release() { g.once.Do(func() { close(g.open) }) }

// site writes the definition of a gate under a name into the folder "sites".
func (c *command) site(name string, g *gate) {
	c.t.Helper()
	testutil.Ok(c.t, os.MkdirAll(c.dir+"/sites", 0o755))
	c.write("sites/"+name+".yaml", fmt.Sprintf(`site: %s
base_url: %s
start: [/]
listing: {links: a.item}
detail: {must_have: h1}
records:
  item:
    fields: {name: {css: h1, required: true}}
proxy: {fallback: direct}
politeness: {delay: 0}
`, name, g.URL))
}

// stream starts a scrape that prints its records.
func (c *command) stream(args ...string) (*exec.Cmd, *bufio.Reader, io.Closer, *testutil.Output) {
	c.t.Helper()
	cmd := exec.Command(c.program, append([]string{"scrape", "--out", "-", "--setting", "sites.dir=sites"}, args...)...)
	printed := &testutil.Output{}
	cmd.Dir, cmd.Env, cmd.Stderr = c.dir, c.environ, printed
	out := testutil.Must(cmd.StdoutPipe())(c.t)
	testutil.Ok(c.t, cmd.Start())
	c.t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, bufio.NewReader(out), out, printed
}

// Records come to standard output while the scrape runs, each once.
func TestRecordsStream(t *testing.T) {
	t.Parallel()
	c, a, b := newCommand(t), newGate(t, 6, 3), newGate(t, 6, 6)
	c.site("a.example", a)
	c.site("b.example", b)
	cmd, out, _, printed := c.stream("a.example", "b.example")
	got := map[string]int{}
	read := func(n int) {
		t.Helper()
		for range n {
			line, err := out.ReadString('\n')
			if err != nil || !strings.HasPrefix(line, "{") {
				t.Fatalf("got %q, %v, want a record\n%s", line, err, printed)
			}
			got[line]++
		}
	}
	read(9) // all records that exist while half of one site is blocked
	a.release()
	read(3)
	if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 || len(got) != 12 {
		t.Errorf("got %d records and then %q, %v, want 12 and the end", len(got), rest, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, printed)
	}
}

// When the reader of the records closes its end the scrape stops, also the workers
// that it started, and prints nothing.
func TestReaderGoesAway(t *testing.T) {
	t.Parallel()
	c, g := newCommand(t), newGate(t, 6, 3)
	c.site("a.example", g)
	cmd, out, pipe, printed := c.stream("a.example")
	testutil.Must(out.ReadString('\n'))(t)
	testutil.Ok(t, pipe.Close())
	g.open <- struct{}{} // the next record shows the command that the pipe is closed
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitNoReader || strings.Contains(printed.String(), "muster:") {
		t.Errorf("got exit code %d, want %d and no message\n%s", code, exitNoReader, printed)
	}
	testutil.Eventually(t, "the job is over", func() bool {
		return strings.Contains(c.run("scrapes", "list", "a.example"), "CANCELED")
	})
}
