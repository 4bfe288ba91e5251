package limit_test

import (
	"testing"

	"muster/tasks/limit"
	"muster/tasks/redistest"
)

func BenchmarkKeyedLimiter(b *testing.B) {
	rdb := redistest.Server(b).Client()
	slots := limit.NewKeyedLimiter(rdb, limit.KeyedConfig{Default: 2})
	redistest.Measured(b, rdb, func() {
		for range b.N {
			slot, err := slots.Acquire(b.Context(), "host:a")
			if err != nil {
				b.Fatal(err)
			}
			if err := slot.Release(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkTokenBucket(b *testing.B) {
	rdb := redistest.Server(b).Client()
	bucket := limit.NewTokenBucket(rdb, limit.BucketConfig{Default: limit.Rate{Capacity: 1e9, PerSec: 1e9}})
	redistest.Measured(b, rdb, func() {
		for range b.N {
			if _, err := bucket.Take(b.Context(), "host:a", 1); err != nil {
				b.Fatal(err)
			}
		}
	})
}
