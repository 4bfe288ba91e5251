package jobs_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/jobs"
)

// A large prompt is read only where it is needed, and deleted with its job.
func TestALargePromptHasAKeyOfItsOwn(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		large := strings.Repeat("é", jobs.MaxInline)
		j := w.create(jobs.Request{Prompt: large})
		small := w.create(jobs.Request{Prompt: large[:jobs.MaxInline]})
		list, err := w.List(w.ctx, jobs.Filter{})
		if err != nil || len(list.Jobs) != 2 || len(list.Jobs[1].Prompt) > 300 || !strings.HasPrefix(large, strings.TrimSuffix(list.Jobs[1].Prompt, "…")) {
			t.Errorf("list: got %.400v, %v, want the beginning of the prompt", list.Jobs, err)
		}
		got, err := w.Get(w.ctx, j.ID)
		if err != nil || got.Prompt != large {
			t.Errorf("get: got a prompt of %d bytes, %v, want %d", len(got.Prompt), err, len(large))
		}
		prompts := map[string]jobs.Work{}
		for range 2 {
			work := w.take("creator", "c")
			prompts[work.JobID] = work
		}
		if work := prompts[j.ID]; len(work.Prompt) > 300 || len(work.PromptSHA256) != 64 {
			t.Errorf("large: got a prompt of %d bytes with the hash %q, want its beginning and a hash", len(work.Prompt), work.PromptSHA256)
		}
		if work := prompts[small.ID]; len(work.Prompt) != jobs.MaxInline || work.PromptSHA256 != "" {
			t.Errorf("small: got a prompt of %d bytes with the hash %q, want it all", len(work.Prompt), work.PromptSHA256)
		}
		if again, err := w.Rerun(w.ctx, j.ID); err != nil || again.Prompt != large {
			t.Errorf("next version: got a prompt of %d bytes, %v", len(again.Prompt), err)
		}
		if text, _, err := w.Input(w.ctx, j.ID); err != nil || text != large {
			t.Errorf("prompt: got %d bytes, %v", len(text), err)
		}
		if _, _, err := w.Cancel(w.ctx, j.ID, false); err != nil {
			t.Fatal(err)
		}
		testutil.Ok(t, w.Delete(w.ctx, j.ID))
		if n := w.client.Redis().Exists(w.ctx, "muster:{jobs}:prompt:"+j.ID).Val(); n != 0 {
			t.Error("the prompt is there after its job was deleted")
		}
	})
}

// A large context is read only where it is needed, can be found and edited, and is deleted with its job.
func TestALargeContextHasAKeyOfItsOwn(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		large := func(year int) json.RawMessage {
			return json.RawMessage(fmt.Sprintf(`{"customer":"acme","text":%q,"year":%d}`, strings.Repeat("c", jobs.MaxInline), year))
		}
		j := w.create(jobs.Request{Context: large(1)})
		w.create(jobs.Request{Context: json.RawMessage(`{"customer":"acme","year":2}`)})
		find := func(year string) []jobs.Job {
			t.Helper()
			list := testutil.Must(w.List(w.ctx, jobs.Filter{Context: map[string]string{"customer": "acme", "year": year}}))(t)
			return list.Jobs
		}
		if found := find("1"); len(found) != 1 || found[0].ID != j.ID || len(found[0].Context) > 0 {
			t.Errorf("list: got %.400v, want job %s without its context", found, j.ID)
		}
		if got, err := w.Get(w.ctx, j.ID); err != nil || string(got.Context) != string(large(1)) {
			t.Errorf("get: got a context of %d bytes, %v", len(got.Context), err)
		}
		if size := w.client.Redis().MemoryUsage(w.ctx, "muster:{jobs}:j:"+j.ID).Val(); size > 4000 {
			t.Errorf("the record has %d bytes, want less than 4000", size)
		}
		works := map[string]jobs.Work{}
		for range 2 {
			work := w.take("creator", "c")
			works[work.JobID] = work
			defer func() { _ = w.Release(w.ctx, work) }()
		}
		if work := works[j.ID]; string(work.Context) != "null" || len(work.ContextSHA256) != 64 {
			t.Errorf("work: got a context of %d bytes with the hash %q, want a hash only", len(work.Context), work.ContextSHA256)
		}
		if _, context, err := w.Input(w.ctx, j.ID); err != nil || string(context) != string(large(1)) {
			t.Errorf("input: got a context of %d bytes, %v", len(context), err)
		}
		for _, context := range []json.RawMessage{large(3), json.RawMessage(`{"customer":"acme","year":3}`), large(4)} {
			now, err := w.Get(w.ctx, j.ID)
			testutil.Ok(t, err)
			if now, err = w.Edit(w.ctx, j.ID, now.Version, jobs.Edit{Context: context}); err != nil || string(now.Context) != string(context) {
				t.Errorf("edit: got a context of %d bytes, %v, want %d", len(now.Context), err, len(context))
			}
		}
		if len(find("1")) != 0 || len(find("3")) != 0 || len(find("4")) != 1 {
			t.Errorf("after the edits: found %d, %d and %d jobs, want 0, 0 and 1", len(find("1")), len(find("3")), len(find("4")))
		}
		if again, err := w.Rerun(w.ctx, j.ID); err != nil || string(again.Context) != string(large(4)) {
			t.Errorf("next version: got a context of %d bytes, %v", len(again.Context), err)
		}
		if _, _, err := w.Cancel(w.ctx, j.ID, false); err != nil {
			t.Fatal(err)
		}
		testutil.Ok(t, w.Delete(w.ctx, j.ID))
		if n := w.client.Redis().Exists(w.ctx, "muster:{jobs}:ctx:"+j.ID).Val(); n != 0 {
			t.Error("the context is there after its job was deleted")
		}
	})
}

// Jobs share the content of their pipeline, which is deleted with the last of them.
func TestAPipelineIsStoredOnceForItsJobs(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		first, second := w.create(jobs.Request{}), w.create(jobs.Request{})
		rdb := w.client.Redis()
		key := "muster:{jobs}:pipeline:" + rdb.HGet(w.ctx, "muster:{jobs}:j:"+second.ID, "pipeline_sha256").Val()
		for i, id := range []string{first.ID, second.ID} {
			if n, err := rdb.HGet(w.ctx, key, "jobs").Int(); err != nil || n != 2-i {
				t.Errorf("before the deletion of job %d: the pipeline has %d jobs, %v", i, n, err)
			}
			other, err := jobs.New(jobs.Config{Client: w.client, Pipelines: named}) // without a cache
			testutil.Ok(t, err)
			if j, err := other.Get(w.ctx, id); err != nil || len(j.Stages) != 2 {
				t.Errorf("job %d: got %d stages, %v, want 2", i, len(j.Stages), err)
			}
			if _, _, err := w.Cancel(w.ctx, id, false); err != nil {
				t.Fatal(err)
			}
			testutil.Ok(t, w.Delete(w.ctx, id))
		}
		if n := rdb.Exists(w.ctx, key).Val(); n != 0 {
			t.Error("the pipeline is there after its jobs were deleted")
		}
	})
}
