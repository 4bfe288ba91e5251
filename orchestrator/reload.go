package orchestrator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"muster/jobs"
	"muster/jobs/agent"
	"muster/jobs/pipeline"
	"muster/orchestrator/api"
	"muster/orchestrator/config"
	"muster/proxies"
	"muster/sites"
	"muster/tasks"
)

// Watch calls apply with new settings, one call at a time, until ctx is done. apply returns the changed sites and pipelines,
// or an error if it applied nothing.
type Watch func(ctx context.Context, apply func(config.Config) (changed []string, err error))

// Reload applies the settings that take effect without a restart, and reloads the definitions of sites and pipelines.
// Running tasks, jobs and requests continue. It returns the changed sites and pipelines. If it returns an error, nothing
// has changed. It must not be called concurrently.
func (o *Orchestrator) Reload(cfg config.Config) (changed []string, err error) {
	changed, err = reload(o.System, cfg, func(registry *sites.Registry) error {
		_, err := schedules(cfg, registry)
		return err
	})
	if err != nil {
		return nil, err
	}
	if !o.opts.Reuse {
		o.logBroken()
	}
	if err := o.syncSchedules(context.Background()); err != nil { // the other settings are applied
		o.opts.Logger.Error("cannot change the schedules; they are changed by the next reload or start", "err", err)
	}
	o.reloading.Lock()
	defer o.reloading.Unlock()
	for _, fn := range o.onReload {
		fn(cfg)
	}
	if err := o.Workers.reload(cfg); err != nil { // the other settings are applied
		o.opts.Logger.Error("cannot write the settings of worker processes; they keep their current settings", "err", err)
	}
	return changed, nil
}

// OnReload registers fn to be called with the new settings after each successful Reload.
func (o *Orchestrator) OnReload(fn func(config.Config)) {
	o.reloading.Lock()
	defer o.reloading.Unlock()
	o.onReload = append(o.onReload, fn)
}

// reload implements Orchestrator.Reload for the parts of a System. check returns an error if the process cannot use the
// sites.
func reload(s *System, cfg config.Config, check func(*sites.Registry) error) ([]string, error) {
	registry, err := LoadSites(cfg)
	if err != nil {
		return nil, err
	}
	pipelines, err := pipeline.Load(cfg.Pipelines())
	if err != nil {
		return nil, err
	}
	if err := check(registry); err != nil {
		return nil, err
	}
	if err := s.Agents.Reload(cfg.Agents.Static, cfg.Agents.Allow, agent.Limits{Concurrency: cfg.Agents.Concurrency, PerMinute: cfg.Agents.PerMinute}, cfg.Agents.HealthEvery); err != nil {
		return nil, err
	}
	s.gates.setKeys(cfg.API.Keys)
	changed := append(
		changes("site", siteTexts(s.Sites.Registry()), siteTexts(registry)),
		changes("pipeline", pipelineTexts(s.Pipelines), pipelineTexts(pipelines))...)
	s.Jobs.SetLimits(jobLimits(cfg.Jobs))
	s.Sites.Registry().Replace(registry)
	s.Pipelines.Replace(pipelines)
	s.settings.Store(&cfg)
	return changed, nil
}

// Watch runs w with o.Reload until stop is called or ctx is done. A nil w does nothing.
func (o *Orchestrator) Watch(ctx context.Context, w Watch) (stop func()) {
	return w.start(ctx, o.Reload)
}

// watchSystem runs w with a reload of s, and calls then after each successful reload.
func watchSystem(ctx context.Context, s *System, w Watch, then func(config.Config)) (stop func()) {
	return w.start(ctx, func(cfg config.Config) ([]string, error) {
		changed, err := reload(s, cfg, anySites)
		if err == nil {
			then(cfg)
		}
		return changed, err
	})
}

// start runs w until stop is called or ctx is done.
func (w Watch) start(ctx context.Context, apply func(config.Config) ([]string, error)) (stop func()) {
	if w == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w(ctx, apply)
	}()
	return func() { cancel(); <-done }
}

