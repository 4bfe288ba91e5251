package webhook

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks/redistest"
)

// Whatever key of webhooks is damaged: an endpoint that is not gets what happens next, once, and can be listed; one whose
// record is damaged is disabled, and can be removed and created again. Of a key of another type that is not made anew, the
// error says that it must be deleted.
func TestDeliverySurvivesDamagedKeys(t *testing.T) {
	t.Parallel()
	redistest.EachDamage(t, "keys.go", map[string]func(id string) string{
		"endpointsKey": func(string) string { return endpointsKey }, "namesKey": func(string) string { return namesKey },
		"staticKey": func(string) string { return staticKey }, "relayKey": func(string) string { return relayKey },
		"logKey": logKey, "numbersKey": numbersKey,
		"attemptsKey": func(string) string { return attemptsKey }, "openKey": func(string) string { return openKey }, "removedKey": func(string) string { return removedKey },
	}, []string{"endpointKeys", "queueName", "deliveries"}, damageDelivery)
}

func damageDelivery(t *testing.T, key func(id string) string, d redistest.Damage) {
	cfg := quick(t, redistest.New(t))
	k := open(t, cfg)
	r := newReceiver(t, nil)
	hit, _ := k.create(t, r.URL, "job.failed", "job.completed")
	stop := testutil.Background(t, k.Run)
	k.emit(t, "job.failed", 1)
	k.settled(t, hit.ID, "map[delivered:1]")
	stop()
	damaged := key(hit.ID)
	if k.rdb.Exists(t.Context(), damaged).Val() == 0 { // what is there at times
		if damaged == relayKey {
			k.rdb.Set(t.Context(), relayKey, "somebody", relayHold)
		} else {
			k.rdb.ZAdd(t.Context(), damaged, redis.Z{Score: 1, Member: "gone"})
		}
	}
	d.Do(t, k.rdb, damaged)
	if damaged != relayKey || d.Name != "of another type" {
		k.rdb.Del(t.Context(), relayKey) // it expires
	}

	_, err := k.List(t.Context())
	if err != nil && (d.Name != "of another type" || !strings.Contains(err.Error(), "delete the key "+damaged)) {
		t.Errorf("got %q, want none, or one that says what to delete", err)
	}
	if err != nil {
		k.rdb.Del(t.Context(), damaged)
	}
	if damaged == endpointsKey && d.Name != "of another type" {
		readable := d.Name == "flipped" // a bit within the secret leaves a record that can be read
		if got, err := k.Get(t.Context(), hit.ID); !readable && (err != nil || got.State != StateDisabled || got.Reason == "") {
			t.Errorf("got %+v, %v, want it disabled", got, err)
		}
		no := false
		if _, err := k.Edit(t.Context(), hit.ID, Edit{Disabled: &no}); !readable && err == nil {
			t.Error("a damaged endpoint was enabled")
		}
		if err := k.Remove(t.Context(), hit.ID); err != nil {
			t.Error(err)
		}
		if n := k.rdb.HLen(t.Context(), namesKey).Val(); n != 0 {
			t.Errorf("got %d names, want none", n)
		}
	}
	if _, _, err := k.Create(t.Context(), NewEndpoint{URL: r.URL}); err != nil {
		if text := err.Error(); d.Name != "of another type" || !strings.Contains(text, "delete the key") || !strings.Contains(text, damaged) {
			t.Errorf("got %q, want none, or one that says what to delete", text)
		}
		k.rdb.Del(t.Context(), damaged)
	}
	other, _ := k.create(t, r.URL, "job.completed")
	k = open(t, cfg) // another process
	k.run(t)
	k.emit(t, "job.completed", 1)
	k.settled(t, other.ID, "map[delivered:1]")
	if list, err := k.List(t.Context()); err != nil || len(list) == 0 {
		t.Errorf("got %+v, %v, want the endpoints", list, err)
	}
}
