// Package record writes the records of jobs to files and sinks, with the changes since the site's last job. At the end of a job
// it closes the files and writes the report.
//
// Pages settle their records in the work queue of their job. In each process a Recorder writes the records of all jobs with a
// directory that it can access and may write to. A lock of the directory of each site allows one writing process at a time.
package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/addressfilter"
	"muster/sites/internal/store"
	"muster/sites/ledger"
	"muster/sites/report"
	"muster/sites/sink"
	"muster/tasks"
	"muster/tasks/workqueue"
)

// Config configures a Recorder.
type Config struct {
	Client *tasks.Client         // Required.
	OutDir string                // directory that this process may write to. Required.
	Sinks  []string              // addresses of sinks that it may write to. Defaults to none.
	Secret string                // signs webhook requests; see sink.Options. Defaults to none.
	Filter *addressfilter.Filter // see sink.Options. Defaults to none.
	// Judged is called with the health of a site after each of its jobs, and with the status after the previous job, or "". It is
	// called again if it returns an error or the process crashes. Defaults to none.
	Judged func(ctx context.Context, h report.Health, before report.HealthStatus) error
	// Round is called with the open jobs before each round of writing. Defaults to none.
	Round  func(ctx context.Context, open []string)
	Logger *slog.Logger // Defaults to none.
}

// RetryAfter is the delay before Finish should be called again after an error.
const RetryAfter = minBackOff

// A Recorder writes records. It is safe for concurrent use. Run writes; Close closes the files.
type Recorder struct {
	cfg         Config
	rdb         redis.UniversalClient
	owner       string // identifies this process among the writers
	locks       locks
	sees        func(dir string) string // name of a records directory on this machine, or ""
	permits     permits
	announced   string        // see announce; used only by Run
	announcedAt time.Time     // likewise
	wake        chan struct{} // signals that a job may have records to write
	errors      sync.Map      // the last logged error by job
	busy        sync.Map      // jobs whose records Run writes
	writers     sync.Map      // *writer by job
}

// New returns a Recorder.
func New(cfg Config) (*Recorder, error) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	host, _ := os.Hostname()
	r := &Recorder{
		cfg: cfg, rdb: cfg.Client.Redis(), sees: readName, wake: make(chan struct{}, 1),
		owner: fmt.Sprintf("%s-%d-%d", host, os.Getpid(), time.Now().UnixNano()),
	}
	return r, r.permits.allow(cfg.OutDir, cfg.Sinks)
}

// Allow lets this process write to sinks, and to a directory unless it is "".
func (r *Recorder) Allow(dir string, sinks []string) error { return r.permits.allow(dir, sinks) }

// Check returns an error with a remedy if this process must not write the records of a request.
func (r *Recorder) Check(req store.Request) error { return r.permits.check(req) }

// Sees reports whether the records directory of a request is on this machine.
func (r *Recorder) Sees(req store.Request) bool {
	return req.Home != "" && r.sees(req.OutDir) == req.Home
}

// Intervals at which Run looks for jobs, with and without open jobs.
const (
	roundBusy = 250 * time.Millisecond
	roundIdle = 2 * time.Second
)

// Run writes the records of all jobs that this process can access and may write, until ctx is done. It returns nil after the last
// write in progress; unwritten records remain in Redis.
func (r *Recorder) Run(ctx context.Context) error {
	if _, err := FolderName(r.cfg.OutDir); err != nil { // senders compare its name
		r.cfg.Logger.WarnContext(ctx, "cannot announce this process as a writer of records", "error", err)
	}
	defer r.retract(ctx)
	var writing sync.WaitGroup
	defer writing.Wait()
	for {
		wait := roundIdle
		if r.round(ctx, &writing) > 0 {
			wait = roundBusy
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-r.wake:
			t.Stop()
		case <-t.C:
		}
	}
}

// Wake makes Run look for jobs immediately.
func (r *Recorder) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// round starts to write the records of open jobs that are not busy, and returns the number of open jobs.
func (r *Recorder) round(ctx context.Context, writing *sync.WaitGroup) int {
	if err := r.announce(ctx); err != nil && ctx.Err() == nil {
		r.cfg.Logger.WarnContext(ctx, "cannot announce this process as a writer of records", "error", err)
	}
	open, err := r.rdb.SMembers(ctx, store.OpenJobsKey).Result()
	if err != nil {
		if ctx.Err() == nil {
			r.cfg.Logger.WarnContext(ctx, "cannot list the jobs with records to write", "error", err)
		}
		return 0
	}
	for id := range r.writers.Range {
		if _, busy := r.busy.Load(id); !busy && !slices.Contains(open, id.(string)) { // closed, here or elsewhere
			r.Forget(id.(string))
		}
	}
	if r.cfg.Round != nil {
		r.cfg.Round(ctx, open)
	}
	for _, id := range open {
		if _, busy := r.busy.LoadOrStore(id, true); busy {
			continue
		}
		writing.Go(func() {
			defer r.busy.Delete(id)
			r.writeJob(ctx, id)
		})
	}
	return len(open)
}

