package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks/metrics"
)

func TestServeMetrics(t *testing.T) {
	t.Parallel()
	cfg := setup(t)
	cfg.Metrics = metrics.Handler(metrics.NewProcess())
	cfg.Component, cfg.Listen = "worker", "0.0.0.0:0"
	if err := ServeMetrics(t.Context(), cfg); !errors.Is(err, ErrOpen) {
		t.Errorf("open to others without a key: %v", err)
	}
	cfg.Gate = gate(t, "a key that is long enough for tests")
	ready := make(chan string, 1)
	cfg.Listen, cfg.Ready = "127.0.0.1:0", func(url string) { ready <- url }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ServeMetrics(ctx, cfg) }()
	url := <-ready
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	r := testutil.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody))(t)
	r.Header.Set("Authorization", "Bearer a key that is long enough for tests")
	resp := testutil.Must(client.Do(r))(t)
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != 200 || !strings.Contains(string(body), "muster_worker_slots 0") {
		t.Errorf("%s: %d %v\n%s", url, resp.StatusCode, err, body)
	}
	for path, want := range map[string]string{"/health": `200 {"status":"healthy","component":"worker"`, "/ready": `200 {"ready":true`, "/metrics": "401 "} {
		resp := testutil.Must(client.Get(strings.TrimSuffix(url, "/metrics") + path))(t)
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if got := fmt.Sprintf("%d %s", resp.StatusCode, body); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s without a key: got %s (%v), want %s", path, got, err, want)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
