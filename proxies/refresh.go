// Package proxies maintains a scored pool of working proxies and provides it as an http.RoundTripper.
//
// Lists are read by package source and checked by package probe. Working proxies are published to a [Pool] in Redis
// immediately. [Service.Refresh] is the workflow:
//
//	Fetch, one per source ─▶ Merge: deduplicate, in chunks of 100 ─▶ Check, one per chunk, on all workers ─▶ Publish
//
// [Pool.Transport] sends each request through a proxy of the pool and retries with another one. Failures are
// attributed to the proxy or to the site. Requests through proxies use HTTP/1.1, even to sites that direct requests
// reach by HTTP/2, so a site can tell the two apart.
package proxies

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"muster/internal/atomicfile"
	"muster/internal/tracing"
	"muster/internal/wrap"
	"muster/proxies/probe"
	"muster/proxies/source"
	"muster/tasks"
)

// RefreshName is the name of refreshes among the workflows.
const RefreshName = "proxies"

// ProgressPrefix is the prefix of the progress keys of a refresh.
const ProgressPrefix = "proxy_refresh"

// ChunkSize is the number of candidates per Check.
const ChunkSize = 100

// Lists are passed between tasks as results, which are limited to 16 MiB.
const (
	maxPerSource  = 50_000
	maxCandidates = 80_000
)

// Tasks of a refresh.
var (
	Fetch   = tasks.New[FetchInput, source.List]("proxies.fetch", tasks.Queue("probe"), tasks.Timeout(3*time.Minute), tasks.MaxRetry(1), tasks.Backoff(time.Second, 5*time.Second))
	Merge   = tasks.New[[]tasks.Outcome[source.List], [][]Candidate]("proxies.merge", tasks.Queue("probe"), tasks.Timeout(5*time.Minute), tasks.MaxRetry(2))
	Check   = tasks.New[[]Candidate, Tally]("proxies.check", tasks.Queue("probe"), tasks.Timeout(780*time.Second), tasks.HardTimeout(900*time.Second), tasks.MaxRetry(2), tasks.Backoff(2*time.Second, 20*time.Second))
	Publish = tasks.New[[]tasks.Outcome[Tally], Report]("proxies.publish", tasks.Queue("probe"), tasks.Timeout(5*time.Minute), tasks.MaxRetry(3))
)

// A Tally counts the results of checks.
type Tally struct {
	Checked  int                  `json:"checked"`
	Alive    int                  `json:"alive"`    // the judge was reachable through them
	Accepted int                  `json:"accepted"` // alive and not rejected
	Usable   int                  `json:"usable"`   // accepted and not transparent
	Elite    int                  `json:"elite"`
	Reasons  map[probe.Reason]int `json:"reasons,omitempty"` // of candidates that were not accepted
	Sources  map[string]Yield     `json:"sources,omitempty"`
	Gone     []string             `json:"gone,omitempty"` // IDs of pool members that are no longer accepted
}

// Add adds a result.
func (t *Tally) Add(r probe.Result) {
	one := Tally{Checked: 1, Alive: count(r.Alive), Accepted: count(r.Accepted()), Usable: count(r.Usable()), Elite: count(r.Usable() && r.Anonymity == probe.Elite)}
	if !r.Accepted() {
		one.Reasons = map[probe.Reason]int{r.Reason: 1}
	}
	if !r.Candidate.Unlisted { // others do not count for their former lists
		one.Sources = map[string]Yield{}
		for _, name := range r.Candidate.Sources {
			one.Sources[name] = Yield{Candidates: 1, Unique: count(len(r.Candidate.Sources) == 1), Alive: one.Alive, Usable: one.Usable, Elite: one.Elite}
		}
	}
	t.Merge(one)
}

// count returns 1 for true and 0 for false.
func count(ok bool) int {
	if ok {
		return 1
	}
	return 0
}

