package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/internal/logctx"
	"muster/jobs"
	"muster/proxies"
	"muster/tasks"
)

// proxyPages is the pool as the pages show and change it.
type proxyPages struct {
	*proxies.Pool
	system *System
}

// SourceNames are the sources of the settings in force.
func (p proxyPages) SourceNames() []string {
	var names []string
	for _, from := range p.system.Sources() {
		names = append(names, from.Label())
	}
	return names
}

// StartRefresh sends a refresh and returns its job, or the one that is under way.
func (p proxyPages) StartRefresh(ctx context.Context) (string, error) {
	if !p.system.cfg().Proxies.HasSources() {
		return "", proxies.ErrNoSources
	}
	id, err := p.send(ctx, p.system.Refresh(ctx), tasks.ProgressKeys(proxies.ProgressPrefix), tasks.Unique(proxies.ProgressPrefix, p.system.cfg().Wait.Unknown))
	if err == nil {
		p.system.track(ctx, id, jobs.KindRefresh, refreshName)
	}
	return id, err
}

// StartRecheck sends a check of the members that are due, or returns the one that is under way.
func (p proxyPages) StartRecheck(ctx context.Context) (string, error) {
	if err := p.canCheck(); err != nil {
		return "", err
	}
	return p.send(ctx, proxies.Recheck.S(proxies.RecheckInput{Archived: true}), tasks.Unique(recheckEntry, time.Hour))
}

// RecheckProxy sends a check of one proxy.
func (p proxyPages) RecheckProxy(ctx context.Context, k proxies.Known) (string, error) {
	if err := p.canCheck(); err != nil {
		return "", err
	}
	return p.send(ctx, p.system.proxies.RecheckOne(k))
}

func (p proxyPages) canCheck() error {
	if !p.system.cfg().Proxies.CanCheck() {
		return errors.New("proxies cannot be checked: no judge is in proxies.judges; see muster judge")
	}
	return nil
}

// send sends a workflow of the pool. One of the same name that is under way is no error.
func (p proxyPages) send(ctx context.Context, work tasks.Signature[proxies.Report], opts ...tasks.SendOption) (string, error) {
	run, err := work.Send(ctx, p.system.Client, append(opts, tasks.Headers(logctx.Headers(ctx)))...)
	if err != nil && !errors.Is(err, tasks.ErrDuplicate) {
		return "", fmt.Errorf("send it to the workers: %w", err)
	}
	return run.ID(), nil
}
