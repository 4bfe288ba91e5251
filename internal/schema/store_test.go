package schema

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// moved is the script of the test migrations: it moves a member of a list per call.
var moved = redis.NewScript(`
if redis.call("GET", KEYS[1]) ~= ARGV[1] then return redis.error_reply("FENCED") end
local v = redis.call("LPOP", KEYS[2])
if not v then return 0 end
redis.call("RPUSH", KEYS[3], v .. ARGV[2])
return 1`)

const (
	listOne   = "muster:{test}:one"
	listTwo   = "muster:{test}:two"
	listThree = "muster:{test}:three"
)

// move returns a migration that moves the members of a list and adds a mark to each.
func move(version int, from, to, mark string) Migration {
	return Migration{
		Version: version, Name: "move " + from, Slots: []string{"test"},
		Run: func(ctx context.Context, rdb redis.UniversalClient, lock *Lock) error {
			for {
				n, err := moved.Run(ctx, rdb, []string{FenceKey("test"), from, to}, lock.Token(), mark).Int()
				if err != nil || n == 0 {
					return err
				}
			}
		},
	}
}

func moves() []Migration {
	return []Migration{move(1, listOne, listTwo, "a"), move(2, listTwo, listThree, "b")}
}

func fill(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	if err := rdb.RPush(t.Context(), listOne, 1, 2, 3).Err(); err != nil {
		t.Fatal(err)
	}
}

// isMigrated checks that both migrations ran once.
func isMigrated(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	got, err := rdb.LRange(t.Context(), listThree, 0, -1).Result()
	if want := "[1ab 2ab 3ab]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("got %v, %v, want %s", got, err, want)
	}
	if v, err := New(rdb, moves(), nil).Version(t.Context()); err != nil || v != 2 {
		t.Errorf("got schema %d, %v, want 2", v, err)
	}
}

func TestOpenMigratesAnOlderStore(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		fill(t, rdb)
		if err := New(rdb, moves()[:1], nil).Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if v, err := New(rdb, moves(), nil).Version(t.Context()); err != nil || v != 1 {
			t.Errorf("got schema %d, %v, want 1", v, err)
		}
		if err := New(rdb, moves(), nil).Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		isMigrated(t, rdb)
	})
}

func TestFreshStoreGetsTheSchema(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		s := New(rdb, moves(), nil)
		if err := s.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if v, err := s.Version(t.Context()); err != nil || v != 2 {
			t.Errorf("got schema %d, %v, want 2", v, err)
		}
	})
}

// Without missing migrations, Open sends one read command.
func TestOpenOfACurrentStoreIsOneCommand(t *testing.T) {
	t.Parallel()
	f := redistest.NewFault(redistest.Refused, 0)
	rdb := f.Client(t, redistest.URL(t))
	if err := New(rdb, moves(), nil).Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.Arm()
	if err := New(rdb, moves(), nil).Open(t.Context()); err != nil {
		t.Fatal(err)
	}
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
		if err := rdb.HSet(t.Context(), schemaKey, "version", version).Err(); err != nil {
			t.Fatal(err)
		}
		s := New(rdb, moves(), nil)
		err := s.Open(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("schema %q: got %v, want %q", version, err, want)
		}
		if newer := new(NewerError); version == "3" && (!errors.As(err, &newer) || newer.Have != 3 || newer.Know != 2) {
			t.Errorf("got %#v, want a *NewerError of 3 and 2", err)
		}
	}
}

// Processes that start concurrently migrate once, and none continues before the migration is complete.
func TestProcessesThatStartAtOnceMigrateOnce(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		fill(t, rdb)
		var runs atomic.Int64
		list := moves()
		run := list[0].Run
		list[0].Run = func(ctx context.Context, rdb redis.UniversalClient, lock *Lock) error {
			runs.Add(1)
			return run(ctx, rdb, lock)
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
		if done = err == nil; !done && !errors.Is(err, redistest.ErrFault) && !errors.Is(err, ErrLost) {
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

// A process that was frozen during a migration cannot change data after another process has taken over.
func TestFrozenMigratorChangesNothingAfterAnother(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]string{"redis": redistest.URL(t), "miniredis": redistest.MiniURL(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.NewFault(redistest.Refused, 0).Client(t, address)
			fill(t, rdb)
			f := redistest.NewFault(redistest.Frozen, 1)
			frozen := f.Client(t, address)
			list := moves()
			run := list[0].Run
			start := make(chan bool)
			list[0].Run = func(ctx context.Context, rdb redis.UniversalClient, lock *Lock) error {
				f.Arm()
				start <- true
				return run(ctx, rdb, lock)
			}
			first := New(frozen, list, nil)
			first.Lease = time.Second
			done := make(chan error, 1)
			go func() { done <- first.Open(context.Background()) }()
			<-start
			if err := New(rdb, moves(), nil).Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			isMigrated(t, rdb)
			// Data in the older format, which the frozen process would move.
			if err := rdb.RPush(t.Context(), listOne, "new").Err(); err != nil {
				t.Fatal(err)
			}
			f.Release()
			if err := <-done; !errors.Is(err, ErrLost) {
				t.Errorf("got %v, want %v", err, ErrLost)
			}
			isMigrated(t, rdb)
			if n, err := rdb.LLen(t.Context(), listOne).Result(); err != nil || n != 1 {
				t.Errorf("got %d members of the first list, %v, want the new one", n, err)
			}
		})
	}
}

// hold calls fn with the lock of a store.
func hold(ctx context.Context, s *Store, fn func(context.Context, *Lock) error) error {
	l, err := s.acquire(ctx, func() (bool, error) { return false, nil })
	if err != nil {
		return err
	}
	return l.run(ctx, fn)
}

// The lock has one holder at a time, is renewed during its work, and contains its name.
func TestLockHasOneHolder(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		s := New(rdb, moves(), nil)
		s.Lease = time.Second
		var inside, most atomic.Int64
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				err := hold(context.Background(), s, func(ctx context.Context, _ *Lock) error {
					most.Store(max(most.Load(), inside.Add(1)))
					defer inside.Add(-1)
					first := until(t, rdb)
					testutil.Eventually(t, "it is held longer than its lease", func() bool {
						now, err := rdb.Time(context.Background()).Result()
						if err != nil {
							t.Error(err)
						}
						return now.UnixMilli() > first
					})
					return context.Cause(ctx)
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := most.Load(); n != 1 {
			t.Errorf("%d held the lock at once, want 1", n)
		}
	})
}

// until returns the expiry of the lock in Unix ms.
func until(t *testing.T, rdb redis.UniversalClient) int64 {
	n, err := rdb.HGet(context.Background(), schemaKey, "until").Int64()
	if err != nil {
		t.Error(err)
	}
	return n
}

// logSignal is a log writer that signals each write.
type logSignal chan struct{}

func (c logSignal) Write(p []byte) (int, error) {
	c <- struct{}{}
	return len(p), nil
}

// A process that waits for the lock logs it, and stops with its context.
func TestWaitForTheLockEndsWithItsContext(t *testing.T) {
	t.Parallel()
	rdb := redistest.Mini(t)
	logged := make(logSignal, 1)
	err := hold(t.Context(), New(rdb, moves(), nil), func(ctx context.Context, _ *Lock) error {
		waiting, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- New(rdb, moves(), slog.New(slog.NewTextHandler(logged, nil))).Open(waiting) }()
		<-logged
		stop()
		return <-done
	})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "which migrates the store") {
		t.Errorf("got %v, want an error with the process", err)
	}
}
