package sites

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/sites/internal/sitetest"
	"muster/sites/internal/store"
	"muster/sites/record"
	"muster/sites/report"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// guarded is a worker that may write to its own directory but not to another one.
type guarded struct {
	*Service
	t    *testing.T
	site *sitetest.Shop
	def  *definition.Definition
	good store.Request // permitted
	out  string        // the other folder
}

func guard(t *testing.T, rdb redis.UniversalClient) *guarded {
	t.Helper()
	g := &guarded{t: t, site: sitetest.NewShop(t, 1, 3), out: t.TempDir()}
	g.def = g.site.Definition(t, "")
	client := tasks.NewClient(rdb)
	t.Cleanup(func() { _ = client.Close() })
	g.Service = testutil.Must(NewService(NewRegistry(g.def), Config{Client: client, OutDir: filepath.Join(t.TempDir(), "own")}))(t)
	work(t, client, g.Service)
	g.good = store.Request{Site: g.def.Site, File: g.def.File(), YAML: string(g.def.YAML()), BaseURL: g.site.URL, OutDir: g.cfg.OutDir, Home: g.name(g.cfg.OutDir)}
	return g
}

// name names a directory for records.
func (g *guarded) name(dir string) string {
	g.t.Helper()
	name, err := record.FolderName(dir)
	testutil.Ok(g.t, err)
	return name
}

// send sends a request like any client that can send tasks.
func (g *guarded) send(change func(*store.Request)) *tasks.Run[report.Summary] {
	g.t.Helper()
	r := g.good
	change(&r)
	run, err := store.Scrape(r).Send(g.t.Context(), g.cfg.Client)
	testutil.Ok(g.t, err)
	return run
}

// A worker writes only to directories and sinks of its configuration, whatever a task requests.
func TestRequestCannotNameWhereAWorkerWrites(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		g := guard(t, rdb)
		out, home := g.out, g.name(g.out)
		link := filepath.Join(g.cfg.OutDir, "link")
		testutil.Ok(t, os.Symlink(out, link))
		before := filesIn(t, out)
		for name, change := range map[string]func(*store.Request){
			"another folder":            func(r *store.Request) { r.OutDir, r.Home = out, home },
			"another folder, no name":   func(r *store.Request) { r.OutDir, r.Home = out, "" },
			"a new folder":              func(r *store.Request) { r.OutDir, r.Home = filepath.Join(out, "new"), "" },
			"up and down":               func(r *store.Request) { r.OutDir, r.Home = g.cfg.OutDir+"/../../"+filepath.Base(out), home },
			"a link below its own":      func(r *store.Request) { r.OutDir, r.Home = link, home },
			"a database elsewhere":      func(r *store.Request) { r.Sinks = []string{"sqlite:" + filepath.Join(out, "x.db")} },
			"a database further up":     func(r *store.Request) { r.Sinks = []string{"sqlite:../../x.db"} },
			"a server for its password": func(r *store.Request) { r.Sinks = []string{"postgres://me@127.0.0.1:1/x"} },
			"a webhook":                 func(r *store.Request) { r.Sinks = []string{g.site.URL + "/hook"} },
		} {
			run := g.send(change)
			testutil.Eventually(t, name+": all is fetched", func() bool {
				p, err := g.Progress(t.Context(), g.def.Site, run.ID())
				return err == nil && p.Done == 4
			})
			if n, err := g.recorder.Write(t.Context(), run.ID()); err == nil || n > 0 {
				t.Errorf("%s: got %d records written, %v, want none", name, n, err)
			}
			testutil.Ok(t, run.Revoke(t.Context()))
		}
		if after := filesIn(t, out); !slices.Equal(after, before) {
			t.Errorf("got %v in a folder that is not its own, want %v", after, before)
		}
		if asked, _ := g.site.Counts("/hook"); asked > 0 {
			t.Errorf("the webhook was called %d times, want none", asked)
		}
	})
}

// Sites and jobs with names that are not valid in paths are rejected.
func TestRequestCannotNameAPath(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		g := guard(t, rdb)
		before := filesIn(t, g.out)
		for name, change := range map[string]func(*store.Request){
			"a path as the job to resume": func(r *store.Request) { r.Resume = "../../../" + filepath.Base(g.out) },
			"a path as the site":          func(r *store.Request) { r.Site = "../x" },
			"another site":                func(r *store.Request) { r.Site = "other.example" },
		} {
			if _, err := g.send(change).Wait(t.Context()); err == nil || !strings.Contains(err.Error(), store.ErrNames.Error()) {
				t.Errorf("%s: got %v, want %v", name, err, store.ErrNames)
			}
		}
		if after := filesIn(t, g.out); !slices.Equal(after, before) {
			t.Errorf("got %v in a folder that is not its own, want %v", after, before)
		}
	})
}

