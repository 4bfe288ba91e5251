// Package webuitest opens pages like browsers, to measure their load.
package webuitest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Open opens pages with a number of readers in total, who poll for a time as live.js does, and calls opened before their first
// poll. It returns the compressed size of the largest page and of all responses to polls.
func Open(tb testing.TB, h http.Handler, readers int, d time.Duration, opened func(), paths ...string) (page, polls int64) {
	tb.Helper()
	ctx := tb.Context()
	var total atomic.Int64
	get := func(path, tag string) http.Header {
		r := httptest.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, path, nil)
		r.Header.Set("Accept-Encoding", "gzip")
		if tag != "" {
			r.Header.Set("If-None-Match", tag)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		switch {
		case w.Code != http.StatusOK && w.Code != http.StatusNotModified:
			tb.Errorf("%s: got %d %.500s", path, w.Code, w.Body)
		case tag == "":
			page = max(page, int64(w.Body.Len()))
		default:
			total.Add(int64(w.Body.Len()))
		}
		return w.Header()
	}
	for _, path := range paths {
		get(path, "")
	}
	opened()
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var open sync.WaitGroup
	for i := range readers {
		open.Go(func() {
			path, tag, unchanged := paths[i%len(paths)], "none", 0
			pause := time.Second + time.Second*time.Duration(i)/time.Duration(readers)
			for {
				select {
				case <-ctx.Done():
					return
				case <-time.After(pause):
				}
				h := get(path, tag)
				if h.Get("ETag") != tag {
					tag, unchanged = h.Get("ETag"), 0
				} else {
					unchanged++
				}
				interval, _ := strconv.Atoi(h.Get("X-Poll-Interval"))
				pause = max(time.Duration(interval)*time.Second, min(time.Second+time.Duration(unchanged)*100*time.Millisecond, 2*time.Second))
			}
		})
	}
	open.Wait()
	return page, total.Load()
}
