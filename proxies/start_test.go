package proxies

import (
	"context"
	"errors"
	"testing"

	"muster/internal/testutil"
	"muster/proxies/source"
	"muster/tasks"
	"muster/tasks/redistest"
)

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
		return s.RecheckProxy(ctx, Member{Proxy: Proxy{Protocol: "http", Host: "192.0.2.1", Port: 80}})
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
