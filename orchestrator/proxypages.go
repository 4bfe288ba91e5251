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

// proxyPages implements the proxy operations of the API and the pages.
type proxyPages struct {
	*proxies.Pool
	system *System
}

// SourceNames returns the labels of the configured sources.
func (p proxyPages) SourceNames() []string {
	var names []string
	for _, from := range p.system.Sources() {
		names = append(names, from.Label())
	}
	return names
}

// StartRefresh sends a refresh and returns its job ID, or the ID of the running refresh.
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

// StartRecheck sends a check of the members that are due, and returns its ID or the ID of the running check.
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
		return errors.New("check proxies: proxies.judges is empty; see muster judge")
	}
	return nil
}

// send sends a workflow of the pool. It returns the ID of a running duplicate instead of an error.
func (p proxyPages) send(ctx context.Context, work tasks.Signature[proxies.Report], opts ...tasks.SendOption) (string, error) {
	run, err := work.Send(ctx, p.system.Client, append(opts, tasks.Headers(logctx.Headers(ctx)))...)
	if err != nil && !errors.Is(err, tasks.ErrDuplicate) {
		return "", fmt.Errorf("send the workflow: %w", err)
	}
	return run.ID(), nil
}