// liveSettings holds the current settings of a process. reload replaces them.
type liveSettings struct{ settings atomic.Pointer[config.Config] }

func (f *liveSettings) cfg() *config.Config { return f.settings.Load() }

// Config returns the current settings.
func (f *liveSettings) Config() config.Config { return *f.cfg() }

// anySites accepts all sites. It is the check of reload in processes without a schedule.
func anySites(*sites.Registry) error { return nil }

// siteTexts returns the definition of each site by name, or the error of an invalid definition.
func siteTexts(r *sites.Registry) map[string]string {
	texts := map[string]string{}
	for _, name := range r.Names() {
		if def, err := r.Definition(name); err == nil {
			texts[name] = string(def.YAML())
		}
	}
	for _, b := range r.Broken() {
		texts[b.Name] = b.Error()
	}
	return texts
}

// pipelineTexts returns each pipeline as JSON by name, or the error of an invalid file.
func pipelineTexts(r *pipeline.Registry) map[string]string {
	texts := map[string]string{}
	for _, p := range r.List() {
		text, err := json.Marshal(p)
		texts[p.Name] = fmt.Sprint(string(text), err)
	}
	for _, b := range r.Broken() {
		texts[b.Name] = b.Error()
	}
	return texts
}

// changes describes the differences between two sets of definitions.
func changes(kind string, old, now map[string]string) []string {
	if reflect.DeepEqual(old, now) {
		return nil
	}
	all := maps.Clone(old)
	maps.Copy(all, now)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		was, before := old[name]
		is, after := now[name]
		switch {
		case !before:
			out = append(out, kind+" "+name+": added")
		case !after:
			out = append(out, kind+" "+name+": removed")
		case was != is:
			out = append(out, kind+" "+name+": changed")
		}
	}
	return out
}

// The group of the schedules of the settings and the definitions of sites, and the queue of their tasks.
const (
	scheduleGroup = "orchestrator"
	scheduleQueue = "orchestrator"
)

// Names of schedules: the check of the pool, the refresh from all sources, which is also a prefix of the names for single sources, and the
// prefix of the names for sites.
const (
	recheckSchedule = "proxies.recheck"
	refreshSchedule = "proxies.refresh"
	scrapeSchedule  = "scrape."
)

// scheduled sends the scrape or refresh of the schedule that is its input, and returns the ID of its workflow. Only the workers of the
// orchestrator take it: they have its definitions and files. While it is not running, ticks expire.
var scheduled = tasks.New[string, string]("orchestrator.scheduled", tasks.Queue(scheduleQueue), tasks.Expires(time.Minute), tasks.Timeout(5*time.Minute), tasks.MaxRetry(3))

// createJob creates a job with the input of POST /v1/jobs, and returns its ID. It is the work of schedules of jobs.
var createJob = tasks.New[api.NewJob, string]("jobs.create", tasks.Queue(scheduleQueue))

// runCreateJob is the handler of createJob. Attempts of one workflow create one job.
func (s *System) runCreateJob(ctx context.Context, n api.NewJob) (string, error) {
	n.Dedupe = cmp.Or(n.Dedupe, jobs.DedupeAllow)
	j, _, err := api.CreateJob(ctx, s.Jobs, s.Documents, n, nil, tasks.InfoFrom(ctx).Key)
	if errors.As(err, new(*jobs.FieldError)) || errors.Is(err, jobs.ErrExists) {
		err = tasks.Permanent(err)
	}
	return j.ID, err
}

