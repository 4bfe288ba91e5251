package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/jobs"
	"muster/orchestrator/api"
	"muster/orchestrator/config"
	"muster/proxies"
	"muster/sites"
	"muster/tasks"
)

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
		if every := from.EveryOr(0); every > 0 {
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
		from, every = from[n-1:n], cfg.Sources[n-1].EveryOr(0)
	}
	run, err := s.proxies.Refresh(ctx, from...).Send(ctx, s.Client, tasks.Name(proxies.RefreshName), tasks.ProgressKeys(proxies.ProgressPrefix),
		tasks.Unique(proxies.ProgressPrefix, max(every, time.Minute)))
	if err != nil && !errors.Is(err, tasks.ErrDuplicate) {
		return "", err
	}
	return run.ID(), nil
}
