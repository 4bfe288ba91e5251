package orchestrator

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/orchestrator/config"
	"muster/orchestrator/monitor"
)

// The progress of a refresh counts individual candidates while some of them do not respond.
func TestRefreshProgressCountsProbes(t *testing.T) {
	t.Parallel()
	cfg, world := worldSettings(t)
	cfg.Proxies.Sources, cfg.Proxies.CheckTimeout = config.SourcesAt(world.Sources...), 5*time.Second
	var out bytes.Buffer
	display := monitor.New(&out, monitor.Lines)
	err := Run(t.Context(), cfg, Options{Display: display}, func(ctx context.Context, o *Orchestrator) error {
		_, err := o.Proxies.Refresh(ctx)
		return err
	})
	display.Close()
	testutil.Ok(t, err)
	partly := 0
	for _, m := range regexp.MustCompile(`(?m)^\[PROGRESS\] .*: (\d+)/(\d+) (\w+)`).FindAllStringSubmatch(out.String(), -1) {
		if m[2] != fmt.Sprint(len(world.Proxies)) || m[3] != "proxies" {
			t.Errorf("got a total of %s %s, want %d proxies", m[2], m[3], len(world.Proxies))
		}
		if m[1] != "0" && m[1] != m[2] {
			partly++
		}
	}
	if partly == 0 {
		t.Errorf("got no line with partial progress, want at least one:\n%s", out.String())
	}
}
