package proxies

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/proxies/source"
	"muster/tasks/redistest"
)

// damagedPool is a pool whose keys are damaged.
const damagedPool, damagedSite, damagedJob, damagedTrial = "{muster:proxies}", "shop", "job", "trial"

// useAll uses each key of a pool, and returns the errors.
func useAll(ctx context.Context, p *Pool) (errs []error) {
	note := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	id := proxyOf(result(2, nil)).ID
	_, err := publish(ctx, p, result(1, nil), result(2, nil), result(3, nil))
	note(err)
	_, err = p.Remove(ctx, proxyOf(result(3, nil)).ID)
	note(err)
	note(p.Ban(ctx, damagedSite, time.Hour, id))
	note(p.store.setStatus(ctx, Status{Alive: 2}))
	_, err = p.Status(ctx)
	note(err)
	note(p.store.setRefreshReport(ctx, damagedJob, []byte(`{}`)))
	_, _, err = p.Report(ctx, damagedJob)
	note(err)
	note(p.yields.recordRead(ctx, damagedJob, source.List{Source: "list"}, nil))
	note(p.yields.record(ctx, damagedJob, map[string]Yield{"list": {Usable: 1}}))
	_, err = p.store.archivedDue(ctx, time.Now().Add(time.Hour), 10)
	note(err)
	p.store.startTrial(ctx, damagedSite, damagedTrial)
	l, err := p.Pick(ctx, PickOptions{Site: damagedSite})
	note(err)
	if l != nil {
		l.Report(Succeeded, time.Millisecond)
	}
	note(p.Flush(ctx))
	_, err = p.List(ctx, Everything)
	note(err)
	return errs
}

// Whatever key of a pool is damaged: values are passed over and replaced by the next refresh, or the error says what to
// delete, and then the pool works again.
func TestPoolSurvivesDamagedKeys(t *testing.T) {
	t.Parallel()
	const pool = damagedPool
	redistest.EachDamage(t, "keys.go", map[string]string{
		"recordsKey": recordsKey(pool), "healthKey": healthKey(pool, ""),
		"archiveKey": archiveKey(pool), "archivedKey": archivedKey(pool), "lookedKey": lookedKey(pool), "statusKey": statusKey(pool),
		"reportKey": reportKey(pool, damagedJob), "yieldsKey": yieldsKey(pool), "bansKey": bansKey(pool), "trialKey": trialKey(pool, damagedSite, damagedTrial),
	}, []string{"tunnelScope"}, damagePool)
}

func damagePool(t *testing.T, key string, d redistest.Damage) {
	rdb := redistest.New(t)
	if errs := useAll(t.Context(), newPool(t, rdb, nil)); len(errs) > 0 {
		t.Fatal(errs)
	}
	d.Do(t, rdb, key)
	errs := useAll(t.Context(), newPool(t, rdb, nil))
	if d.Name != "of another type" && len(errs) > 0 {
		t.Errorf("got %v, want damaged values to be replaced", errs)
	}
	for _, err := range errs {
		if text := err.Error(); !strings.Contains(text, "delete the keys "+damagedPool+":*") || strings.Contains(text, "user_script") && !redis.HasErrorPrefix(err, "WRONGTYPE") {
			t.Errorf("got %q, want an error that says what to do", text)
		}
	}
	keys, err := rdb.Keys(t.Context(), damagedPool+":*").Result()
	if err != nil {
		t.Fatal(err)
	}
	if err := rdb.Del(t.Context(), keys...).Err(); err != nil {
		t.Fatal(err)
	}
	if errs := useAll(t.Context(), newPool(t, rdb, nil)); len(errs) > 0 {
		t.Errorf("after the keys were deleted: %v", errs)
	}
}
