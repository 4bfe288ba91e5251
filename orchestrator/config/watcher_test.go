package config

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/testutil"
)

// watched runs a Watcher and records its log and settings.
type watched struct {
	testutil.Output
	now chan os.Signal

	mu      sync.Mutex // guards applied
	applied []Config
}

func (w *watched) configs() []Config {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.applied)
}

// watching runs a Watcher on src until the test finishes.
func watching(t *testing.T, src Sources, every time.Duration) *watched {
	t.Helper()
	w := &watched{now: make(chan os.Signal, 1)}
	l := read(t, src)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		Watcher{Now: w.now, Logger: slog.New(slog.NewTextHandler(w, nil)), every: every, Apply: func(c Config) ([]string, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.applied = append(w.applied, c)
			return nil, nil
		}}.Run(ctx, l)
	}()
	t.Cleanup(func() { stop(); <-done })
	return w
}

func (w *watched) until(t *testing.T, text string, n int) {
	t.Helper()
	if !testutil.Becomes(func() bool { return strings.Count(w.String(), text) >= n }) {
		t.Fatalf("got\n%s\nwant %q %d times", w.String(), text, n)
	}
}

// rewrite replaces path with a new file.
func rewrite(t *testing.T, path, content string) {
	t.Helper()
	testutil.Ok(t, os.WriteFile(path+".new", []byte(content), 0o600))
	testutil.Ok(t, os.Rename(path+".new", path))
}

// T-119: a changed file changes the reloadable settings; an invalid one changes nothing.
func TestWatcherReloads(t *testing.T) {
	t.Parallel()
	file := write(t, "queue: {max_per_host: 3}\n")
	w := watching(t, Sources{File: file}, 5*time.Millisecond)

	rewrite(t, file, "queue: {max_per_host: 7}\nredis: {url: 'redis://:hush@h/0'}\napi: {keys: [hush-hush-that-is-long-enough-for-a-key]}\n")
	w.until(t, "level=WARN", 1)
	for _, want := range []string{"queue.max_per_host: 3 → 7", "api.keys", "needs_restart=redis.url"} {
		if !strings.Contains(w.String(), want) {
			t.Errorf("got %s, want %s in it", w.String(), want)
		}
	}
	if c := w.configs()[0]; c.Queue.MaxPerHost != 7 || c.Redis.URL != "" || !slices.Equal(c.API.Keys, []string{"hush-hush-that-is-long-enough-for-a-key"}) {
		t.Errorf("got %+v, want the new limit and key, and the old Redis", c)
	}

	// A partial file causes one error with its position.
	rewrite(t, file, "queue: {max_per_host: 8}\nlog: {level: \"deb")
	w.until(t, "reload failed", 1)
	if !strings.Contains(w.String(), file+":2:") {
		t.Errorf("got %s, want the line of the mistake", w.String())
	}
	rewrite(t, file, "queue: {max_per_host: 9}\nredis: {url: 'redis://:hush@h/0'}\napi: {keys: [hush-hush-that-is-long-enough-for-a-key]}\n")
	w.until(t, "queue.max_per_host: 7 → 9", 1)
	if n := strings.Count(w.String(), "reload failed"); n != 1 {
		t.Errorf("the invalid file was reported %d times, want once", n)
	}
	w.now <- os.Interrupt
	w.until(t, "reloaded; the changes need a restart", 1) // still pending
	if strings.Contains(w.String(), "hush") {
		t.Errorf("the log contains a secret: %s", w.String())
	}
}

// A file that is being written is ignored until two consecutive polls see the same state.
func TestFileThatIsBeingWritten(t *testing.T) {
	t.Parallel()
	file := write(t, "workers: {concurrency: 2}\n")
	s := settling{seen: lookAt([]string{file})}
	look := func() bool { return s.stable(lookAt([]string{file})) }
	if look() {
		t.Error("an unmodified file has changed")
	}
	for i := range 5 {
		testutil.Ok(t, os.WriteFile(file, []byte(strings.Repeat("#", i+1)), 0o600))
		if look() {
			t.Errorf("write %d: the file has changed, want it ignored", i)
		}
	}
	if !look() {
		t.Error("the complete file has not changed")
	}
	if s.seen, s.last = lookAt([]string{file}), nil; look() {
		t.Error("the loaded file has changed")
	}
}

