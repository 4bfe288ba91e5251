package api

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"muster/orchestrator/access"
)

func callerContext(t *testing.T, name string) context.Context {
	t.Helper()
	return access.WithCaller(t.Context(), access.Caller{ID: name, Name: name, Role: access.Viewer})
}

// One caller cannot take the places of others, and all callers together have a limit.
func TestCallersShareWhatIsOpenAtATime(t *testing.T) {
	t.Parallel()
	s := newShares("streams", 5, 2)
	take := func(name string) (func(), bool) {
		release, err := s.take(callerContext(t, name))
		if p, ok := errors.AsType[*Problem](err); err != nil && (!ok || p.Status != http.StatusTooManyRequests) {
			t.Errorf("got %v, want a problem 429", err)
		}
		return release, err == nil
	}
	first, _ := take("a")
	for _, c := range []struct {
		name string
		want bool
	}{{"a", true}, {"a", false}, {"b", true}, {"b", true}, {"c", true}, {"d", false}} {
		if _, ok := take(c.name); ok != c.want {
			t.Errorf("a place for %s: got %v, want %v", c.name, ok, c.want)
		}
	}
	first()
	if _, ok := take("a"); !ok {
		t.Error("a place that was released is not free")
	}
}

// A caller sends few large bodies at a time; small ones are not limited.
func TestLargeBodiesAreLimitedPerCaller(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	began := make(chan struct{})
	h := Config{}.sized(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > maxBody || r.ContentLength < 0 {
			began <- struct{}{}
			<-end
		}
		w.WriteHeader(http.StatusOK)
	}))
	send := func(name string, length int64) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(callerContext(t, name), "POST", "/v1/jobs", strings.NewReader("{}"))
		r.ContentLength = length
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	var open sync.WaitGroup
	defer open.Wait()
	defer close(end)
	for i := range maxBodiesEach {
		open.Go(func() { send("a", []int64{maxBody + 1, -1}[i%2]) }) // -1: the length is unknown
		<-began
	}
	if w := send("a", maxBody+1); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("a large body more: got %d %s, want 429 with Retry-After", w.Code, w.Body)
	}
	if w := send("a", maxBody); w.Code != http.StatusOK {
		t.Errorf("a small body: got %d, want 200", w.Code)
	}
	open.Go(func() { send("b", maxBody+1) })
	<-began // another caller has separate slots
}