// schedules returns the schedules of cfg for the sites of registry.
func schedules(cfg config.Config, registry *sites.Registry) (list []tasks.Schedule, err error) {
	if every := cfg.Proxies.RecheckEvery; every > 0 && cfg.Proxies.CanCheck() {
		list = append(list, tasks.Schedule{Name: recheckSchedule, Spec: "@every " + every.String(), Work: proxies.Recheck.S(struct{}{}),
			Options: []tasks.SendOption{tasks.Unique(recheckSchedule, time.Hour)}}) // at most one at a time
	}
	add := func(name, spec string) {
		list = append(list, tasks.Schedule{Name: name, Spec: spec, Work: scheduled.S(name), Options: []tasks.SendOption{tasks.Name(name)}})
	}
	if cfg.Proxies.RefreshEvery > 0 && cfg.Proxies.HasSources() {
		add(refreshSchedule, "@every "+cfg.Proxies.RefreshEvery.String())
	}
	for i, from := range cfg.Proxies.Sources {
		if every := from.Every; every > 0 {
			add(fmt.Sprintf("%s.%d", refreshSchedule, i+1), "@every "+every.String())
		}
	}
	specs := registry.Schedules(cfg.Sites.Schedule)
	if _, err := registry.Order(slices.Sorted(maps.Keys(specs))...); err != nil {
		return nil, fmt.Errorf("sites.schedule: %w", err)
	}
	for site, spec := range specs {
		if _, err := registry.Definition(site); err == nil { // an invalid definition has been logged
			add(scrapeSchedule+site, spec)
		}
	}
	return list, nil
}

// syncSchedules makes the schedules in Redis equal to those of the settings.
func (o *Orchestrator) syncSchedules(ctx context.Context) error {
	list, err := schedules(o.Config(), o.Sites.Registry())
	if err != nil {
		return err
	}
	return o.Client.Schedules().Sync(ctx, scheduleGroup, list)
}

// runScheduled is the handler of scheduled.
func (s *System) runScheduled(ctx context.Context, name string) (id string, err error) {
	if site, ok := strings.CutPrefix(name, scrapeSchedule); ok {
		id, err = s.scrapeAt(ctx, site, tasks.InfoFrom(ctx).Tick)
	} else {
		id, err = s.refreshNow(ctx, name)
	}
	if err == nil {
		s.logger.InfoContext(ctx, "scheduled job sent", "schedule", name, "job", id)
	}
	return id, err
}

// scrapeAt sends the scrape of a site for a tick, and before it those of the sites that it depends on and that have the same tick. It
// returns the running one, if any.
func (s *System) scrapeAt(ctx context.Context, site string, tick time.Time) (string, error) {
	def, err := s.Sites.Registry().Definition(site)
	if err != nil {
		return "", tasks.Permanent(err)
	}
	specs, after := s.Sites.Registry().Schedules(s.cfg().Sites.Schedule), map[string]string{}
	for _, first := range def.DependsOn {
		if at, err := tasks.NextTick(specs[first], tick.Add(-1)); err != nil || !at.Equal(tick) {
			continue
		}
		if after[first], err = s.scrapeAt(ctx, first, tick); err != nil {
			return "", err
		}
	}
	run, err := s.Sites.Send(ctx, site, sites.ScrapeOptions{After: after, Tick: tick})
	if running, ok := errors.AsType[*sites.RunningError](err); ok {
		return running.JobID, nil
	}
	if err != nil && !errors.Is(err, tasks.ErrDuplicate) {
		return "", err
	}
	return run.ID(), nil
}

// refreshNow sends the refresh of a schedule. It returns the running one, if any.
func (s *System) refreshNow(ctx context.Context, name string) (string, error) {
	cfg := s.cfg().Proxies
	from, every := s.Sources(), cfg.RefreshEvery
	if number, one := strings.CutPrefix(name, refreshSchedule+"."); one {
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || n > len(cfg.Sources) {
			return "", tasks.Permanent(fmt.Errorf("no source %s in proxies.sources", number))
		}
		from, every = from[n-1:n], cfg.Sources[n-1].Every
	}
	run, err := s.proxies.Refresh(ctx, from...).Send(ctx, s.Client, tasks.Name(proxies.RefreshName), tasks.ProgressKeys(proxies.ProgressPrefix),
		tasks.Unique(proxies.ProgressPrefix, max(every, time.Minute)))
	if err != nil && !errors.Is(err, tasks.ErrDuplicate) {
		return "", err
	}
	return run.ID(), nil
}
