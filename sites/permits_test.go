package sites

import (
	"context"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/sites/internal/store"
	"muster/sites/record"
	"muster/tasks"
	"muster/tasks/redistest"
)

// A task cannot have a worker write to a folder or a sink that the worker was not told.
func TestRequestCannotNameWhereAWorkerWrites(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		site := newShop(t, 1, 3)
		def := site.definition(t, "")
		client := tasks.NewClient(rdb)
		t.Cleanup(func() { _ = client.Close() })
		worker, err := NewService(Config{Client: client, OutDir: filepath.Join(t.TempDir(), "own"), Registry: NewRegistry(def)})
		if err != nil {
			t.Fatal(err)
		}
		work(t, client, worker)
		own, err := record.FolderName(worker.cfg.OutDir)
		if err != nil {
			t.Fatal(err)
		}
		out := t.TempDir() // of somebody else
		home, err := record.FolderName(out)
		if err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(worker.cfg.OutDir, "link")
		if err := os.Symlink(out, link); err != nil {
			t.Fatal(err)
		}
		good := store.Request{Site: def.Site, File: def.File(), YAML: string(def.YAML()), BaseURL: site.URL, OutDir: worker.cfg.OutDir, Home: own}
		before := filesIn(t, out)
		for name, hostile := range map[string]func(*store.Request){
			"another folder":            func(r *store.Request) { r.OutDir, r.Home = out, home },
			"another folder, no name":   func(r *store.Request) { r.OutDir, r.Home = out, "" },
			"a new folder":              func(r *store.Request) { r.OutDir, r.Home = filepath.Join(out, "new"), "" },
			"up and down":               func(r *store.Request) { r.OutDir = worker.cfg.OutDir + "/../../" + filepath.Base(out); r.Home = home },
			"a link below its own":      func(r *store.Request) { r.OutDir, r.Home = link, home },
			"a database elsewhere":      func(r *store.Request) { r.Sinks = []string{"sqlite:" + filepath.Join(out, "x.db")} },
			"a database further up":     func(r *store.Request) { r.Sinks = []string{"sqlite:../../x.db"} },
			"a server for its password": func(r *store.Request) { r.Sinks = []string{"postgres://me@127.0.0.1:1/x"} },
			"a webhook":                 func(r *store.Request) { r.Sinks = []string{site.URL + "/hook"} },
		} {
			r := good
			hostile(&r)
			res, err := signature(r, def).Send(t.Context(), client)
			if err != nil {
				t.Fatal(err)
			}
			testutil.Eventually(t, name+": all is fetched", func() bool {
				p, err := worker.Progress(t.Context(), def.Site, res.ID())
				return err == nil && p.Done == 4
			})
			if n, err := worker.recorder.Write(t.Context(), res.ID()); err == nil || n > 0 {
				t.Errorf("%s: got %d records written, %v, want none", name, n, err)
			}
			if err := client.Revoke(t.Context(), res.ID()); err != nil {
				t.Fatal(err)
			}
		}
		for name, hostile := range map[string]func(*store.Request){
			"a path as the job to resume": func(r *store.Request) { r.Resume = "../../../" + filepath.Base(out) },
			"a path as the site":          func(r *store.Request) { r.Site = "../x" },
			"another site":                func(r *store.Request) { r.Site = "other.example" },
		} {
			r := good
			hostile(&r)
			res, err := signature(r, def).Send(t.Context(), client)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := res.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), store.ErrNames.Error()) {
				t.Errorf("%s: got %v, want %v", name, err, store.ErrNames)
			}
		}
		if after := filesIn(t, out); !slices.Equal(after, before) {
			t.Errorf("got %v in the folder of somebody else, want %v", after, before)
		}
		if asked, _ := site.counts("/hook"); asked > 0 {
			t.Errorf("the webhook was called %d times, want none", asked)
		}

		// What it was told it writes: below its folder, and a database there.
		sub := filepath.Join(worker.cfg.OutDir, "sub")
		r := good
		r.OutDir, r.Sinks = sub, []string{"sqlite:all.db"}
		if r.Home, err = record.FolderName(sub); err != nil {
			t.Fatal(err)
		}
		res, err := signature(r, def).Send(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if sum, err := res.Wait(ctx); err != nil || sum.Records != 6 {
			t.Errorf("got %d records, %v, want 6", sum.Records, err)
		}
		if _, err := os.Stat(filepath.Join(sub, "all.db")); err != nil {
			t.Error(err)
		}
	})
}

