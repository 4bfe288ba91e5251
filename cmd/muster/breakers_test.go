package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/limit"
	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/orchestrator/api/client"
)

// Breakers of sites, hosts and agents are listed and reset, by key or by name.
func TestBreakersAreListedAndReset(t *testing.T) {
	t.Parallel()
	address, dir := redistest.URL(t), t.TempDir()
	opts := testutil.Must(redis.ParseURL(address))(t)
	rdb := redis.NewClient(opts)
	t.Cleanup(func() { _ = rdb.Close() })
	muster := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		var out, errs bytes.Buffer
		args = append([]string{"muster", "breakers"}, args...)
		code := run(t.Context(), environment{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, hard: t.Context()}, append(args, "--redis", address, "--data-dir", dir, "--config", ""))
		if code != want {
			t.Fatalf("%q: got exit code %d, want %d: %s%s", args, code, want, &out, &errs)
		}
		return out.String(), errs.String()
	}
	if got, _ := muster(0, "list"); !strings.Contains(got, "All breakers are closed") {
		t.Errorf("got %s, want none", got)
	}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	for key, namespace := range map[string]string{"shop@shop.example": "", "news@news.example": "", "host:files.example": "", "agent:a1": "muster:agents"} {
		b := limit.NewBreaker(rdb, limit.BreakerConfig{Namespace: namespace, Threshold: 1, Logger: quiet})
		permit, _, _, err := b.Allow(t.Context(), key)
		if err == nil {
			err = permit.Failure(t.Context(), "502 Bad Gateway")
		}
		if err == nil {
			_, _, _, err = b.Allow(t.Context(), key)
		}
		testutil.Ok(t, err)
	}
	keys := func() []string {
		t.Helper()
		var list client.Page[limit.BreakerState]
		out, _ := muster(0, "list", "--json")
		testutil.Ok(t, json.Unmarshal([]byte(out), &list))
		var keys []string
		for _, s := range list.Data {
			keys = append(keys, s.Key)
			if s.State != "open" || s.Blocked != 1 {
				t.Errorf("got %+v, want it open with 1 blocked", s)
			}
		}
		return slices.Sorted(slices.Values(keys))
	}
	if got, want := keys(), []string{"agent:a1", "host:files.example", "news@news.example", "shop@shop.example"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, _ := muster(0, "list"); !strings.Contains(got, "502 Bad Gateway") || !strings.Contains(got, "host:files.example  open ") {
		t.Errorf("got %s, want a table", got)
	}
	if _, got := muster(1, "reset", "nowhere"); !strings.Contains(got, "breaker nowhere: no open breaker with this name") {
		t.Errorf("got %s", got)
	}
	for _, wrong := range [][]string{{"reset"}, {"reset", "--all", "shop"}} {
		if _, got := muster(2, wrong...); !strings.Contains(got, "--all") {
			t.Errorf("%q: got %s", wrong, got)
		}
	}
	muster(0, "reset", "shop", "files.example", "shop@shop.example")
	if got, want := keys(), []string{"agent:a1", "news@news.example"}; !slices.Equal(got, want) {
		t.Errorf("after a reset by name: got %q, want %q", got, want)
	}
	muster(0, "reset", "--all", "--json")
	if got := keys(); len(got) != 0 {
		t.Errorf("after a reset of all: got %q, want none", got)
	}
}
