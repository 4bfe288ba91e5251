package access

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/redistest"
)

// Whatever record of a key is damaged: it is accepted only as what it was, others are listed, accepted and revoked as
// before, and muster keys revoke removes it. Of another key, the error says which one to delete.
func TestKeysSurviveDamagedKeys(t *testing.T) {
	t.Parallel()
	redistest.EachDamage(t, "keys.go", map[string]func(Key) string{
		"record":   func(k Key) string { return newKeys().record(k.ID) },
		"index":    func(Key) string { return newKeys().index() },
		"audit":    func(Key) string { return newKeys().audit() },
		"volatile": func(Key) string { return newKeys().volatile() },
	}, []string{"newKeys", "prefix"}, damageKeys)
}

func damageKeys(t *testing.T, key func(Key) string, d redistest.Damage) {
	rdb, ctx := redistest.New(t), t.Context()
	k, clock := newStore(t, rdb)
	a := NewAudit(rdb, 0)
	hit, text := create(t, k, NewKey{Name: "hit", Role: Operator, Expires: clock.at.Add(time.Hour)})
	other, otherText := create(t, k, NewKey{Name: "other", Role: Viewer})
	if err := a.Add(ctx, Entry{Caller: "hit", Operation: "createJob"}); err != nil {
		t.Fatal(err)
	}
	damaged := key(hit)
	if damaged == newKeys().volatile() {
		if err := k.MarkVolatile(ctx); err != nil {
			t.Fatal(err)
		}
	}
	d.Do(t, rdb, damaged)

	k, _ = newStore(t, rdb) // a process that has read nothing yet
	if got, err := k.verify(ctx, text); damaged == newKeys().record(hit.ID) && err == nil {
		t.Errorf("got %+v, want the damaged key denied", got)
	}
	if _, err := k.verify(ctx, otherText); err != nil {
		t.Errorf("other key: %v", err)
	}
	var errs []error
	list, err := k.List(ctx)
	errs = append(errs, err)
	_, err = k.Revoke(ctx, other.ID)
	errs = append(errs, err)
	_, err = a.List(ctx, AuditFilter{})
	errs = append(errs, err, a.Add(ctx, Entry{Caller: "other"}))
	if damaged == newKeys().record(hit.ID) {
		if len(list) != 2 || list[0].State(clock.at) != "damaged" && list[1].State(clock.at) != "damaged" {
			t.Errorf("got %+v, want both keys, one of them damaged", list)
		}
		_, err = k.Revoke(ctx, hit.ID)
		errs = append(errs, err)
		if list, err = k.List(ctx); err != nil || len(list) != 1 || list[0].ID != other.ID {
			t.Errorf("after the key was revoked: got %+v, %v, want the other", list, err)
		}
	}
	for _, err := range errs {
		switch {
		case err == nil || damaged == newKeys().index() && errors.Is(err, ErrNoKey):
		case d.Name != "of another type" || !strings.Contains(err.Error(), "delete the key "+damaged):
			t.Errorf("got %q, want none, or one that says what to delete", err)
		}
	}
	if err := rdb.Del(ctx, damaged).Err(); err != nil {
		t.Fatal(err)
	}
	if _, text, err := k.Create(ctx, NewKey{Name: "new", Role: Admin}); err != nil {
		t.Errorf("a new key: %v", err)
	} else if _, err := k.verify(ctx, text); err != nil {
		t.Errorf("a new key: %v", err)
	}
}

// A time of a record that cannot be read is not taken for one that was never set: the key could be used again.
func TestKeyWithADamagedTimeIsDenied(t *testing.T) {
	t.Parallel()
	for _, field := range []string{"expires", "revoked"} {
		for _, d := range redistest.Damages[1:3] {
			t.Run(field+" "+d.Name, func(t *testing.T) {
				t.Parallel()
				rdb := redistest.New(t)
				k, clock := newStore(t, rdb)
				key, text := create(t, k, NewKey{Name: "one", Role: Admin, Expires: clock.at.Add(time.Hour)})
				if field == "revoked" {
					if _, err := k.Revoke(t.Context(), key.ID); err != nil {
						t.Fatal(err)
					}
				}
				d.Field(t, rdb, newKeys().record(key.ID), field)
				if got, err := k.verify(t.Context(), text); denied(err) == "" {
					t.Errorf("got %+v, %v, want it denied", got, err)
				}
			})
		}
	}
}

// A damaged record makes room for a new key like one that is revoked.
func TestDamagedKeyMakesRoom(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	k, _ := newStore(t, rdb)
	members := make([]redis.Z, maxKeys)
	for i := range members {
		members[i] = redis.Z{Score: float64(i + 1), Member: strings.Repeat("0", 8) + string(rune('a'+i%16)) + time.Duration(i).String()}
	}
	rdb.ZAdd(t.Context(), newKeys().index(), members...)
	create(t, k, NewKey{Name: "one", Role: Admin})
}
