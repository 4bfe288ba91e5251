package orchestrator

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"muster/orchestrator/config"
	"muster/proxies"
	"muster/sites"
	"muster/tasks"
)

// recheckEntry is the schedule entry for the continuous check of the pool.
var recheckEntry = proxies.Recheck.Name()

// refreshEntry is the schedule entry for the refresh from all sources, and the prefix of the entries for single sources.
const refreshEntry = "proxies.refresh"

// runSchedule runs s, or the schedule with which Reload replaces it, until ctx is done.
func (o *Orchestrator) runSchedule(ctx context.Context, s *tasks.Scheduler) error {
	for {
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func(s *tasks.Scheduler) { ended <- s.Run(running) }(s) // s is replaced below
		select {
		case err := <-ended:
			stop()
			return err
		case s = <-o.schedules:
			stop()
			if err := <-ended; err != nil {
				return err
			}
		}
	}
}

// schedule returns the schedule of cfg for the sites of registry. Each tick is sent once, even if several orchestrators run
// the schedule.
func (o *Orchestrator) schedule(cfg config.Config, registry *sites.Registry) (*tasks.Scheduler, error) {
	scrapes := map[string]func(ctx context.Context, id string){} // by entry; called after its tick was sent
	s := tasks.NewScheduler(o.Client, tasks.SchedulerConfig{
		Logger: o.opts.Logger,
		Sent: func(name, id string) {
			if sent := scrapes[name]; sent != nil {
				sent(context.Background(), id)
			}
			level := slog.LevelInfo
			if name == recheckEntry { // every minute
				level = slog.LevelDebug
			}
			o.opts.Logger.Log(context.Background(), level, "scheduled job sent", "schedule", name, "job", id)
		},
	})
	if err := o.scheduleProxies(s, cfg.Proxies); err != nil {
		return nil, err
	}
	if err := o.scheduleScrapes(s, registry.Schedules(cfg.Sites.Schedule), registry, scrapes); err != nil {
		return nil, err
	}
	return s, nil
}

// scheduleProxies adds refreshes from all sources, refreshes of the sources with an interval, and the check of the members.
func (o *Orchestrator) scheduleProxies(s *tasks.Scheduler, cfg config.Proxies) error {
	add := func(name string, every time.Duration, refresh func() tasks.Work) error {
		return s.AddFunc(name, "@every "+every.String(), func(time.Time) tasks.Work { return refresh() },
			tasks.Name(proxies.RefreshName), tasks.ProgressKeys(proxies.ProgressPrefix), tasks.Unique(proxies.ProgressPrefix, every))
	}
	if every := cfg.RecheckEvery; every > 0 && cfg.CanCheck() {
		if err := s.AddFunc(recheckEntry, "@every "+every.String(), func(time.Time) tasks.Work { return proxies.Recheck.S(proxies.RecheckInput{}) },
			tasks.Unique(recheckEntry, time.Hour)); err != nil { // at most one at a time
			return err
		}
	}
	if cfg.RefreshEvery > 0 && cfg.HasSources() {
		if err := add(refreshEntry, cfg.RefreshEvery, func() tasks.Work { return o.Refresh(context.Background()) }); err != nil {
			return err
		}
	}
	for i, from := range cfg.Sources {
		every := from.EveryOr(0)
		if every <= 0 {
			continue
		}
		one := o.source(from)
		if err := add(fmt.Sprintf("%s.%d", refreshEntry, i+1), every, func() tasks.Work { return o.proxies.Refresh(context.Background(), one) }); err != nil {
			return err
		}
	}
	return nil
}

// scheduleScrapes adds the scrapes of sites. It sets sent[entry] to the function to call after the entry was sent.
func (o *Orchestrator) scheduleScrapes(s *tasks.Scheduler, specs map[string]string, registry *sites.Registry, sent map[string]func(context.Context, string)) error {
	order, err := registry.Order(slices.Sorted(maps.Keys(specs))...)
	if err != nil {
		return fmt.Errorf("sites.schedule: %w", err)
	}
	for _, name := range order { // dependencies first, if they are due at the same time
		spec, scheduled := specs[name]
		if _, err := registry.Definition(name); !scheduled || err != nil { // an invalid definition has been logged
			continue
		}
		entry := "scrape." + name
		var opts []tasks.ScheduleOption
		for _, o := range o.Sites.SendOptions(name) {
			opts = append(opts, o)
		}
		if err := s.AddFunc(entry, spec, func(time.Time) tasks.Work {
			work, whenSent, err := o.Sites.Scrape(context.Background(), name, sites.ScrapeOptions{})
			if err != nil {
				o.opts.Logger.Error("cannot scrape as scheduled", "site", name, "err", err)
				return nil
			}
			sent[entry] = whenSent
			return work
		}, opts...); err != nil {
			return err
		}
	}
	return nil
}
