package event

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/tasks/redistest"
)

func TestAddedEventsAreInTheStreamOfAll(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		s := New(rdb)
		first, err := s.Add(t.Context(), "site.unhealthy", "j1", "j1", map[string]string{"site": "shop.example"})
		if err != nil {
			t.Fatal(err)
		}
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

// Without an endpoint there is no outbox, and events cost nothing more.
func TestOutboxIsWrittenOnlyWhileThereIsOne(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		s := New(rdb)
		if _, err := s.Add(t.Context(), "site.unhealthy", "", "", nil); err != nil {
			t.Fatal(err)
		}
		if n := rdb.Exists(t.Context(), OutboxKey()).Val(); n != 0 {
			t.Fatal("got an outbox, want none")
		}
		// An outbox that has been emptied is still one.
		if err := rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: OutboxKey(), ID: "1-1", Values: []any{"id", ""}}).Err(); err != nil {
			t.Fatal(err)
		}
		if err := rdb.XDel(t.Context(), OutboxKey(), "1-1").Err(); err != nil {
			t.Fatal(err)
		}
		id, err := s.Add(t.Context(), "site.recovered", "", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := rdb.XRange(t.Context(), OutboxKey(), "-", "+").Result()
		if err != nil || len(got) != 1 || got[0].Values["id"] != id || got[0].Values["type"] != "site.recovered" {
			t.Errorf("got the outbox %v, %v, want the event %s", got, err, id)
		}
	})
}
