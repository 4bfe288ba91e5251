package job_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/orchestrator/job"
	"muster/tasks/redistest"
)

// A damaged value affects no other job.
func TestJobsSurviveDamagedKeys(t *testing.T) {
	t.Parallel()
	const p = "muster:{jobs}:"
	fixed := func(key string) func(job.Job) string { return func(job.Job) string { return p + key } }
	of := func(key string) func(job.Job) string { return func(j job.Job) string { return p + key + j.ID } }
	found := func(pattern string) func(job.Job) string { return func(job.Job) string { return "~" + p + pattern } }
	for kind, key := range map[string]func(job.Job) string{
		"recordKey": of("j:"), "usageKey": of("u:"), "paceKey": of("p:"), "dependentsKey": of("after:"), "storeKey": fixed("store"),
		"allKey": fixed("all"), "kindKey": fixed("kind:pipeline"), "nameKey": fixed("name:default"), "labelKey": fixed("label:gdpr"), "statusKey": fixed("status:processing"),
		"contextKey": found("context:*"), "dedupeKey": found("dedupe:*"), "idempotencyKey": found("idem:*"), "documentKey": found("doc:*"),
		"itemsKey": fixed("items"), "tookKey": fixed("took"), "pendingKey": fixed("pending"), "reviewsKey": fixed("reviews"), "endedKey": fixed("ended:pipeline:completed"),
		"cronKey": fixed("cron"), "todoKey": fixed("todo"), "readyKey": fixed("ready:validator"), "dueKey": fixed("due:validator"), "sweepKey": fixed("sweep"),
	} {
		for _, d := range redistest.Damages {
			if d.Name == "of another type" {
				continue // every command on the key fails
			}
			t.Run(kind+"/"+d.Name, func(t *testing.T) {
				t.Parallel()
				damageJob(t, key, d)
			})
		}
	}
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
	_, _, _ = w.Take(w.ctx, "validator", "v", 1)
	_ = w.Complete(w.ctx, work, job.Answer{})
	_ = w.Sweep(w.ctx)
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
