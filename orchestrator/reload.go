package orchestrator

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"

	"muster/jobs/agent"
	"muster/jobs/pipeline"
	"muster/orchestrator/access"
	"muster/orchestrator/config"
	"muster/sites"
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
	if _, err := access.NewGate(cfg.API.Keys, nil, nil); err != nil {
		return nil, err
	}
	if err := s.Agents.Reload(staticAgents(cfg.Agents.Static), cfg.Agents.Allow, agent.Limits{Concurrency: cfg.Agents.Concurrency, PerMinute: cfg.Agents.PerMinute}, cfg.Agents.HealthEvery); err != nil {
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
		texts[b.Site] = b.Error()
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
