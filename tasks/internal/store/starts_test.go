package store_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/tasks/internal/store"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// No period has more starts than the limit, wherever it begins.
func TestRate(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		const n, per = 4, 40 * time.Millisecond
		s := store.New(rdb, store.DefaultNamespace)
		var before, after []time.Time
		for len(after) < 8*n {
			asked := time.Now()
			wait, err := s.Starts.Allow(t.Context(), "a.task", n, per)
			if err != nil {
				t.Fatal(err)
			}
			if wait > 0 {
				<-time.After(wait)
				continue
			}
			before, after = append(before, asked), append(after, time.Now())
		}
		for i := n; i < len(after); i++ {
			// Redis counted each start between the two times.
			if d := after[i].Sub(before[i-n]); d < per {
				t.Errorf("start %d came at most %v after start %d, want %d in %v", i, d, i-n, n, per)
			}
		}
	})
}

// Callers over a limit get different retry times, and the keys expire.
func TestRateSpreadsThoseOverIt(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		const n, per = 5, time.Minute
		s := store.New(rdb, store.DefaultNamespace)
		var told []time.Duration
		for range 2 * n {
			wait, err := s.Starts.Allow(t.Context(), "a.{odd} task", n, per)
			if err != nil {
				t.Fatal(err)
			}
			told = append(told, wait)
		}
		if told[n-1] != 0 || told[n] == 0 || told[n] > per {
			t.Errorf("got the times %v, want %d starts and the next ones within %v", told, n, per)
		}
		for i := n + 1; i < 2*n; i++ {
			if told[i] < told[i-1]+per/n/2 {
				t.Errorf("got the times %v, want them %v apart", told[n:], per/n)
			}
		}
		keys := 0
		for _, name := range []string{"starts", "told"} {
			if ttl := rdb.PTTL(t.Context(), "muster:{rate:a.{odd} task}:"+name).Val(); ttl > 0 && ttl < 3*per {
				keys++
			}
		}
		if keys != 2 {
			t.Errorf("%d keys expire soon, want two", keys)
		}
	})
}

// A limit of very many starts holds too, and remembers a bounded number of them.
func TestRateOfMany(t *testing.T) {
	t.Parallel()
	rdb := redistest.Mini(t)
	s := store.New(rdb, store.DefaultNamespace)
	began := 0
	for range 3000 {
		wait, err := s.Starts.Allow(t.Context(), "many", 5000, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if wait == 0 {
			began++
		}
	}
	if n := rdb.LLen(t.Context(), "muster:{rate:many}:starts").Val(); began != 1000 || n != 1000 {
		t.Errorf("%d starts of 5000 an hour at once, %d remembered; want a fifth of them", began, n)
	}
}
