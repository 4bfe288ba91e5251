package api

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"muster/internal/redistest"
)

// Errors of a request whose client disconnected are not logged as failures; others are.
func TestRequestsWhoseClientHasGoneAreNotLoggedAsFailures(t *testing.T) {
	t.Parallel()
	for _, gone := range []bool{true, false} {
		cfg := served(t)
		var out bytes.Buffer
		cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
		ctx, cancel := context.WithCancel(t.Context())
		if gone {
			cancel()
		}
		broken := redistest.NewFault(redistest.Refused, redistest.EveryCall)
		broken.Arm()
		cfg.Client.Redis().AddHook(broken)
		ask(t, handler(t, cfg), http.MethodGet, "/jobs", func(r *http.Request) { *r = *r.WithContext(ctx) })
		if logged := strings.Contains(out.String(), "a request failed"); logged == gone {
			t.Errorf("client gone %v: logged %v\n%s", gone, logged, out.String())
		}
		cancel()
	}
}
