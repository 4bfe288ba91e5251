package store

import (
	"context"
	"strings"
	"testing"
	"time"

	"muster/tasks/redistest"
)

// A damaged key of the store does not block the lock, or the error names the key to delete.
func TestStoreSurvivesDamagedKeys(t *testing.T) {
	t.Parallel()
	redistest.EachDamage(t, "keys.go", map[string]string{"schemaKey": schemaKey, "FenceKey": FenceKey("test")}, nil, damageStore)
}

func damageStore(t *testing.T, key string, d redistest.Damage) {
	rdb, ctx := redistest.New(t), t.Context()
	fill(t, rdb)
	s := New(rdb, moves(), nil)
	if err := s.Open(ctx); err != nil {
		t.Fatal(err)
	}
	hold := func() error {
		return hold(ctx, s, func(ctx context.Context, l *Lock) error { return l.Claim(ctx, "test") })
	}
	for range 10 { // so that what is left of a number that was cut is a smaller one
		if err := hold(); err != nil {
			t.Fatal(err)
		}
	}
	s.Lease = time.Millisecond
	if _, err := s.acquire(ctx, func() (bool, error) { return false, nil }); err != nil { // a process that was killed
		t.Fatal(err)
	}
	d.Do(t, rdb, key)
	mend := func(err error) {
		if err == nil {
			return
		}
		text := err.Error()
		switch {
		case d.Name == "of another type" && strings.Contains(text, "delete the key "+key):
			rdb.Del(ctx, key)
		case key == schemaKey && strings.Contains(text, "delete the field version of the key "+key):
			rdb.HDel(ctx, key, "version")
		default:
			t.Errorf("got %q, want none, or one that says what to do", text)
		}
	}
	s.Lease = time.Minute
	mend(hold())
	mend(s.Open(ctx))
	if _, err := s.Status(ctx); err != nil {
		t.Error(err)
	}
	if err := hold(); err != nil {
		t.Error(err)
	}
	if err := s.Open(ctx); err != nil {
		t.Error(err)
	}
	isMigrated(t, rdb)
}
