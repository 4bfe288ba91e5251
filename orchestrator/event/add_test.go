package event

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
)

func TestAddedEventsAreInTheStreamOfAll(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		s := New(rdb)
		first := testutil.Must(s.Add(t.Context(), "site.unhealthy", "j1", "j1", map[string]string{"site": "shop.example"}))(t)
		again, err := s.Add(t.Context(), "site.unhealthy", "j1", "j1", map[string]string{"site": "other"})
		if err != nil || again != first {
			t.Errorf("added again: got %s, %v, want %s", again, err, first)
		}
		second, err := s.Add(t.Context(), "site.recovered", "j1", "j1", nil)
		if err != nil || second == first {
			t.Errorf("another type: got %s, %v, want another event", second, err)
		}
		b, err := s.Read(t.Context(), "", "0-0", 10, 0)
		if err != nil || ids(b) != first+" "+second || string(b.Events[0].Data) != `{"site":"shop.example"}` || b.Events[0].Job != "j1" {
			t.Errorf("got %+v, %v, want the two events", b.Events, err)
		}
	})
}

// Events that the relay of webhooks has not passed on are not trimmed.
func TestEventsAreKeptForWebhooks(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		s := New(rdb)
		for _, relayed := range []bool{true, false} {
			testutil.Ok(t, rdb.Del(t.Context(), RelayedKey(), AllKey()).Err())
			if relayed {
				testutil.Ok(t, rdb.Set(t.Context(), RelayedKey(), "0-0", 0).Err())
			}
			for range 13 {
				if _, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
					for range 1000 {
						p.XAdd(t.Context(), &redis.XAddArgs{Stream: AllKey(), Values: []any{"type", "job.created", "at", 1}})
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			testutil.Must(s.Add(t.Context(), "site.recovered", "", "", nil))(t)
			n := rdb.XLen(t.Context(), AllKey()).Val()
			if relayed && n != 13001 || !relayed && n > Keep+200 {
				t.Errorf("with webhooks %v: got %d events, want all, or some %d without", relayed, n, Keep)
			}
		}
	})
}
