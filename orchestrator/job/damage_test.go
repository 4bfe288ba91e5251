package job_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/orchestrator/job"
	"muster/orchestrator/store"
	"muster/tasks/redistest"
)

// Whatever key of jobs is damaged, muster store check says so, and with --repair removes or mends it: then other jobs run.
func TestJobsSurviveDamagedKeys(t *testing.T) {
	t.Parallel()
	const p = "muster:{jobs}:"
	fixed := func(key string) func(job.Job) string { return func(job.Job) string { return p + key } }
	of := func(key string) func(job.Job) string { return func(j job.Job) string { return p + key + j.ID } }
	found := func(pattern string) func(job.Job) string { return func(job.Job) string { return "~" + p + pattern } }
	redistest.EachDamage(t, "keys.go", map[string]func(job.Job) string{
		"recordKey": of("j:"), "usageKey": of("u:"), "paceKey": of("p:"), "dependentsKey": of("after:"), "storeKey": fixed("store"), "seqKey": fixed("seq"),
		"allKey": fixed("all"), "kindKey": fixed("kind:pipeline"), "nameKey": fixed("name:default"), "labelKey": fixed("label:gdpr"), "statusKey": fixed("status:processing"),
		"contextKey": found("context:*"), "dedupeKey": found("dedupe:*"), "idempotencyKey": found("idem:*"), "documentKey": found("doc:*"), "dayKey": found("day:*"),
		"itemsKey": fixed("items"), "tookKey": fixed("took"), "pendingKey": fixed("pending"), "reviewsKey": fixed("reviews"), "endedKey": fixed("ended:pipeline:completed"),
		"cronKey": fixed("cron"), "todoKey": fixed("todo"), "readyKey": fixed("ready:validator"), "dueKey": fixed("due:validator"), "sweepKey": fixed("sweep"),
	}, []string{"prefix", "statusPrefix", "endedPrefix", "endedOnceKey", "workChannel", "eventKeys", "queueName", "digest"}, damageJob)
}

func damageJob(t *testing.T, key func(job.Job) string, d redistest.Damage) {
	w := newWorld(t, redistest.New(t), nil)
	rdb := w.client.Redis()
	doc := &job.Document{Name: "a.pdf", Hash: fmt.Sprintf("%064d", 1), Size: 1}
	w.docs.files[doc.Hash] = []byte("x")
	ended := w.create(job.Request{Prompt: "ended"})
	w.complete(w.take("creator", "c"), job.Answer{})
	w.until(ended.ID, job.Completed)
	w.create(job.Request{Cron: "@yearly", Prompt: "cron"})
	j := w.create(job.Request{Context: []byte(`{"customer":"acme"}`), Labels: []string{"gdpr"}, IdempotencyKey: "k", Document: doc, Dedupe: job.DedupeReject})
	w.create(job.Request{Prompt: "next", After: []string{j.ID}})
	work := w.take("creator", "c")
	w.add(work, "a", "b")
	if err := w.SetUsage(w.ctx, j.ID, map[string]map[string]int64{"c": {"tokens": 1}}); err != nil {
		t.Fatal(err)
	}
	k := key(j)
	if k[0] == '~' {
		all := rdb.Keys(w.ctx, k[1:]).Val()
		if len(all) == 0 {
			t.Fatalf("no key %s", k[1:])
		}
		k = all[0]
	}
	if rdb.Exists(w.ctx, k).Val() == 0 {
		switch name := strings.Split(k, ":")[2]; name { // what is there at times
		case "reviews", "due", "todo":
			rdb.ZAdd(w.ctx, k, redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: j.ID})
		case "items", "p":
			rdb.HSet(w.ctx, k, "1", 1)
		case "store", "sweep":
			rdb.Set(w.ctx, k, "somebody", time.Hour)
		default:
			t.Fatalf("%s is not there", k)
		}
	}
	d.Do(t, rdb, k)
	if d.Name == "of another type" {
		if list := w.verify(false); len(list) == 0 || !strings.Contains(list[0], k+" is a ") {
			t.Errorf("checked: got %v, want that %s has another type", list, k)
		}
	}
	_, _, _ = w.Take(w.ctx, "validator", "v", 1)
	_ = w.Complete(w.ctx, work, job.Answer{})
	_ = w.Sweep(w.ctx)
	err := store.New(rdb, nil, nil).Hold(w.ctx, "testing", func(ctx context.Context, lock *store.Lock) error {
		if err := lock.Claim(ctx, job.Slot); err != nil {
			return err
		}
		_, err := job.NewArchive(w.Service).Verify(ctx, lock, func(job.Finding) error { return nil })
		return err
	})
	if k == "muster:{jobs}:j:"+j.ID && d.Name != "of another type" {
		return // its other fields are damaged, too: a person decides what becomes of it
	}
	if err != nil {
		t.Errorf("repair: %v", err)
	}
	w.roles = map[string]int{"creator": 1, "validator": 1}
	other := w.create(job.Request{Pipeline: "long", Prompt: "other", Priority: 100})
	if _, err := w.List(w.ctx, job.Filter{}); err != nil {
		t.Errorf("list: %v", err)
	}
	if err := w.Sweep(w.ctx); err != nil {
		t.Errorf("sweep: %v", err)
	}
	w.complete(w.take("creator", "c"), job.Answer{})
	if _, err := w.Cancel(w.ctx, other.ID, false); err != nil {
		t.Errorf("cancel: %v", err)
	}
	w.until(other.ID, job.Cancelled)
}
