package jobs_test

import (
	"strings"
	"testing"

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
		if again, err := w.Again(w.ctx, j.ID); err != nil || again.Prompt != large {
			t.Errorf("next version: got a prompt of %d bytes, %v", len(again.Prompt), err)
		}
		if text, err := w.Prompt(w.ctx, j.ID); err != nil || text != large {
			t.Errorf("prompt: got %d bytes, %v", len(text), err)
		}
		if _, err := w.Cancel(w.ctx, j.ID, false); err != nil {
			t.Fatal(err)
		}
		if err := w.Delete(w.ctx, j.ID); err != nil {
			t.Fatal(err)
		}
		if n := w.client.Redis().Exists(w.ctx, "muster:{jobs}:prompt:"+j.ID).Val(); n != 0 {
			t.Error("the prompt is there after its job was deleted")
		}
	})
}
