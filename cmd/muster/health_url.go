package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"muster/internal/clip"
)

// probeTime is the timeout of an HTTP health check. It is below the timeout of the container's health check.
const probeTime = 5 * time.Second

// probeURL wants the status 200 from a URL.
func probeURL(ctx context.Context, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return usageError{fmt.Errorf("--url %.200q: give an http or https URL, as in http://localhost:8000/health", address)}
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return usageError{fmt.Errorf("--url: %w", err)}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("not healthy: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err != nil {
		return fmt.Errorf("not healthy: read the response of %s: %w", u.Redacted(), err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("not healthy: %s returned %s: %s", u.Redacted(), resp.Status, clip.Line(string(body), 300))
	}
	return nil
}
