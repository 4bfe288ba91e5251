package orchestrator

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"

	"muster/jobs/pipeline"
	"muster/orchestrator/access"
	"muster/orchestrator/config"
	"muster/sites"
	"muster/tasks"
)

// Watch calls apply with new settings, one call at a time, until ctx is done. Apply
// returns what has changed besides the settings, or an error if nothing has.
type Watch func(ctx context.Context, apply func(config.Config) (changed []string, err error))

// Reload applies those of the settings that take effect without a restart, and
// reads the definitions of sites and pipelines again. Tasks, jobs and requests
// that are under way continue. It returns which sites and pipelines have changed.
// On an error nothing has changed. Calls must follow one another.
func (o *Orchestrator) Reload(cfg config.Config) (changed []string, err error) {
	var schedule *tasks.Scheduler
	before := o.Config()
	changed, err = reload(o.System, cfg, func(registry *sites.Registry) (err error) {
		schedule, err = o.schedule(cfg, registry)
		return err
	})
	if err != nil {
		return nil, err
	}
	if !o.opts.Reuse {
		o.logBroken()
	}
	if len(changed) > 0 || scheduled(before) != scheduled(cfg) {
		select {
		case <-o.schedules: // one that Serve has not taken yet
		default:
		}
		o.schedules <- schedule
	}
	o.reloading.Lock()
	defer o.reloading.Unlock()
	for _, fn := range o.onReload {
		fn(cfg)
	}
	if err := o.Workers.reload(cfg); err != nil { // all else is in force
		o.opts.Logger.Error("worker processes keep the settings that they have", "err", err)
	}
	return changed, nil
}

// OnReload calls fn with the settings whenever Reload has applied some.
func (o *Orchestrator) OnReload(fn func(config.Config)) {
	o.reloading.Lock()
	defer o.reloading.Unlock()
	o.onReload = append(o.onReload, fn)
}

// scheduled is what the schedule depends on, besides the sites.
func scheduled(cfg config.Config) string {
	return fmt.Sprint(cfg.Sites.Schedule, cfg.Proxies.RefreshEvery, cfg.Proxies.RecheckEvery)
}

// reload is Orchestrator.Reload for the parts that each process has. Check returns
// an error if the process cannot use the sites.
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
	if err := s.Agents.Reload(staticAgents(cfg.Agents.Static), cfg.Agents.Allow, cfg.Agents.HealthEvery); err != nil {
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

// Watch lets w call Reload until stop is called, or ctx is done. A nil w does nothing.
func (o *Orchestrator) Watch(ctx context.Context, w Watch) (stop func()) {
	return w.start(ctx, o.Reload)
}

// watchSystem lets w reload a system. Then is called after each time.
func watchSystem(ctx context.Context, s *System, w Watch, then func(config.Config)) (stop func()) {
	return w.start(ctx, func(cfg config.Config) ([]string, error) {
		changed, err := reload(s, cfg, anySites)
		if err == nil {
			then(cfg)
		}
		return changed, err
	})
}

// start runs w until stop is called, or ctx is done.
func (w Watch) start(ctx context.Context, apply func(config.Config) ([]string, error)) (stop func()) {
	if w == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w(ctx, apply)
	}()
	return func() { cancel(); <-ended }
}

// inForce are the settings of a process, which reload replaces.
type inForce struct{ settings atomic.Pointer[config.Config] }

func (f *inForce) cfg() *config.Config { return f.settings.Load() }

// Config returns the settings in force.
func (f *inForce) Config() config.Config { return *f.cfg() }

// anySites is a check of reload for processes without a schedule.
func anySites(*sites.Registry) error { return nil }

// siteTexts returns the definition of each site, or what is wrong with it.
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

// pipelineTexts returns what each pipeline says, or what is wrong with it.
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

// changes names the members of two sets that differ.
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