// writeJob writes the unwritten records of a job and finishes the job after its last page. After an error it backs off.
func (r *Recorder) writeJob(ctx context.Context, id string) {
	err := r.tryJob(ctx, id)
	if err == nil {
		if _, ok := r.errors.LoadAndDelete(id); ok {
			r.cfg.Logger.InfoContext(ctx, "writing records works again", "job", id)
		}
		return
	}
	if ctx.Err() != nil {
		return
	}
	last, _ := r.errors.Swap(id, err.Error())
	switch {
	case errors.Is(err, ErrNotWriter):
		if last != err.Error() {
			r.cfg.Logger.InfoContext(ctx, "waiting to write records", "job", id, "error", err)
		}
	default:
		if last != err.Error() {
			r.cfg.Logger.WarnContext(ctx, "cannot write records; they wait in Redis, and fetching is paused", "job", id, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(minBackOff):
		}
	}
}

func (r *Recorder) tryJob(ctx context.Context, id string) error {
	w, err := r.writer(ctx, id)
	if errors.Is(err, store.ErrNoJob) {
		return store.Close(ctx, r.rdb, id)
	}
	if err != nil {
		return err
	}
	if w.may() != nil {
		return nil
	}
	if _, err := w.drain(ctx); err != nil {
		return err
	}
	sum, ok, err := store.ReadJSON[report.Summary](ctx, r.rdb, store.CountedKey(id))
	if err != nil || !ok {
		return errors.Join(err, r.closeEnded(ctx, w))
	}
	_, err = w.finish(ctx, sum)
	return err
}

// closeEnded closes a job that will have no more records because its workflow failed or was revoked.
func (r *Recorder) closeEnded(ctx context.Context, w *writer) error {
	if time.Since(w.lastCheck) < 10*time.Second {
		return nil
	}
	w.lastCheck = time.Now()
	status, err := r.cfg.Client.Workflow(w.run).Status(ctx)
	if err != nil && !errors.Is(err, tasks.ErrNotFound) {
		return fmt.Errorf("read job %s: %w", w.run, err)
	}
	if err == nil && !status.Terminal() {
		return nil
	}
	if err := store.Close(ctx, r.rdb, w.run); err != nil {
		return err
	}
	r.Forget(w.run)
	return nil
}

// Write writes the unwritten records of a job and returns the number of new ones. The error is ErrNotWriter if this process is
// not their writer.
func (r *Recorder) Write(ctx context.Context, id string) (int, error) {
	w, err := r.writer(ctx, id)
	if err != nil {
		return 0, err
	}
	return w.drain(ctx)
}

// Finish closes the files of a job with only terminal pages, and returns its summary with the results of the files. It is
// idempotent. The error is ErrNotWriter if another process is the writer of the job, which then finishes it.
func (r *Recorder) Finish(ctx context.Context, id string, sum report.Summary) (report.Summary, error) {
	w, err := r.writer(ctx, id)
	if err != nil {
		return sum, err
	}
	return w.finish(ctx, sum)
}

// writer returns the writer of a job without opening files.
func (r *Recorder) writer(ctx context.Context, id string) (*writer, error) {
	if w, ok := r.writers.Load(id); ok {
		return w.(*writer), nil
	}
	req, err := store.ReadRequest(ctx, r.rdb, id)
	if err != nil {
		return nil, err
	}
	w, err := r.newWriter(id, req)
	if err != nil {
		return nil, err
	}
	first, _ := r.writers.LoadOrStore(id, w)
	return first.(*writer), nil
}

func (r *Recorder) newWriter(run string, req store.Request) (*writer, error) {
	def, err := req.Definition()
	if err != nil {
		return nil, err
	}
	id := req.PagesOf(run)
	watch := map[string][]string{}
	for _, t := range def.Records {
		watch[t.Name] = t.Watch
	}
	if !def.Refetch.IsZero() {
		watch[store.PageType] = []string{""} // no field: pages have no changes
	}
	queue := workqueue.New(r.rdb, store.QueueName(def.Site, id), workqueue.Config{Logger: r.cfg.Logger})
	return &writer{
		id: id, run: run, req: req, def: def, rdb: r.rdb, queue: queue, judged: r.cfg.Judged,
		log: r.cfg.Logger.With("site", def.Site, "job", id),
		may: func() error {
			if !r.Sees(req) {
				return ErrNotWriter
			}
			return r.Check(req)
		},
		out: queue.Outputs(), locks: &r.locks, siteDir: filepath.Join(req.OutDir, def.Site),
		files: files{
			dir: req.Dir(run), ledgers: filepath.Join(req.OutDir, def.Site, "ledger"), watch: watch,
			records: map[string]*sink.JSONL{}, books: map[string]*ledger.Book{}, dirty: map[string]bool{},
		},
		sinks: sinks{
			addresses: req.Sinks, options: sink.Options{Dir: req.OutDir, Secret: r.cfg.Secret, Filter: r.cfg.Filter},
			open: map[string]sink.Sink{}, delivered: map[string]int{},
		},
	}, nil
}

// Forget drops the writer of a terminated job and closes its files.
func (r *Recorder) Forget(id string) {
	w, ok := r.writers.LoadAndDelete(id)
	if !ok {
		return
	}
	if err := w.(*writer).close(); err != nil {
		r.cfg.Logger.Warn("cannot close records", "job", id, "error", err)
	}
}

// Close closes the files. Call it after Run has returned.
func (r *Recorder) Close() error {
	var errs []error
	for _, w := range r.writers.Range {
		errs = append(errs, w.(*writer).close())
	}
	r.writers.Clear()
	return errors.Join(errs...)
}
