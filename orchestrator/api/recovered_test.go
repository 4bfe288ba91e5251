package api

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"muster/internal/testutil"
)

// A panic leads to a problem as response; a response that has begun is aborted.
func TestPanicIsAnsweredAndLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	cfg := Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}.withDefaults()
	served := newRoutes()
	served.handle("GET /{x}", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a bug") }))
	served.handle("GET /begun", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		panic("a bug")
	}))
	h := testutil.Must(cfg.layered(served))(t)
	w := ask(t, h, "GET", "/a-secret", header("X-Request-Id", "r-1"))
	if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), `"status":500`) {
		t.Errorf("got %d %s, want a problem 500", w.Code, w.Body)
	}
	for _, want := range []string{"request_id=r-1", `route="GET /{x}"`, "panic=\"a bug\"", "recovered_test.go"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %s: %s", want, log.String())
		}
	}
	defer func() {
		if got := recover(); got != http.ErrAbortHandler {
			t.Errorf("the incomplete response ended with %v, want http.ErrAbortHandler", got)
		}
	}()
	ask(t, h, "GET", "/begun")
}
