package scripts

import (
	"archive/zip"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"muster/internal/testutil"
)

// sh runs a command in dir and returns its output.
func sh(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func mustRun(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := sh(t, dir, args...)
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
	return out
}

// checkout copies the tracked files to a directory and creates a Git repository there.
func checkout(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("NOT CHECKED: git not found")
	}
	dir := t.TempDir()
	for name := range strings.SplitSeq(strings.TrimSuffix(mustRun(t, "..", "git", "ls-files", "-z"), "\x00"), "\x00") {
		source := filepath.Join("..", name)
		info, err := os.Stat(source)
		if err != nil {
			continue // removed but not committed
		}
		content := testutil.Must(os.ReadFile(source))(t)
		target := filepath.Join(dir, name)
		testutil.Ok(t, os.MkdirAll(filepath.Dir(target), 0o700))
		testutil.Ok(t, os.WriteFile(target, content, info.Mode().Perm()))
	}
	mustRun(t, dir, "git", "init", "--quiet")
	mustRun(t, dir, "git", "add", "--all")
	return dir
}

func TestRenamedModuleBuilds(t *testing.T) {
	if testing.Short() {
		t.Skip("long: it builds a copy of the module")
	}
	t.Parallel()
	const name = "example.org/some-team/muster.v2"
	dir := checkout(t)
	mustRun(t, dir, "scripts/rename-module", name)
	if got := strings.TrimSpace(mustRun(t, dir, "go", "list", "-m")); got != name {
		t.Fatalf("the module is %s, want %s", got, name)
	}
	// Every import resolves, including imports of tests and of programs for other systems.
	for path := range strings.Lines(mustRun(t, dir, "go", "list", "-tags", "e2e", "-test", "-deps", "./...")) {
		if strings.HasPrefix(path, "muster/") {
			t.Errorf("%s is still imported", strings.TrimSpace(path))
		}
	}
	if out := mustRun(t, dir, "go", "run", "./examples/firstprogram"); !strings.HasSuffix(out, "10 words\n") {
		t.Errorf("the program of the README prints %q, want 10 words", out)
	}
	if out := mustRun(t, dir, "gofmt", "-l", "cmd", "tasks", "orchestrator", "proxies", "sites", "internal", "scripts", "examples"); out != "" {
		t.Errorf("these are not formatted:\n%s", out)
	}
	// References that a build does not check.
	for file, want := range map[string]string{
		"Makefile": "^" + name + "/(tasks(", "README.md": `"` + name + `/tasks"`, "scripts/e2e/muster_test.go": `"` + name + `/cmd/muster"`,
		"scripts/lint/go.mod": "module " + name + "/scripts/lint", "sites/definition/definition.go": `DefaultUserAgent = "muster/1.0"`,
		"Dockerfile": "-o /out/muster ./cmd/muster", "Makefile ": "-o bin/muster ./cmd/muster", "docs/how-to/observability.md": "MUSTER_TRACING__ENDPOINT",
	} {
		text, err := os.ReadFile(filepath.Join(dir, strings.TrimSpace(file)))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: got no %q (%v)", file, want, err)
		}
	}
	if out, err := sh(t, dir, "git", "grep", "-nE", `"muster/[a-z]`); err == nil {
		t.Errorf("these name the old module:\n%s", out)
	}

	// Renaming back restores the tree, except for files outside of git.
	mustRun(t, dir, "scripts/rename-module", "muster")
	if diff := mustRun(t, dir, "git", "diff", "--stat"); diff != "" {
		t.Errorf("the tree differs after renaming there and back:\n%s", diff)
	}
}

// The program is installed as users do, from a directory that is a proxy with a release of the renamed module.
func TestModuleIsInstalled(t *testing.T) {
	if os.Getenv("MUSTER_TEST_INSTALL") == "" {
		t.Skip("long: make release runs it, because it compiles the whole module under another path")
	}
	t.Parallel()
	const name, version = "example.org/x/muster", "v0.1.0"
	dir := checkout(t)
	mustRun(t, dir, "scripts/rename-module", name)
	proxy, bin := t.TempDir(), t.TempDir()
	at := filepath.Join(proxy, name, "@v", version)
	testutil.Ok(t, os.MkdirAll(filepath.Dir(at), 0o700))
	release := testutil.Must(os.Create(at + ".zip"))(t)
	archive := zip.NewWriter(release)
	files := strings.Split(strings.TrimSuffix(mustRun(t, dir, "git", "ls-files", "-z"), "\x00"), "\x00")
	for _, file := range files {
		if slices.ContainsFunc(files, func(other string) bool { // it belongs to another module
			module, ok := strings.CutSuffix(other, "/go.mod")
			return ok && strings.HasPrefix(file, module+"/")
		}) {
			continue
		}
		entry := testutil.Must(archive.Create(name + "@" + version + "/" + file))(t)
		_, err := entry.Write(testutil.Must(os.ReadFile(filepath.Join(dir, file)))(t))
		testutil.Ok(t, err)
	}
	testutil.Ok(t, errors.Join(archive.Close(), release.Close()))
	testutil.Ok(t, os.WriteFile(at+".mod", testutil.Must(os.ReadFile(filepath.Join(dir, "go.mod")))(t), 0o600))
	testutil.Ok(t, os.WriteFile(filepath.Join(filepath.Dir(at), "list"), []byte(version+"\n"), 0o600))
	testutil.Ok(t, os.WriteFile(at+".info", []byte(`{"Version":"`+version+`"}`), 0o600))

	// The modules that it needs are in the cache of modules, which is a proxy, too.
	cache := strings.TrimSpace(mustRun(t, dir, "go", "env", "GOMODCACHE"))
	t.Cleanup(func() {
		host, _, _ := strings.Cut(name, "/")
		testutil.Ok(t, errors.Join(os.RemoveAll(filepath.Join(cache, host)), os.RemoveAll(filepath.Join(cache, "cache", "download", host))))
	})
	mustRun(t, bin, "env", "GOPROXY=file://"+proxy+",file://"+filepath.Join(cache, "cache", "download"), "GOSUMDB=off",
		"GOFLAGS=-modcacherw", "GOBIN="+bin, "go", "install", name+"/cmd/muster@"+version)
	if got := mustRun(t, bin, "./muster", "version"); got != "muster version "+version+"\n" {
		t.Errorf("got %q, want the version %s", got, version)
	}
}

func TestInvalidModulePathIsRejected(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"muster"}, {"a b"}, {"/muster"}, {"-x"}, {"a", "b"}, {"a#b"}, {"https://example.org/muster"}} {
		if out, err := sh(t, "..", append([]string{"scripts/rename-module"}, args...)...); err == nil || !strings.HasPrefix(out, "rename-module: ") {
			t.Errorf("%q: got %v %q, want an error with advice", args, err, out)
		}
	}
	if out := mustRun(t, "..", "git", "diff", "--stat", "--", "go.mod"); out != "" {
		t.Errorf("it changed go.mod:\n%s", out)
	}
}
