package event

import (
	"strings"
	"testing"

	"muster/tasks/redistest"
)

// Whatever key of events is damaged: events are read and added as far as their own streams allow, and of a key of another
// type the error says that it must be deleted.
func TestStreamSurvivesDamagedKeys(t *testing.T) {
	t.Parallel()
	redistest.EachDamage(t, "keys.go", map[string]string{
		"AllKey": AllKey(), "JobKey": JobKey("a"), "OutboxKey": OutboxKey(), "onceKey": onceKey("agent.lost once"),
	}, []string{"prefix"}, damageStream)
}

func damageStream(t *testing.T, key string, d redistest.Damage) {
	rdb, ctx := redistest.New(t), t.Context()
	s := New(rdb)
	add(t, rdb, "10-1", "a", 100)
	if err := rdb.XGroupCreateMkStream(ctx, OutboxKey(), "webhooks", "0").Err(); err != nil {
		t.Fatal(err)
	}
	first, err := s.Add(ctx, "agent.lost", "", "once", nil)
	if err != nil {
		t.Fatal(err)
	}
	d.Do(t, rdb, key)
	var errs []error
	note := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	again, err := s.Add(ctx, "agent.lost", "", "once", nil)
	note(err)
	if _, err := parse(again); err != nil && len(errs) == 0 || key != onceKey("agent.lost once") && len(errs) == 0 && again != first {
		t.Errorf("got %q, want the id of an event, %s if it is still known", again, first)
	}
	_, err = s.Add(ctx, "agent.back", "", "", nil)
	note(err)
	for _, job := range []string{"", "a"} {
		_, err := s.Read(ctx, job, "0", 10, 0)
		note(err)
		_, err = s.Last(ctx, job, 10)
		note(err)
	}
	for _, err := range errs {
		if d.Name != "of another type" || key == onceKey("agent.lost once") || !strings.Contains(err.Error(), "delete the key "+key) {
			t.Errorf("got %q, want none, or one that says what to delete", err)
		}
	}
	if _, err := s.Read(ctx, "b", "0", 10, 0); err != nil {
		t.Errorf("another job: %v", err)
	}
	if err := rdb.Del(ctx, key).Err(); err != nil {
		t.Fatal(err)
	}
	id, err := s.Add(ctx, "agent.back", "", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Last(ctx, "", 1); err != nil || len(got) != 1 || got[0].ID != id {
		t.Errorf("got %+v, %v, want the event %s", got, err, id)
	}
}