// A requested reload is logged even if nothing has changed.
func TestRequestedReloadIsLogged(t *testing.T) {
	t.Parallel()
	w := watching(t, Sources{File: write(t, "")}, time.Hour)
	w.now <- os.Interrupt
	w.until(t, "reloaded; no changes", 1)
}

// Kubernetes mounts a ConfigMap as symbolic links and replaces the directory link.
func TestWatcherFollowsLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := func(to, at string) {
		t.Helper()
		testutil.Ok(t, os.Symlink(to, at+".tmp"))
		testutil.Ok(t, os.Rename(at+".tmp", at))
	}
	for name, keys := range map[string]string{"one": "the-key-of-these-tests-with-number-1", "two": "the-key-of-these-tests-with-number-1\nthe-key-of-these-tests-with-number-2\n"} {
		testutil.Ok(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		rewrite(t, filepath.Join(dir, name, "muster.yaml"), "workers: {concurrency: "+map[string]string{"one": "1", "two": "2"}[name]+"}\n")
		rewrite(t, filepath.Join(dir, name, "keys"), keys)
	}
	link("one", filepath.Join(dir, "data"))
	for _, name := range []string{"muster.yaml", "keys"} {
		link(filepath.Join("data", name), filepath.Join(dir, name))
	}
	w := watching(t, Sources{File: filepath.Join(dir, "muster.yaml"), Environ: []string{"MUSTER_API__KEYS_FILE=" + filepath.Join(dir, "keys")}}, 5*time.Millisecond)
	link("two", filepath.Join(dir, "data"))
	w.until(t, "workers.concurrency: 1 → 2", 1)
	if got := w.configs()[0].API.Keys; len(got) != 2 || got[1] != "the-key-of-these-tests-with-number-2" {
		t.Errorf("got the keys %q, want the keys of the new file, one per line", got)
	}
}

// The watcher detects changes of secret files, missing files and definitions.
func TestWatcherWatchesAllFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, key, site := filepath.Join(dir, "muster.yaml"), filepath.Join(dir, "key"), filepath.Join(dir, "sites", "one.yaml")
	rewrite(t, file, "data_dir: "+dir+"\n")
	w := watching(t, Sources{File: file}, 5*time.Millisecond)
	rewrite(t, file, "data_dir: "+dir+"\napi: {keys: ['${file:"+key+"}']}\n")
	w.until(t, "secret file "+key+": no such file", 1)
	rewrite(t, key, "a-key-that-is-long-enough-for-tests\n")
	w.until(t, "changed=api.keys", 1)
	rewrite(t, key, "another-key-that-is-long-enough-for-it\n")
	w.until(t, "changed=api.keys", 2)
	testutil.Ok(t, os.Mkdir(filepath.Dir(site), 0o700))
	rewrite(t, site, "site: one\n")
	w.until(t, "reloaded modified files", 1)
	testutil.Ok(t, os.Remove(file))
	w.until(t, "reload failed", 2)
	rewrite(t, file, "data_dir: "+dir+"\nlog: {level: debug}\n")
	w.until(t, "log.level: info → debug", 1)
}

// Each change of a setting is either applied or reported as needing a restart.
func TestEverySettingReloadsOrNeedsARestart(t *testing.T) {
	t.Parallel()
	a, b := Default(), Default()
	for i, s := range settings(&b) {
		v := s.v
		switch v.Kind() {
		case reflect.String:
			v.SetString(v.String() + "x")
		case reflect.Bool:
			v.SetBool(!v.Bool())
		case reflect.Float64:
			v.SetFloat(v.Float() + 1)
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			if field := v.Index(0); field.Kind() == reflect.String {
				field.SetString("x")
			} else {
				field.FieldByName("URL").SetString("x")
			}
		case reflect.Map:
			v.Set(reflect.MakeMap(v.Type()))
			v.SetMapIndex(reflect.ValueOf("x"), reflect.Zero(v.Type().Elem()))
		default:
			v.SetInt(v.Int() + 1)
		}
		changed, restart := differences(a, b)
		if len(changed)+len(restart) != i+1 {
			t.Fatalf("%s: got %d changes, want %d", s.path, len(changed)+len(restart), i+1)
		}
	}
	c := a.withReloaded(b)
	changed, restart := differences(a, c)
	if len(changed) == 0 || len(restart) != 0 {
		t.Errorf("got %q and %q, want only reloadable settings", changed, restart)
	}
}
