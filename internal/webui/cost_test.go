package webui

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"muster/internal/testutil"
)

// The number of Redis commands per second is bounded, for any number of pages at any cost.
func TestExpensivePagesAreRenderedLessOften(t *testing.T) {
	t.Parallel()
	h := newHub(slog.New(slog.DiscardHandler), error.Error)
	var looks atomic.Int64
	const cost, wanted = 20, 4
	start := time.Now()
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		_, leave, err := h.join(key, "", httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), func(context.Context, *http.Request) ([]byte, int, error) {
			looks.Add(1)
			return []byte("x"), cost, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(leave)
	}
	testutil.Eventually(t, "the pages are rendered", func() bool { return looks.Load() >= wanted })
	if took, least := time.Since(start), (wanted-1)*cost*time.Second/maxCost; took < least {
		t.Errorf("%d renderings with cost %d took %v, want at least %v", wanted, cost, took, least)
	}
}
