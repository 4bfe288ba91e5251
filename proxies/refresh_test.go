package proxies

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/proxies/probe"
	"muster/proxies/proxytest"
	"muster/proxies/source"
	"muster/tasks"
)

// fleet is a client and a worker with the tasks of a refresh.
type fleet struct {
	client *tasks.Client
	pool   *Pool
	dir    string // of the exported files
	host   *Service
	getenv map[string]string // the environment of the worker
}

func newFleet(t *testing.T, cfg probe.Config, sources ...source.Source) *fleet {
	t.Helper()
	f := &fleet{client: tasks.NewClient(redistest.New(t)), dir: t.TempDir(), getenv: map[string]string{}}
	t.Cleanup(func() { f.client.Close() })
	f.pool = newPool(t, f.client.Redis(), nil)
	cfg.ResponseTimeout, cfg.GreetingTimeout = 2*time.Second, time.Second
	service, err := NewService(Config{Pool: f.pool, Probe: cfg, ExportDir: f.dir, Settings: func() Settings { return Settings{Sources: sources} }, Fetcher: &source.Fetcher{
		Getenv: func(name string) (string, bool) { v, ok := f.getenv[name]; return v, ok },
	}})
	testutil.Ok(t, err)
	f.host = service
	mux := tasks.NewMux()
	service.Register(mux)
	worker, err := tasks.StartWorker(t.Context(), f.client, mux, tasks.WorkerConfig{Queues: map[string]int{"probe": 1}, Concurrency: 4, Grace: time.Second})
	testutil.Ok(t, err)
	t.Cleanup(func() { testutil.Ok(t, worker.Stop()) })
	return f
}

func (f *fleet) refresh(t *testing.T, sources ...source.Source) (Report, string, error) {
	t.Helper()
	run := testutil.Must(f.host.Refresh(t.Context(), sources...).Send(t.Context(), f.client, tasks.ProgressKeys(ProgressPrefix)))(t)
	report, err := run.Wait(t.Context())
	return report, run.ID(), err
}

// key waits for a progress key to have the value want and returns its last value.
func (f *fleet) key(t *testing.T, id, name, want string) string {
	t.Helper()
	var value string
	testutil.Becomes(func() bool {
		value, _ = f.client.Redis().Get(t.Context(), ProgressPrefix+":"+id+":"+name).Result()
		return value == want || want == "" && value != ""
	})
	return value
}

func newWorld(t *testing.T, n int) *proxytest.World {
	t.Helper()
	world := testutil.Must(proxytest.NewWorld(n, nil))(t)
	t.Cleanup(world.Close)
	return world
}

// startJudge runs a judge during the test and returns its URLs.
func startJudge(t *testing.T) []string {
	t.Helper()
	judge := testutil.Must(probe.StartJudge(probe.JudgeConfig{}))(t)
	t.Cleanup(func() { judge.Close() })
	return judge.URLs
}

