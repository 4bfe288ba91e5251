//go:build e2e && unix

package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/orchestrator/redisd"
)

var (
	shellBlock   = regexp.MustCompile("(?ms)^```sh\n(.*?)^```")
	mainProgram  = regexp.MustCompile("(?ms)^```go\n(package main\n.*?)^```")
	quotedMuster = regexp.MustCompile("`((?:muster|go run|go mod|go doc|go install|make) ?[^`\n]*)`")
)

// notRunHere lists the commands of the README that other parts of .ci/run execute, or that only print or install.
var notRunHere = map[string]bool{
	"make test": true, "make help": true, "make lint test": true, // .ci/run
	"go run ./cmd/muster demo": true, "go run ./cmd/muster demo --keep": true, // TestDemo, and the demo of .ci/run
	"go install ./cmd/muster":  true, // installs
	"muster":                   true, // the name of the program
	"git clone ADDRESS muster": true, // the clone is there
	"muster store copy URL":    true, // TestEmbeddedRedisKilled
}

// TestReadmeCommands runs the commands of README.md like a new user: the program in a module outside of the repository, and each
// command of the table with the sites of the demo.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	page := testutil.Must(os.ReadFile("../../README.md"))(t)
	left := readmeCommands(string(page))
	ran := func(command string) string {
		if !left[command] {
			t.Errorf("README.md does not contain the command %q", command)
		}
		delete(left, command)
		return command
	}

	t.Run("program", func(t *testing.T) {
		root := testutil.Must(filepath.Abs("../.."))(t)
		dir := t.TempDir()
		testutil.Ok(t, os.Symlink(root, filepath.Join(dir, "muster")))
		program := mainProgram.FindStringSubmatch(string(page))[1]
		shell := func(dir, command string) string {
			t.Helper()
			cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", command, err, out)
			}
			return string(out)
		}
		shell(dir, ran("mkdir hello && cd hello && go mod init hello"))
		hello := filepath.Join(dir, "hello")
		shell(hello, ran("go mod edit -require muster@v0.0.0 -replace muster=../muster"))
		testutil.Ok(t, os.WriteFile(filepath.Join(hello, "main.go"), []byte(program), 0o600))
		if out := shell(hello, ran("go mod tidy && go run .")); !strings.HasSuffix(out, "10 words\n") {
			t.Errorf("got %q, want 10 words", out)
		}
		shell(root, ran("go doc ./tasks"))
	})

	b := setup(t)
	api := fmt.Sprintf("127.0.0.1:%d", testutil.FreePort(t))
	local := append(os.Environ(), "MUSTER_CONFIG="+b.conf, "MUSTER_API__LISTEN="+api)
	env := local
	// start runs a command of the table, with its example names replaced by existing names.
	start := func(command string, names ...string) *run {
		t.Helper()
		args := strings.Fields(strings.NewReplacer(names...).Replace(ran(command)))
		return muster(t, env, args[1:]...)
	}
	system := start("muster start")
	system.until(t, "readiness", func() bool {
		res, err := http.Get("http://" + api + "/ready")
		if err != nil {
			return false
		}
		return res.Body.Close() == nil && res.StatusCode == http.StatusOK
	})
	url := testutil.Must(redisd.Discover(t.Context(), b.data))(t)
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Host = b.Shop.Host
		b.Shop.ServeHTTP(w, r)
	}))
	t.Cleanup(shop.Close)
	draft := start("muster sites init https://shop.example/ > shop.yaml", "https://shop.example/", shop.URL+"/", " > shop.yaml", "")
	draft.wait(t, 0)
	if !strings.HasPrefix(draft.stdout.String(), "site: ") {
		t.Errorf("got %q, want a definition", draft.stdout.String())
	}
	scrape := start("muster scrape quotes.toscrape.com --wait", "quotes.toscrape.com", "shop", "--wait", "--wait --json --fail-on never")
	scrape.wait(t, 0)
	env = append(os.Environ(), "MUSTER_DATA_DIR="+filepath.Join(b.dir, "elsewhere")) // like another machine
	worker := start("muster worker --redis redis://host:6379/0", "redis://host:6379/0", url)
	env = local
	worker.until(t, "readiness", func() bool { return strings.Contains(worker.stderr.String(), "worker takes tasks") })
	serve := start("muster proxies serve", "serve", "serve --listen 127.0.0.1:0")
	start("muster scrapes list").wait(t, 0)
	start("muster scrapes retry SCRAPE", "SCRAPE", scrape.summary(t).Sites[0].JobID).wait(t, 0)
	start("muster pause site SITE", "SITE", "shop").wait(t, 0)
	start("muster health").wait(t, 0)
	start("muster status").wait(t, 0)
	for _, r := range []*run{worker, serve, system} {
		r.interrupt(t)
		r.wait(t, 130)
	}

	for command := range left {
		if !notRunHere[command] {
			t.Errorf("README.md contains a command without a test: %s", command)
		}
	}
}

// readmeCommands returns the commands in the shell blocks and in the text of a page.
func readmeCommands(page string) map[string]bool {
	commands := map[string]bool{}
	for _, block := range shellBlock.FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(block[1]) {
			line, _, _ = strings.Cut(line, " #")
			commands[strings.TrimSpace(line)] = true
		}
	}
	for _, m := range quotedMuster.FindAllStringSubmatch(page, -1) {
		commands[m[1]] = true
	}
	return commands
}