// Merge adds the counts of another tally.
func (t *Tally) Merge(o Tally) {
	t.Checked += o.Checked
	t.Alive += o.Alive
	t.Accepted += o.Accepted
	t.Usable += o.Usable
	t.Elite += o.Elite
	t.Gone = append(t.Gone, o.Gone...)
	if t.Reasons == nil {
		t.Reasons = map[probe.Reason]int{}
	}
	if t.Sources == nil {
		t.Sources = map[string]Yield{}
	}
	for reason, n := range o.Reasons {
		t.Reasons[reason] += n
	}
	for name, y := range o.Sources {
		sum := t.Sources[name]
		sum.add(y)
		t.Sources[name] = sum
	}
}

// A Report is the result of a refresh.
type Report struct {
	Tally
	JobID      string `json:"job_id,omitempty"` // of the refresh
	Candidates int    `json:"candidates"`       // equal to Checked
	Live       int    `json:"live"`             // current size of the pool
	Errors     int    `json:"errors"`           // number of permanently failed chunks
	Stale      bool   `json:"stale"`            // no proxy was found and the old pool was kept
}

// ReportFile is the file with the Report of the last refresh, in the export directory.
const ReportFile = "refresh_report.json"

// keepReport stores the report for callers that wait for the refresh, even if the workflow is lost.
func (s *Service) keepReport(ctx context.Context, report Report) error {
	data, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return fmt.Errorf("encode refresh report: %w", err)
	}
	if s.cfg.ExportDir != "" {
		if err := os.MkdirAll(s.cfg.ExportDir, 0o755); err != nil {
			return fmt.Errorf("write refresh report: %w", err)
		}
		if err := atomicfile.WriteBytes(filepath.Join(s.cfg.ExportDir, ReportFile), 0o600, append(data, '\n')); err != nil {
			return fmt.Errorf("write refresh report: %w", err)
		}
	}
	return s.cfg.Pool.setRefreshReport(ctx, report.JobID, data)
}

// ReadReport is like [Pool.Report], but reads the export directory, which has only the report of the last refresh.
func ReadReport(dir, job string) (Report, bool, error) {
	report, ok, err := atomicfile.ReadJSON[Report](filepath.Join(dir, ReportFile))
	return report, ok && report.JobID == job, wrap.Err(err, "read the report of refresh %s", job)
}

// Refresh returns the workflow that reads sources, checks the candidates in chunks on all workers and publishes the
// working ones. It rechecks the members of the pool too. Send it with tasks.ProgressKeys(ProgressPrefix).
//
// Files are read here, before the workflow is sent. For a source with secrets only the name is sent; the workers have
// the source in their own Settings.Sources. See [FetchInput].
//
// Some sources and chunks may fail. If no source is readable, the refresh fails. If no proxy is found, it succeeds,
// keeps the old pool and marks it as stale.
func (s *Service) Refresh(ctx context.Context, sources ...source.Source) tasks.Signature[Report] {
	inputs := make([]FetchInput, len(sources))
	for i, from := range sources {
		inputs[i] = s.input(ctx, from)
	}
	lists := tasks.Settle(tasks.Each(inputs, Fetch))
	chunks := tasks.Chord(lists, Merge)
	checked := tasks.Settle(tasks.Map(chunks, Check))
	return tasks.Chord(checked, Publish)
}

// Config configures a Service.
type Config struct {
	// Pool receives the proxies. Required.
	Pool *Pool
	// Probe configures the checks. Its Judges are required for the first check.
	Probe probe.Config
	// Judges returns the Judges of Probe, if it has none, for the first check. Optional.
	Judges func() ([]string, error)
	// ExportDir is the directory for the exports and the report of a refresh. Defaults to none.
	ExportDir string
	// Client sends workflows. Required for StartRefresh, StartRecheck and RecheckProxy.
	Client *tasks.Client
	// Settings returns the current settings. Defaults to no sources.
	Settings func() Settings
	// Fetcher reads the lists. Defaults to the zero Fetcher.
	Fetcher *source.Fetcher
	// Annotate adds data about the exit address, such as its country. Defaults to none.
	Annotate func(*Proxy)
	// Logger defaults to none.
	Logger *slog.Logger
}