// A record in Redis cannot name a file elsewhere by its type.
func TestRecordCannotNameAnotherFile(t *testing.T) {
	t.Parallel()
	site := newShop(t, 1, 1)
	s := newService(t, redistest.New(t))
	j := begin(t, s, "j1", site.definition(t, ""), ScrapeOptions{BaseURL: site.URL})
	elsewhere := filepath.Join(s.cfg.OutDir, "x.jsonl")
	record, err := json.Marshal(map[string]string{"_type": "../../x", "_key": "k", "_url": "http://shop.example/"})
	if err != nil {
		t.Fatal(err)
	}
	settleWith(t, j, record)
	if _, err := s.recorder.Write(t.Context(), j.run); err == nil || !strings.Contains(err.Error(), "which the definition does not have") {
		t.Errorf("got %v, want an error that names the type", err)
	}
	if _, err := os.Stat(elsewhere); err == nil {
		t.Errorf("%s is written", elsewhere)
	}
}

// filesIn lists all that is in a folder.
func filesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		names = append(names, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// A sender learns whether others write what it asks for, and a job that none writes says so.
func TestSenderLearnsWhoWrites(t *testing.T) {
	t.Parallel()
	site := newShop(t, 1, 3)
	def := site.definition(t, "")
	rdb := redistest.New(t)
	client := tasks.NewClient(rdb)
	t.Cleanup(func() { _ = client.Close() })
	service := func(dir string) *Service {
		s, err := NewService(Config{Client: client, OutDir: dir, Registry: NewRegistry(def)})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	dir, other := t.TempDir(), t.TempDir()
	sender := service(dir)
	t.Cleanup(func() { _ = sender.Close() })
	elsewhere := func(o ScrapeOptions) bool {
		ok, err := sender.WrittenElsewhere(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if elsewhere(ScrapeOptions{}) {
		t.Error("nobody runs, and somebody writes")
	}
	worker := service(dir)
	work(t, client, worker)
	testutil.Eventually(t, "the worker says that it writes", func() bool { return elsewhere(ScrapeOptions{}) })
	if elsewhere(ScrapeOptions{OutDir: other}) || elsewhere(ScrapeOptions{Sinks: []string{"https://hook.example/"}}) {
		t.Error("the worker counts as one that writes where it may not")
	}
	if !elsewhere(ScrapeOptions{Sinks: []string{"sqlite:all.db"}}) {
		t.Error("the worker does not count as one that writes a database in its folder")
	}

	res, err := sender.Send(t.Context(), def.Site, ScrapeOptions{BaseURL: site.URL, OutDir: other})
	if err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the job says that nobody writes its records", func() bool {
		j, err := sender.Job(t.Context(), res.ID())
		return err == nil && j.Status == JobBlocked && strings.Contains(j.Trouble, other)
	})
	testutil.Background(t, sender.Run)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if sum, err := res.Wait(ctx); err != nil || sum.Records != 6 || !strings.HasPrefix(sum.Files[0], other) {
		t.Errorf("got %d records in %v, %v, want 6 in %s", sum.Records, sum.Files, err, other)
	}
}

// A definition that a task brings is sent to the site as it is written: it has no variables, and names no file.
func TestDefinitionOfATaskReadsNothing(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Get("X-Key") + " " + r.URL.String() + " " + r.UserAgent()
	}))
	t.Cleanup(server.Close)
	text := `site: shop.example
base_url: http://shop.example
start: /
headers: {X-Key: "${PATH}"}
user_agent: "${HOME}"
politeness: {delay: 0, robots: false}
retries: {attempts: 1, base: 1ms, cap: 1ms}
records: {item: {from: listing, fields: {name: {css: h1, required: true}}}}
`
	if _, err := definition.Parse("shop.yaml", []byte(strings.Replace(text, "start: /", "start: file:///etc/passwd", 1))); err == nil {
		t.Error("a definition may start with a file")
	}
	def, err := definition.Parse("shop.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s := newService(t, redistest.New(t))
	work(t, s.cfg.Client, s)
	req, err := s.request(t.Context(), def, ScrapeOptions{BaseURL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	run, err := signature(req, def).Send(t.Context(), s.cfg.Client)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = run.Wait(t.Context()) // there is no record on the page
	if got, want := <-seen, "${PATH} / ${HOME}"; got != want {
		t.Errorf("got a request with %q, want %q", got, want)
	}
}