// startProxy runs a proxy during the test.
func startProxy(t *testing.T, kind proxytest.Kind, exit int) *proxytest.Proxy {
	t.Helper()
	p := testutil.Must(proxytest.Start(proxytest.Options{Kind: kind, Exit: proxytest.ExitAddress(exit)}))(t)
	t.Cleanup(p.Close)
	return p
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "list.txt")
	testutil.Ok(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// A refresh of a world of all kinds finds exactly the working proxies in its lists and skips an unreadable source.
func TestRefreshWorld(t *testing.T) {
	t.Parallel()
	world := newWorld(t, 48)
	f := newFleet(t, probe.Config{Judges: world.Judge.URLs, Key: world.Key})
	list := writeFile(t, world.List())
	report, id, err := f.refresh(t, source.Source{Name: "world", URL: list, AllowLocal: true}, source.Source{Name: "gone", URL: filepath.Join(t.TempDir(), "none")})
	testutil.Ok(t, err)
	alive, usable, accepted := 0, 0, map[string]bool{}
	for _, p := range world.Proxies {
		e := p.Expect()
		if e.Alive {
			alive++
		}
		if e.Usable() {
			usable++
		}
		if e.Accepted {
			accepted[p.URL.Host] = true
		}
	}
	if report.Candidates != 48 || report.Alive != alive || report.Usable != usable || report.Live != len(accepted) || report.Errors != 0 || report.Stale {
		t.Errorf("got %+v, want 48 candidates, %d alive, %d usable, %d live", report, alive, usable, len(accepted))
	}
	members := testutil.Must(f.pool.List(t.Context(), Filter{Anonymity: probe.Transparent}))(t)
	for _, m := range members {
		if !accepted[m.Address()] {
			t.Errorf("%v must not be in the pool", m.Proxy)
		}
	}
	exported, err := readExport(f.dir)
	if err != nil || len(exported) != usable || slices.ContainsFunc(exported, func(p Proxy) bool { return !p.Usable() }) {
		t.Errorf("exported %d proxies, %v, want %d usable ones", len(exported), err, usable)
	}
	if y, err := f.pool.Yields(t.Context()); err != nil || y["world"].Last.Candidates != 48 || y["world"].Last.Usable != usable {
		t.Errorf("got yields %+v %v, want 48 candidates and all usable ones", y, err)
	}
	for name, want := range map[string]string{"status": "COMPLETE", "total_chunks": "1", "completed_chunks": "1", "result_count": strconv.Itoa(usable)} {
		if got := f.key(t, id, name, want); got != want {
			t.Errorf("key %s: got %q want %q", name, got, want)
		}
	}
	if f.key(t, id, "started_at", "") > f.key(t, id, "completed_at", "") {
		t.Error("the refresh completed before it started")
	}
}

// A refresh removes a dead proxy even if it is in no list.
func TestRefreshRechecksMembers(t *testing.T) {
	t.Parallel()
	f := newFleet(t, probe.Config{Judges: startJudge(t)})
	var lists []source.Source
	var proxies []*proxytest.Proxy
	for i := range 2 {
		p := startProxy(t, proxytest.Elite, i)
		proxies = append(proxies, p)
		lists = append(lists, source.Source{URL: writeFile(t, p.URL.String()), AllowLocal: true})
	}
	if report, _, err := f.refresh(t, lists...); err != nil || report.Live != 2 {
		t.Fatalf("got %+v %v, want 2 live", report, err)
	}
	proxies[0].Close()
	if report, _, err := f.refresh(t, lists[1]); err != nil || report.Live != 1 || report.Candidates != 2 {
		t.Fatalf("got %+v %v, want 1 live of 2 candidates", report, err)
	}
	// If a refresh finds no proxies, it keeps the old pool, marked stale.
	proxies[1].Close()
	report, id, err := f.refresh(t, lists[1])
	if err != nil || report.Live != 1 || !report.Stale || report.Usable != 0 {
		t.Fatalf("got %+v %v, want a stale pool of 1", report, err)
	}
	if status, err := f.pool.Status(t.Context()); err != nil || !status.Stale || status.RefreshedAt.IsZero() {
		t.Errorf("got %+v %v, want stale, and the time of the last success", status, err)
	}
	for name, want := range map[string]string{"status": "COMPLETE", "result_count": "0"} {
		if got := f.key(t, id, name, want); got != want {
			t.Errorf("key %s: got %q want %q", name, got, want)
		}
	}
	if exported, err := readExport(f.dir); err != nil || len(exported) != 1 {
		t.Errorf("the file has %d proxies, %v, want the old one", len(exported), err)
	}
}

// Many candidates are split into chunks of a hundred, all of which are checked.
func TestRefreshInChunks(t *testing.T) {
	t.Parallel()
	f := newFleet(t, probe.Config{Judges: startJudge(t)})
	good := startProxy(t, proxytest.SOCKS5, 1)
	var list strings.Builder
	for port := 1; port <= 249; port++ { // low ports of 127.0.0.9 are closed
		list.WriteString("http://127.0.0.9:" + strconv.Itoa(port) + "\n")
	}
	report, id, err := f.refresh(t, source.Source{URL: writeFile(t, list.String()+good.URL.String()), AllowLocal: true})
	if err != nil || report.Candidates != 250 || report.Usable != 1 || report.Reasons["refused"] != 249 {
		t.Fatalf("got %+v %v, want 250 candidates, 1 usable and 249 refused", report, err)
	}
	if total, done := f.key(t, id, "total_chunks", "3"), f.key(t, id, "completed_chunks", "3"); total != "3" || done != "3" {
		t.Errorf("got %s of %s chunks, want 3 of 3", done, total)
	}
}

// A refresh without usable input fails with the cause.
func TestRefreshFailures(t *testing.T) {
	t.Parallel()
	judge := testutil.Must(probe.StartJudge(probe.JudgeConfig{Listen: []string{testutil.FreeAddr(t)}}))(t)
	f := newFleet(t, probe.Config{Judges: judge.URLs})
	good := writeFile(t, "http://127.0.0.9:1")
	check := func(name, want string, sources ...source.Source) {
		t.Helper()
		_, id, err := f.refresh(t, sources...)
		failure, ok := errors.AsType[*tasks.Failure](err)
		if !ok || !strings.Contains(failure.Message, want) {
			t.Errorf("%s: got %v, want …%s…", name, err, want)
		}
		if got := f.key(t, id, "status", "FAILED"); got != "FAILED" {
			t.Errorf("%s: got status %s, want FAILED", name, got)
		}
	}
	check("no sources", "no proxy sources are configured")
	check("unreadable", "no proxy source could be read: source "+filepath.Join(f.dir, "a"), source.Source{URL: filepath.Join(f.dir, "a")}, source.Source{URL: filepath.Join(f.dir, "b")})
	check("a web page", "a web page instead of a list", source.Source{URL: writeFile(t, "<html><body>log in</body></html>")})
	judge.Close()
	check("no judge", "no judge is reachable", source.Source{URL: good, AllowLocal: true})
}

// A recheck checks only due members, suspends failed ones and removes them after the third failure.
func TestRecheck(t *testing.T) {
	t.Parallel()
	f := newFleet(t, probe.Config{Judges: startJudge(t)})
	old := time.Now().Add(-time.Hour)
	add := func(kind proxytest.Kind, checked time.Time) string {
		p := startProxy(t, kind, int(kind[0]))
		at := netip.MustParseAddrPort(p.URL.Host)
		c := Proxy{Candidate: Candidate{Protocol: "http", Host: at.Addr().String(), Port: at.Port()}, CheckedAt: checked, Anonymity: probe.Elite}
		testutil.Must(f.pool.Add(t.Context(), c))(t)
		// Add records a current success; an old record has an old one.
		h := "0.9 3 0 " + strconv.Itoa(int(checked.UnixMilli())) + " 0 0 10"
		testutil.Ok(t, f.client.Redis().HSet(t.Context(), healthKey("{muster:proxies}", ""), candidateID(c.Candidate), h).Err())
		return candidateID(c.Candidate)
	}
	dead, good, fresh := add(proxytest.HangsUp, old), add(proxytest.Elite, old), add(proxytest.Parking, time.Now())
	recheck := func() Report {
		t.Helper()
		run := testutil.Must(Recheck.S(struct{}{}).Send(t.Context(), f.client))(t)
		report := testutil.Must(run.Wait(t.Context()))(t)
		return report
	}
	left := func() map[string]bool {
		t.Helper()
		list := testutil.Must(f.pool.List(t.Context(), Filter{}))(t)
		left := map[string]bool{}
		for _, m := range list {
			left[m.ID] = m.Health.Until.IsZero()
		}
		return left
	}
	if report := recheck(); report.Checked != 2 || report.Alive != 1 || report.Live != 3 {
		t.Fatalf("got %+v, want 2 checked", report)
	}
	if got, want := left(), map[string]bool{dead: false, good: true, fresh: true}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for range 2 { // it is due again after the failure, because its last success is long ago
		recheck()
	}
	if got, want := left(), map[string]bool{good: true, fresh: true}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestRecheckIntervalGrows(t *testing.T) {
	t.Parallel()
	last := time.Duration(0)
	for _, h := range []Health{{OK: 0.5, Requests: 1}, {OK: 0.6, Requests: 5}, {OK: 0.9, Requests: 20}, {OK: 1, Requests: 1000}} {
		every := recheckEvery(h)
		if every <= last || every < time.Minute || every > 30*time.Minute {
			t.Errorf("%+v: got %s after %s, want longer, from 1m to 30m", h, every, last)
		}
		last = every
	}
	if got := recheckEvery(Health{OK: 1, Requests: 1000, Fails: 1}); got != time.Minute {
		t.Errorf("got %s after a failure, want 1m", got)
	}
}

func TestOperationsReturnTheRunningWorkflow(t *testing.T) {
	t.Parallel()
	var settings Settings
	client := tasks.NewClient(redistest.New(t))
	t.Cleanup(func() { client.Close() })
	s, err := NewService(Config{
		Pool: newPool(t, client.Redis(), nil), Client: client, Settings: func() Settings { return settings },
	})
	testutil.Ok(t, err)
	if _, err := s.StartRefresh(t.Context()); !errors.Is(err, ErrNoSources) {
		t.Errorf("refresh without sources: got error %v", err)
	}
	one := func(ctx context.Context) (string, error) {
		return s.RecheckProxy(ctx, Member{Proxy: Proxy{Candidate: Candidate{Protocol: "http", Host: "192.0.2.1", Port: 80}}})
	}
	for name, start := range map[string]func(context.Context) (string, error){"recheck": s.StartRecheck, "recheck of one proxy": one} {
		if _, err := start(t.Context()); !errors.Is(err, ErrNoJudges) {
			t.Errorf("%s without judges: got error %v", name, err)
		}
	}
	settings = Settings{Sources: []source.Source{{URL: "https://lists.example/"}}, CanCheck: true}
	for name, start := range map[string]func(context.Context) (string, error){"refresh": s.StartRefresh, "recheck": s.StartRecheck} {
		first, err := start(t.Context())
		second, err2 := start(t.Context())
		if err := errors.Join(err, err2); err != nil || first == "" || first != second {
			t.Errorf("%s: got %q and %q, error %v, want one workflow", name, first, second, err)
		}
		if _, err := tasks.Attach[Report](client, first).Progress(t.Context()); err != nil {
			t.Errorf("%s: got error %v, want a sent workflow", name, err)
		}
	}
	if id, err := one(t.Context()); err != nil || id == "" {
		t.Errorf("recheck of one proxy: got %q, error %v", id, err)
	}
}

// Refreshes without a usable proxy are counted. A source without yield is reported in the log once.
func TestYields(t *testing.T) {
	t.Parallel()
	var logs bytes.Buffer
	pool := newPool(t, redistest.New(t), func(c *PoolConfig) { c.Logger = slog.New(slog.NewTextHandler(&logs, nil)) })
	record := func(run string, sources map[string]Yield) {
		t.Helper()
		for range 2 { // a task may run twice
			testutil.Ok(t, pool.recordYields(t.Context(), run, sources))
		}
	}
	good := Yield{Candidates: 10, Unique: 4, Alive: 3, Usable: 2, Elite: 1}
	record("1", map[string]Yield{"a": good, "b": {Candidates: 5}})
	record("2", map[string]Yield{"a": good, "b": {Candidates: 5}})
	for range 2 { // two attempts of one refresh
		testutil.Ok(t, pool.recordRead(t.Context(), "3", source.List{Source: "b", Parsed: source.Parsed{Rejects: map[source.Reject]int{source.Private: 3}}}, source.ErrEmpty))
	}
	yields := testutil.Must(pool.Yields(t.Context()))(t)
	if a := yields["a"]; a.Last != good || a.DryFor != 0 || a.State() != "yields" {
		t.Errorf("a: got %+v, want the last refresh", a)
	}
	b := yields["b"]
	if b.DryFor != 3 || b.State() != "DRY for 3" || b.Error != source.ErrEmpty.Error() || b.Rejects[source.Private] != 3 || b.Last != (Yield{}) {
		t.Errorf("b: got %+v, want dry for three refreshes", b)
	}
	if n := strings.Count(logs.String(), "no usable proxies"); n != 1 || !strings.Contains(logs.String(), "source=b") {
		t.Errorf("logged %d times: %s", n, logs.String())
	}
	record("4", map[string]Yield{"b": good})
	if yields, _ := pool.Yields(t.Context()); yields["b"].DryFor != 0 {
		t.Errorf("got %+v, want it not dry", yields["b"])
	}
}

// A refresh records for each source the rejects, shared candidates and read errors. Members in no list count for no
// source.
func TestRefreshRecordsYields(t *testing.T) {
	t.Parallel()
	p := startProxy(t, proxytest.Elite, 1)
	f := newFleet(t, probe.Config{Judges: startJudge(t)})
	both, only := writeFile(t, p.URL.String()+"\n224.0.0.1:80\n"), writeFile(t, p.URL.String()+"\nhttp://127.0.0.9:1\n")
	sources := []source.Source{{Name: "both", URL: both, AllowLocal: true}, {Name: "only", URL: only, AllowLocal: true}, {Name: "gone", URL: both + ".gone"}}
	for _, list := range [][]source.Source{sources, {{Name: "dead", URL: writeFile(t, "http://127.0.0.9:1"), AllowLocal: true}}} {
		_, _, err := f.refresh(t, list...)
		testutil.Ok(t, err)
	}
	yields := testutil.Must(f.pool.Yields(t.Context()))(t)
	for name, want := range map[string]Yield{"both": {1, 0, 1, 1, 1}, "only": {2, 1, 1, 1, 1}, "gone": {}, "dead": {1, 1, 0, 0, 0}} {
		if got := yields[name]; got.Last != want || got.Run == "" {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
	if got := yields["both"].Rejects[source.Reserved]; got != 1 {
		t.Errorf("both: got %d reserved rejects, want 1", got)
	}
	if got := yields["gone"]; !strings.Contains(got.Error, "no such file") || got.State() != "unreadable" {
		t.Errorf("gone: got %+v, want it unreadable", got)
	}
}
