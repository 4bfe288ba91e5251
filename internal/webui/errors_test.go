package webui

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A client that disconnects during a rendering does not cause an error.
func TestDisconnectIsNotAFailure(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := New(Config{May: func(*http.Request, Class) bool { return false }, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for left, want := range map[bool]string{false: "page failed", true: ""} {
		log.Reset()
		ctx, leave := context.WithCancel(t.Context())
		if left {
			leave()
		}
		w := httptest.NewRecorder()
		s.Fail(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil), context.Canceled)
		leave()
		if got := log.String(); !bytes.Contains(log.Bytes(), []byte(want)) || want == "" && (got != "" || w.Body.Len() > 0) {
			t.Errorf("left %v: got the log %q and %d bytes, want %q", left, got, w.Body.Len(), want)
		}
	}
}
