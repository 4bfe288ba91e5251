package orchestrator

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"muster/orchestrator/config"
	"muster/orchestrator/monitor"
)

// The progress of a refresh counts individual candidates while some of them do not respond.
func TestRefreshProgressCountsProbes(t *testing.T) {
	t.Parallel()
	cfg, world := worldSettings(t)
	cfg.Proxies.Sources, cfg.Proxies.CheckTimeout = config.SourcesAt(world.Sources...), 2*time.Second
	var out bytes.Buffer
	display := monitor.New(&out, monitor.JSON)
	err := Run(t.Context(), cfg, Options{Display: display}, func(ctx context.Context, o *Orchestrator) error {
		_, err := o.Proxies.Refresh(ctx)
		return err
	})
	display.Close()
	if err != nil {
		t.Fatal(err)
	}
	partly := 0
	for dec := json.NewDecoder(&out); dec.More(); {
		var e monitor.Event
		if err := dec.Decode(&e); err != nil {
			t.Fatal(err)
		}
		if e.Total > 0 && (e.Total != int64(len(world.Proxies)) || e.Unit != "proxies") {
			t.Errorf("got a total of %d %s, want %d proxies", e.Total, e.Unit, len(world.Proxies))
		}
		if e.Event == "progress" && e.Done > 0 && e.Done < e.Total {
			partly++
		}
	}
	if partly == 0 {
		t.Errorf("got no event with partial progress, want at least one:\n%s", out.String())
	}
}