// Settings are the settings that may change while a Service runs.
type Settings struct {
	// Sources are the sources of StartRefresh, which a task may name with Configured; see FetchInput.
	Sources []source.Source
	// CanCheck allows StartRecheck and RecheckProxy.
	CanCheck bool
	// RefreshTimeout is the time after which StartRefresh replaces a running refresh. Defaults to an hour.
	RefreshTimeout time.Duration
}

// A Service implements the tasks of this package and the operations on a Pool.
type Service struct {
	*Pool
	cfg    Config
	prober func() (*probe.Prober, error)
}

// NewService returns a service. It does no I/O.
func NewService(cfg Config) (*Service, error) {
	if cfg.Pool == nil {
		return nil, errors.New("proxies: Config.Pool is required")
	}
	if cfg.Fetcher == nil {
		cfg.Fetcher = &source.Fetcher{}
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Settings == nil {
		cfg.Settings = func() Settings { return Settings{} }
	}
	cfg.Probe.Logger = cmp.Or(cfg.Probe.Logger, cfg.Logger)
	s := &Service{Pool: cfg.Pool, cfg: cfg}
	s.prober = sync.OnceValues(func() (_ *probe.Prober, err error) {
		if len(cfg.Probe.Judges) == 0 && cfg.Judges != nil {
			if cfg.Probe.Judges, err = cfg.Judges(); err != nil {
				return nil, err
			}
		}
		return probe.New(cfg.Probe)
	})
	return s, nil
}

// Register registers the handlers of the tasks.
func (s *Service) Register(mux *tasks.Mux) {
	tasks.Handle(mux, Fetch, s.fetch)
	tasks.Handle(mux, Merge, s.merge)
	tasks.Handle(mux, Check, s.check)
	tasks.Handle(mux, Publish, s.publish)
	tasks.HandlePlan(mux, Recheck, s.recheck)
	tasks.Handle(mux, settleRecheck, s.settle)
}

func (s *Service) fetch(ctx context.Context, in FetchInput) (source.List, error) {
	list, err := s.read(ctx, in)
	if failed := s.cfg.Pool.recordRead(ctx, tasks.InfoFrom(ctx).Workflow, list, err); failed != nil {
		s.cfg.Logger.WarnContext(ctx, "cannot record the yield of a source", "source", list.Source, "err", failed)
	}
	if err != nil {
		if errors.Is(err, source.ErrEmpty) || errors.Is(err, errRefused) {
			err = tasks.Permanent(err)
		}
		return list, err
	}
	s.cfg.Logger.InfoContext(ctx, "read a source", "source", list.Source, "candidates", len(list.Candidates), "rejects", list.Rejects)
	return list, nil
}

// merge merges the lists with the members of the pool and splits the candidates into chunks.
func (s *Service) merge(ctx context.Context, outcomes []tasks.Outcome[source.List]) ([][]Candidate, error) {
	var lists []source.List
	var reasons []string
	for _, o := range outcomes {
		if o.Err != nil {
			reasons = append(reasons, o.Err.Message)
			s.cfg.Logger.WarnContext(ctx, "cannot read a proxy source", "err", o.Err.Message)
			continue
		}
		lists = append(lists, o.Value)
	}
	switch {
	case len(outcomes) == 0:
		return nil, tasks.Permanent(errors.New("no proxy sources are configured; add them to proxies.sources"))
	case len(lists) == 0:
		more := ""
		if n := len(reasons) - 3; n > 0 {
			reasons, more = reasons[:3], fmt.Sprintf("; and %d more, see muster proxies list --sources", n)
		}
		return nil, tasks.Permanent(fmt.Errorf("no proxy source could be read: %s%s", strings.Join(reasons, "; "), more))
	}
	candidates, err := s.withMembers(ctx, source.Merge(lists))
	if err != nil {
		return nil, err
	}
	if len(candidates) > maxCandidates {
		s.cfg.Logger.WarnContext(ctx, "too many candidates for a refresh; the rest is not checked", "candidates", len(candidates), "checked", maxCandidates)
		candidates = candidates[:maxCandidates]
	}
	tasks.PublishKey(ctx, "candidates", strconv.Itoa(len(candidates)))
	return slices.Collect(slices.Chunk(candidates, ChunkSize)), nil
}

// withMembers adds the members of the pool to the candidates. A member that is in a list keeps its position, with the
// detected protocol as its label.
func (s *Service) withMembers(ctx context.Context, candidates []Candidate) ([]Candidate, error) {
	members, err := s.cfg.Pool.List(ctx, Filter{Anonymity: probe.Transparent})
	if err != nil {
		return nil, err
	}
	at := map[string]int{}
	for i, c := range candidates {
		at[c.Endpoint()] = i
	}
	for _, m := range members {
		c := m.recheckCandidate()
		if i, ok := at[c.Endpoint()]; ok {
			candidates[i].Protocol, candidates[i].Known = c.Protocol, true
			continue
		}
		candidates = append(candidates, c)
	}
	return candidates, nil
}

// check probes a chunk and publishes working proxies immediately. Members that fail remain until the end of the
// refresh: if it finds no proxy at all, a failure of our network is more likely.
func (s *Service) check(ctx context.Context, chunk []Candidate) (Tally, error) {
	var tally Tally
	err := s.Check(ctx, chunk, func(r probe.Result) {
		tally.Add(r)
		if id := candidateID(r.Candidate); !r.Accepted() && s.cfg.Pool.view.has(id) {
			tally.Gone = append(tally.Gone, id)
		}
		tasks.SetProgress(ctx, tally.Checked, len(chunk))
	})
	return tally, err
}

// Check probes candidates and publishes working ones to the pool immediately. It passes each result to report, one
// call at a time.
func (s *Service) Check(ctx context.Context, candidates []Candidate, report func(probe.Result)) error {
	prober, err := s.prober()
	if err != nil {
		return tasks.Permanent(err)
	}
	if err := prober.Start(ctx); err != nil {
		return err
	}
	var failure error
	err = prober.Each(ctx, slices.Values(candidates), func(r probe.Result) {
		if failure == nil && r.Accepted() {
			failure = s.take(ctx, r)
		}
		report(r)
	})
	return cmp.Or(err, failure)
}

// take publishes an accepted result.
func (s *Service) take(ctx context.Context, r probe.Result) error {
	proxy := proxyOf(r)
	if s.cfg.Annotate != nil {
		s.cfg.Annotate(&proxy)
	}
	_, err := s.cfg.Pool.put(ctx, []Proxy{proxy})
	return err
}

// sumUp merges the tallies of chunks. lost is the error of one that failed, or "".
func sumUp(outcomes []tasks.Outcome[Tally]) (report Report, lost string) {
	for _, o := range outcomes {
		if o.Err != nil {
			report.Errors++
			lost = cmp.Or(lost, o.Err.Message)
			continue
		}
		report.Merge(o.Value)
	}
	report.Candidates = report.Checked
	return report, lost
}

// publish finishes a refresh: it merges the tallies, removes failed members, exports the pool and stores the report.
func (s *Service) publish(ctx context.Context, outcomes []tasks.Outcome[Tally]) (Report, error) {
	report, lost := sumUp(outcomes)
	tasks.PublishKey(ctx, "error_count", strconv.Itoa(report.Errors))
	if len(outcomes) > 0 && report.Errors == len(outcomes) {
		return report, tasks.Permanent(fmt.Errorf("all chunks of candidates failed: %s", lost))
	}
	tasks.PublishKey(ctx, "status", "AGGREGATING")

	pool := s.cfg.Pool
	if report.Accepted > 0 {
		if _, err := pool.Remove(ctx, report.Gone...); err != nil {
			return report, err
		}
	}
	report.Gone = nil
	live, err := pool.Count(ctx)
	if err != nil {
		return report, err
	}
	report.Live = live
	if usable, err := pool.Usable(ctx); err != nil {
		return report, err
	} else if live > 0 { // an endpoint with two names in the lists is checked twice
		report.Usable = min(report.Usable, usable)
	}
	report.Stale = report.Accepted == 0 && live > 0
	status := Status{RefreshedAt: time.Now(), Stale: report.Stale, Candidates: report.Candidates, Alive: report.Alive, Usable: report.Usable}
	if report.Stale {
		s.cfg.Logger.WarnContext(ctx, "the refresh found no proxies; keeping the old pool, marked stale", "live", live)
	}
	if err := pool.setStatus(ctx, status); err != nil {
		return report, err
	}
	if err := pool.recordYields(ctx, tasks.InfoFrom(ctx).Workflow, report.Sources); err != nil {
		return report, err
	}
	if s.cfg.ExportDir != "" && !report.Stale {
		if _, err := pool.Export(ctx, s.cfg.ExportDir); err != nil {
			return report, err
		}
	}
	report.JobID = tasks.InfoFrom(ctx).Workflow
	if err := s.keepReport(ctx, report); err != nil {
		return report, err
	}
	tasks.PublishKey(ctx, "result_count", strconv.Itoa(report.Usable))
	s.cfg.Logger.InfoContext(ctx, "refreshed the proxies", "checked", report.Checked, "alive", report.Alive, "usable", report.Usable, "live", live)
	return report, nil
}

var (
	// ErrNoSources means that no sources are configured.
	ErrNoSources = errors.New("no proxy sources; add lists of proxies to proxies.sources")
	// ErrNoJudges means that no judge is configured.
	ErrNoJudges = errors.New("check proxies: proxies.judges is empty; see muster judge")
)

// SourceNames returns the labels of the configured sources.
func (s *Service) SourceNames() []string {
	var names []string
	for _, from := range s.cfg.Settings().Sources {
		names = append(names, from.Label())
	}
	return names
}

// StartRefresh sends a refresh from the configured sources and returns its ID. If a refresh is running, it returns the
// ID of that one.
func (s *Service) StartRefresh(ctx context.Context) (id string, err error) {
	settings := s.cfg.Settings()
	if len(settings.Sources) == 0 {
		return "", ErrNoSources
	}
	return s.start(ctx, s.Refresh(ctx, settings.Sources...), tasks.Name(RefreshName), tasks.ProgressKeys(ProgressPrefix),
		tasks.Unique(ProgressPrefix, cmp.Or(settings.RefreshTimeout, time.Hour)))
}

// StartRecheck sends a [Recheck] and returns its ID. If one is running, it returns the ID of that one.
func (s *Service) StartRecheck(ctx context.Context) (id string, err error) {
	if !s.cfg.Settings().CanCheck {
		return "", ErrNoJudges
	}
	return s.start(ctx, Recheck.S(struct{}{}), tasks.Unique(Recheck.Name(), time.Hour))
}

// RecheckProxy sends a workflow that rechecks one proxy and returns its ID.
func (s *Service) RecheckProxy(ctx context.Context, m Member) (id string, err error) {
	if !s.cfg.Settings().CanCheck {
		return "", ErrNoJudges
	}
	return s.start(ctx, tasks.Chord(tasks.Settle(tasks.Each([][]Candidate{{m.recheckCandidate()}}, Check)), settleRecheck))
}

// start sends a workflow, unless a duplicate is running, and returns the ID of the workflow or of the duplicate.
func (s *Service) start(ctx context.Context, work tasks.Signature[Report], opts ...tasks.SendOption) (id string, err error) {
	run, err := work.Send(ctx, s.cfg.Client, append(opts, tasks.Headers(tracing.Headers(ctx)))...)
	if err != nil && !errors.Is(err, tasks.ErrDuplicate) {
		return "", fmt.Errorf("send the workflow: %w", err)
	}
	return run.ID(), nil
}
