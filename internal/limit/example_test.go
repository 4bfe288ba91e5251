package limit_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"muster/internal/limit"
	"muster/internal/redistest"
)

// Slots are shared by all processes. A caller waits if none is free.
func ExampleKeyedLimiter() {
	rdb, end := redistest.Example() // programs use tasks.Connect
	defer end()
	ctx := context.Background()
	hosts := limit.NewKeyedLimiter(rdb, limit.KeyedConfig{Default: 4, PerKey: map[string]int{"slow.example": 1}})

	slot, err := hosts.Acquire(ctx, "slow.example")
	fmt.Println("first:", slot != nil, err)
	none, err := hosts.TryAcquire(ctx, "slow.example")
	fmt.Println("second:", none != nil, err)
	fmt.Println("released:", slot.Release(ctx), slot.Release(ctx)) // a second call does nothing
	again, err := hosts.TryAcquire(ctx, "slow.example")
	fmt.Println("third:", again != nil, err, again.Release(ctx))
	// Output:
	// first: true <nil>
	// second: false <nil>
	// released: <nil> <nil>
	// third: true <nil> <nil>
}

func ExampleTokenBucket() {
	rdb, end := redistest.Example()
	defer end()
	ctx := context.Background()
	b := limit.NewTokenBucket(rdb, limit.BucketConfig{Default: limit.Rate{Capacity: 3, PerSec: 0.001}})
	for range 4 {
		got, err := b.Take(ctx, "api.example", 1)
		fmt.Println(got.OK, got.Wait > 15*time.Minute, err)
	}
	// Output:
	// true false <nil>
	// true false <nil>
	// true false <nil>
	// false true <nil>
}

func ExampleBreaker() {
	rdb, end := redistest.Example()
	defer end()
	ctx := context.Background()
	b := limit.NewBreaker(rdb, limit.BreakerConfig{Threshold: 2, Logger: slog.New(slog.DiscardHandler)})
	for range 3 {
		permit, ok, wait, err := b.Allow(ctx, "broken.example")
		fmt.Println(ok, wait > 0, err)
		if ok {
			if err := permit.Failure(ctx, "503"); err != nil {
				panic(err)
			}
		}
	}
	// Output:
	// true false <nil>
	// true false <nil>
	// false true <nil>
}

// The first use is allowed immediately, the second one after the interval.
func ExamplePacer() {
	rdb, end := redistest.Example()
	defer end()
	ctx := context.Background()
	p := limit.NewPacer(rdb, limit.PacerConfig{Interval: time.Minute})
	for range 2 {
		wait, ok, err := p.Reserve(ctx, "api.example", 0)
		fmt.Println(ok, wait.Round(time.Minute), err)
	}
	// Output:
	// true 0s <nil>
	// false 1m0s <nil>
}
