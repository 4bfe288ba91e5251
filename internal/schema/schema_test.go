package schema

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const (
	listOne   = "muster:{test}:one"
	listTwo   = "muster:{test}:two"
	listThree = "muster:{test}:three"
)

// move returns a migration that moves the members of a list, one per command.
func move(version int, from, to string) Migration {
	return Migration{Version: version, Name: "move " + from, Run: func(ctx context.Context, rdb redis.UniversalClient) error {
		for {
			if err := rdb.LMove(ctx, from, to, "LEFT", "RIGHT").Err(); errors.Is(err, redis.Nil) {
				return nil
			} else if err != nil {
				return err
			}
		}
	}}
}

func moves() []Migration { return []Migration{move(1, listOne, listTwo), move(2, listTwo, listThree)} }

func fill(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	testutil.Ok(t, rdb.RPush(t.Context(), listOne, 1, 2, 3).Err())
}

// isMigrated checks that all migrations have run.
func isMigrated(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	got, err := rdb.LRange(t.Context(), listThree, 0, -1).Result()
	if err != nil || fmt.Sprint(got) != "[1 2 3]" {
		t.Errorf("got %v, %v, want [1 2 3]", got, err)
	}
	if v, err := New(rdb, moves(), nil).Version(t.Context()); err != nil || v != 2 {
		t.Errorf("got schema %d, %v, want 2", v, err)
	}
}

// Processes that start concurrently on an older store migrate once, and none continues before the migration is complete.
func TestProcessesThatStartAtOnceMigrateOnce(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		fill(t, rdb)
		testutil.Ok(t, New(rdb, moves()[:1], nil).Open(t.Context()))
		var runs atomic.Int64
		list := moves()
		run := list[1].Run
		list[1].Run = func(ctx context.Context, rdb redis.UniversalClient) error {
			runs.Add(1)
			return run(ctx, rdb)
		}
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				if err := New(rdb, list, nil).Open(context.Background()); err != nil {
					t.Error(err)
				}
				if n, err := rdb.LLen(context.Background(), listThree).Result(); err != nil || n != 3 {
					t.Errorf("open: got %d members, %v, want all migrated before", n, err)
				}
			})
		}
		all.Wait()
		isMigrated(t, rdb)
		if n := runs.Load(); n != 1 {
			t.Errorf("the migration ran %d times, want 1", n)
		}
	})
}

// Without missing migrations, Open sends one read command.
func TestOpenOfACurrentStoreIsOneCommand(t *testing.T) {
	t.Parallel()
	f := redistest.NewFault(redistest.Refused, 0)
	rdb := f.Client(t, redistest.URL(t))
	testutil.Ok(t, New(rdb, moves(), nil).Open(t.Context()))
	f.Arm()
	testutil.Ok(t, New(rdb, moves(), nil).Open(t.Context()))
	if n := f.Calls(); n != 1 {
		t.Errorf("got %d commands, want 1", n)
	}
}

func TestStoreOfAnotherSchemaIsRejected(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"3":    "has schema 3, written by a newer release; this one knows 2: upgrade this program",
		"text": "is it the right Redis?",
		"-1":   "is it the right Redis?",
	} {
		rdb := redistest.Mini(t)
		testutil.Ok(t, rdb.HSet(t.Context(), schemaKey, "version", version).Err())
		err := New(rdb, moves(), nil).Open(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("schema %q: got %v, want %q", version, err, want)
		}
		if newer := new(NewerError); version == "3" && (!errors.As(err, &newer) || newer.Have != 3 || newer.Know != 2) {
			t.Errorf("got %#v, want a *NewerError of 3 and 2", err)
		}
	}
}

// If a process dies at any point of a migration, the next process completes it.
func TestMigrationIsCompletedAfterADeath(t *testing.T) {
	t.Parallel()
	for calls, done := 1, false; !done; calls++ {
		address := redistest.MiniURL(t)
		rdb := redistest.NewFault(redistest.Refused, 0).Client(t, address)
		fill(t, rdb)
		f := redistest.NewFault(redistest.CrashAfter, calls)
		f.Arm()
		s := New(f.Client(t, address), moves(), nil)
		s.Lease = 50 * time.Millisecond
		err := s.Open(t.Context())
		if done = err == nil; !done && !errors.Is(err, redistest.ErrFault) {
			t.Fatalf("after %d calls: got %v, want the error of the dead process", calls, err)
		}
		if calls > 100 {
			t.Fatal("the process does not stop")
		}
		if err := New(rdb, moves(), nil).Open(t.Context()); err != nil {
			t.Fatalf("after %d calls: %v", calls, err)
		}
		isMigrated(t, rdb)
	}
}

// A process that waits for the lock stops with its context, and names the process that holds the lock.
func TestWaitForTheLockEndsWithItsContext(t *testing.T) {
	t.Parallel()
	rdb := redistest.Mini(t)
	testutil.Ok(t, rdb.Set(t.Context(), lockKey, "other.1", 0).Err())
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	err := New(rdb, moves(), nil).Open(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "wait for process other.1, which migrates the store") {
		t.Errorf("got %v, want an error with the process", err)
	}
}