// A worker writes to subdirectories of its directory, and databases there.
func TestWorkerWritesBelowItsFolder(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		g := guard(t, rdb)
		sub := filepath.Join(g.cfg.OutDir, "sub")
		run := g.send(func(r *store.Request) { r.OutDir, r.Home, r.Sinks = sub, g.name(sub), []string{"sqlite:all.db"} })
		if sum, err := run.Wait(t.Context()); err != nil || sum.Records != 6 {
			t.Errorf("got %d records, %v, want 6", sum.Records, err)
		}
		testutil.Must(os.Stat(filepath.Join(sub, "all.db")))(t)
	})
}

// filesIn returns all files in a directory.
func filesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		names = append(names, path)
		return err
	})
	testutil.Ok(t, err)
	return names
}

// A sender learns whether another process writes the records, and a job without a writer reports it.
func TestSenderLearnsWhoWrites(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 3)
	def := site.Definition(t, "")
	rdb := redistest.New(t)
	client := tasks.NewClient(rdb)
	t.Cleanup(func() { _ = client.Close() })
	service := func(dir string) *Service {
		s := testutil.Must(NewService(NewRegistry(def), Config{Client: client, OutDir: dir}))(t)
		return s
	}
	dir, other := t.TempDir(), t.TempDir()
	sender := service(dir)
	t.Cleanup(func() { _ = sender.Close() })
	elsewhere := func(o ScrapeOptions) bool {
		ok := testutil.Must(sender.WrittenElsewhere(t.Context(), o))(t)
		return ok
	}
	if elsewhere(ScrapeOptions{}) {
		t.Error("got a writer before any process runs, want none")
	}
	worker := service(dir)
	work(t, client, worker)
	testutil.Eventually(t, "the worker to announce that it writes", func() bool { return elsewhere(ScrapeOptions{}) })
	if elsewhere(ScrapeOptions{OutDir: other}) || elsewhere(ScrapeOptions{Sinks: []string{"https://hook.example/"}}) {
		t.Error("got a writer for a folder or sink that the worker may not write to, want none")
	}
	if !elsewhere(ScrapeOptions{Sinks: []string{"sqlite:all.db"}}) {
		t.Error("got no writer for a database in the folder of the worker, want one")
	}

	res := testutil.Must(sender.Send(t.Context(), def.Site, ScrapeOptions{BaseURL: site.URL, OutDir: other}))(t)
	testutil.Eventually(t, "the job to report that no process writes its records", func() bool {
		j, err := sender.Job(t.Context(), res.ID())
		return err == nil && j.Status == JobBlocked && strings.Contains(j.Trouble, other)
	})
	testutil.Background(t, sender.Run)
	if sum, err := res.Wait(t.Context()); err != nil || sum.Records != 6 || !strings.HasPrefix(sum.Files[0], other) {
		t.Errorf("got %d records in %v, %v, want 6 in %s", sum.Records, sum.Files, err, other)
	}
}

// A definition in a task cannot read variables or files: a reference to a secret is rejected.
func TestDefinitionOfATaskReadsNothing(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 100)
	server := testutil.Serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Get("X-Key") + " " + r.URL.String() + " " + r.UserAgent()
	}))
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
		t.Error("a definition that starts with a file: got no error, want one")
	}
	def := sitetest.Parse(t, []byte(text))
	s := newService(t, redistest.New(t))
	work(t, s.cfg.Client, s)
	req := testutil.Must(s.request(t.Context(), def, ScrapeOptions{BaseURL: server.URL}))(t)
	refused := testutil.Must(store.Scrape(req).Send(t.Context(), s.cfg.Client))(t)
	testutil.Eventually(t, "an attempt fails with the reason", func() bool { // later ones may run on workers that have the file
		nodes, err := s.cfg.Client.Workflow(refused.ID()).Nodes(t.Context())
		return err == nil && slices.ContainsFunc(nodes, func(n tasktype.Node) bool {
			return strings.Contains(n.Message, "this worker has no file with the definition")
		})
	})
	if err := refused.Revoke(t.Context()); err != nil || len(seen) > 0 {
		t.Errorf("got %v and %d requests, want none", err, len(seen))
	}

	plain := strings.Replace(text, `headers: {X-Key: "${PATH}"}`, "", 1)
	def = testutil.Must(definition.Parse("shop.yaml", []byte(plain)))(t)
	req = testutil.Must(s.request(t.Context(), def, ScrapeOptions{BaseURL: server.URL}))(t)
	run := testutil.Must(store.Scrape(req).Send(t.Context(), s.cfg.Client))(t)
	if got, want := <-seen, " / ${HOME}"; got != want {
		t.Errorf("got a request with %q, want %q", got, want)
	}
	testutil.Ok(t, run.Revoke(t.Context()))
}
