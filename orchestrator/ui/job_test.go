package ui

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/pipeline"
)

// The pages of a job show it, whatever its texts are.
func TestPagesOfAJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	showsText(t, w.h, "/jobs", "No jobs yet")
	showsText(t, w.h, "/tasks/todo", "Nothing to do")
	j := w.create("careful", hostile+strings.Repeat("x", 1<<20-100))
	at := "/jobs/" + j.ID
	w.emit(jobs.NewItem{Key: "...", Text: hostile, Citations: []string{"page " + hostile}}, jobs.NewItem{Key: `a/b&<"'>`, Text: strings.Repeat("long ", 1<<17)}, jobs.NewItem{Key: "c", Text: "third"})
	w.fail("unclear " + hostile)
	w.fail("unclear " + hostile)
	showsText(t, w.h, "/jobs", `<tr id="j-`+j.ID+`">`, j.ID, "careful", "processing", "0 of 3", `\u202e`)
	showsText(t, w.h, "/jobs?status=failed", "No matching jobs")
	showsText(t, w.h, "/jobs?status=processing&name=careful", j.ID)
	if _, body := get(t, w.h, "/jobs?label="+url.QueryEscape(hostile)); !strings.Contains(body, j.ID) {
		t.Errorf("got %s, want the job with this label", body)
	}
	showsText(t, w.h, "/jobs?label=none", "No matching jobs")
	showsText(t, w.h, at, "2 review", "1 pending", "2 items wait for a decision", "validator", "unclear &lt;script&gt;", "item.review", "The beginning of",
		"/jobs/"+j.ID+"/report?format=csv", "/cancel", "/retry", `class="n">2</td><td data-title="Error" class="badtext say">unclear`)
	showsText(t, w.h, at+"/items", "a/b", "third", "review")
	showsText(t, w.h, at+"/items?state=review", "review", "...")
	showsText(t, w.h, at+"/items?state=pending", "pending")
	showsText(t, w.h, at+"/items?state=integrated", "No items are integrated")
	showsText(t, w.h, at+"/item?key=...", "page &lt;script&gt;", "unclear", "item.review")
	showsText(t, w.h, at+"/item?key="+url.QueryEscape(`a/b&<"'>`), "The beginning of 655\u202f360 bytes", "/items/a%2Fb&amp;%3C%22%27%3E")
	showsText(t, w.h, "/tasks/todo", "item?key=...", "choice=Accept", "unclear", `\u202e`)
	showsText(t, w.h, at+"/item?key=...", "choice=Try%20again&amp;item="+j.ID+"%2F...")
	showsText(t, w.h, "/pipelines", "careful", "validate", `\u202e`)
	showsText(t, w.h, "/pipelines", "a person decides", "agents of role")
}

// Missing objects lead to a page with status 404, and a request without the form changes nothing.
func TestPagesOfWhatThereIsNot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	j := w.create(pipeline.Default, "p")
	for path, code := range map[string]int{
		"/jobs/" + unknown: 404, "/jobs/none": 404, "/jobs/%3Cscript%3Ealert": 404, "/jobs/" + strings.Repeat("x", 5000): 404,
		"/jobs/" + unknown + "/items": 404, "/jobs/" + unknown + "/item?key=x": 404, "/jobs/" + j.ID + "/item?key=x": 404, "/jobs/" + j.ID + "/item": 404,
		"/jobs/" + unknown + "/cancel": 404, "/jobs/" + unknown + "/retry": 404, "/jobs/" + unknown + "/again": 404, "/jobs/" + unknown + "/delete": 404,
		"/jobs/" + unknown + "/stages/create/end": 404, "/jobs/" + j.ID + "/stages/none/end": 404, "/tasks/todo/decide?choice=Accept&item=" + unknown + "%2Fx": 404, "/tasks/todo/decide?choice=Reject&item=" + j.ID + "%2Fx": 404, "/tasks/todo/decide?choice=Accept&item=none": 404,
		"/jobs/" + j.ID + "?compare=" + unknown: 404, "/agents/none": 404, "/agents/none/drain": 404, "/agents/none/remove": 404,
		"/jobs?status=wrong": 400, "/jobs?after=wrong": 400, "/jobs?name=" + strings.Repeat("x", 300): 400, "/jobs/" + j.ID + "/items?state=wrong": 400,
		"/jobs/" + j.ID + "/items?state=failed&after=-1": 400, "/jobs/" + j.ID + "/items?after=wrong": 400, "/jobs/" + j.ID + "/delete": 409,
	} {
		got, body := get(t, w.h, path)
		if got != code || !strings.Contains(body, "<h1>") || strings.Contains(body, "<script>alert") {
			t.Errorf("%.100s: got %d %.300s, want a page with %d", path, got, body, code)
		}
	}
	r := httptest.NewRecorder()
	w.h.ServeHTTP(r, httptest.NewRequestWithContext(t.Context(), http.MethodPost, prefix+"/jobs/"+j.ID+"/cancel", nil))
	if now, err := w.Get(w.ctx, j.ID); r.Code != http.StatusForbidden || err != nil || now.Status.Terminal() {
		t.Errorf("got %d, and the job is %s, %v; want 403 and an open job", r.Code, now.Status, err)
	}
}

// An operator starts, ends and repeats jobs.
func TestChangesOfJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.refused("/jobs/start", url.Values{"pipeline": {"default"}, "prompt": {" "}}, 400, "Required: Prompt")
	w.refused("/jobs/start", url.Values{"pipeline": {"none"}, "prompt": {"p"}}, 400, "Choose an option: Pipeline")
	w.refused("/jobs/start", url.Values{"prompt": {"p"}, "priority": {"high"}}, 400, "Priority must be")
	w.refused("/jobs/start", url.Values{"prompt": {"p"}, "priority": {"1000"}}, 400, "Priority must be")
	w.refused("/jobs/start", url.Values{"prompt": {"p"}, "url": {"file:///etc/passwd"}}, 400, "want an http or https URL")
	w.refused("/jobs/start", url.Values{"prompt": {"p"}, "url": {w.docs + "/a.pdf"}, "document": {"text"}}, 400, "not both")
	first := url.Values{"pipeline": {"default"}, "prompt": {"List them"}, "document": {"a text"}, "priority": {"7"}}
	id := strings.TrimPrefix(w.done("/jobs/start", first, "/ui/jobs/"), "/ui/jobs/")
	j, err := w.Get(w.ctx, id)
	if err != nil || j.Prompt != "List them" || j.Priority != 7 || j.Document == nil || j.Document.Name != "document.txt" || j.Document.Hash != fmt.Sprintf("%x", sha256.Sum256([]byte("a text"))) {
		t.Fatalf("got %+v, %v", j, err)
	}
	w.refused("/jobs/start", first, 200, "Existing job")
	w.done(strings.TrimPrefix(w.done("/jobs/start", url.Values{"prompt": {"Another"}, "url": {w.docs + "/a.pdf"}}, "/ui/jobs/"), "/ui")+"/cancel", nil, "/ui/jobs/")

	at := "/jobs/" + id
	w.emit(jobs.NewItem{Key: "a", Text: "t"}, jobs.NewItem{Key: "b", Text: "t"})
	if work := w.fail("no"); work.JobID != id {
		t.Fatalf("got work of %s", work.JobID)
	}
	w.done(at+"/retry", nil, "/ui"+at)
	if j, err = w.Get(w.ctx, id); err != nil || j.Items.Failed != 0 || j.Items.Pending != 2 {
		t.Errorf("got %+v, %v, want two pending items", j.Items, err)
	}
	w.done(at+"/pause", nil, "/ui"+at)
	showsText(t, w.h, at, "until it is resumed", at+"/resume")
	w.done(at+"/resume", nil, "/ui"+at)
	showsText(t, w.h, at, at+"/pause")
	w.refused(at+"/stages/validate/end", url.Values{"how": {"fail"}}, 400, "Enter a reason")
	w.refused(at+"/stages/validate/end", url.Values{"how": {"wrong"}}, 400, "Choose an option: Result")
	w.done(at+"/stages/validate/end", url.Values{"how": {"complete"}}, "/ui"+at)
	w.until(id, jobs.Completed)
	w.refused(at+"/cancel", nil, 409, "has ended")
	w.refused(at+"/pause", nil, 409, "has ended")

	next := strings.TrimPrefix(w.done(at+"/again", nil, "/ui/jobs/"), "/ui/jobs/")
	showsText(t, w.h, "/jobs/"+next, "/jobs/"+next+"?compare="+id)
	w.emit(jobs.NewItem{Key: "a", Text: "t"}, jobs.NewItem{Key: "c", Text: "new"})
	showsText(t, w.h, "/jobs/"+next+"?compare="+id, "1 new", "1 gone", "1 changed", "data-still")
	w.done("/jobs/"+next+"/cancel", url.Values{"cleanup": {"yes"}}, "/ui/jobs/"+next)
	w.until(next, jobs.Cancelled)
	w.refused("/jobs/"+next+"/retry", nil, 409, "has ended")
	w.done(at+"/delete", nil, "/ui/jobs")
	if code, body := get(t, w.h, at); code != 404 || !strings.Contains(body, "Job not found") {
		t.Errorf("a job that was deleted: got %d %s, want 404", code, body)
	}
}

// A person decides about the items of all jobs on one page.
func TestDecisions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	j := w.create("careful", "p")
	at := "/jobs/" + j.ID
	w.emit(jobs.NewItem{Key: "a/b", Text: "one"}, jobs.NewItem{Key: "...", Text: "two"})
	w.fail("unclear")
	w.fail("unclear")
	choose := func(choice string, keys ...string) string {
		q := url.Values{"choice": {choice}}
		for _, key := range keys {
			q.Add("item", j.ID+"/"+key)
		}
		return "/tasks/todo/decide?" + q.Encode()
	}
	w.refused(choose("Reject", "..."), url.Values{"comment": {" "}}, 400, "Required: Reason")
	w.refused(choose("Reject", "..."), url.Values{"comment": {strings.Repeat("x", maxReason+1)}}, 400, "too long")
	w.refused(choose("Approve", "..."), nil, 400, "does not have the choice")
	w.done(choose("Accept", "a/b"), url.Values{"comment": {"fine"}}, "/ui/tasks/todo")
	w.refused(choose("Accept", "a/b"), nil, 409, "already decided by Ada: item a/b is integrated")
	w.done(choose("Try again", "..."), nil, "/ui/tasks/todo")
	w.fail("unclear")
	w.refused(choose("Reject", "...", "a/b"), url.Values{"comment": {"not in the document"}}, 200, "Reject: 1. Unchanged: 1, for example: already decided by Ada")
	w.until(j.ID, jobs.Completed)
	for key, want := range map[string]jobs.ItemStatus{"a/b": jobs.ItemIntegrated, "...": jobs.ItemRejected} {
		if it, err := w.Item(w.ctx, j.ID, key); err != nil || it.Status != want || it.ReviewedBy != "Ada" {
			t.Errorf("item %s: got %+v, %v, want %s by Ada", key, it, err, want)
		}
	}
	showsText(t, w.h, at+"/item?key=...", "rejected", "not in the document", "item.decided", "Ada")
	showsText(t, w.h, "/tasks/todo", "Nothing to do")

	j = w.create("careful", "q")
	at = "/jobs/" + j.ID
	w.emit(jobs.NewItem{Key: "a", Text: "one"}, jobs.NewItem{Key: "b", Text: "two"})
	w.fail("unclear")
	w.fail("unclear")
	showsText(t, w.h, at, at+"/accept-all", at+"/reject-all")
	w.refused(at+"/reject-all", url.Values{"reason": {" "}}, 400, "Required: Reason")
	w.done(at+"/accept-all", nil, "/ui"+at)
	w.until(j.ID, jobs.Completed)
	if done, err := w.Get(w.ctx, j.ID); err != nil || done.Items.Integrated != 2 {
		t.Errorf("items: got %+v, %v, want 2 integrated", done.Items, err)
	}
}

// An open page reports that its job was deleted.
func TestPageOfAJobThatIsDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	j := w.create(pipeline.Default, "p")
	if _, _, err := w.Cancel(w.ctx, j.ID, false); err != nil {
		t.Fatal(err)
	}
	w.until(j.ID, jobs.Cancelled)
	until := follow(t, w.h, "/jobs/"+j.ID)
	until("cancelled")
	testutil.Ok(t, w.Delete(w.ctx, j.ID))
	until("Job not found")
}

// The page of a job with many items reads no items.
func TestPageOfALargeJob(t *testing.T) {
	t.Parallel()
	scans := redistest.NewFault(redistest.Refused, 0)
	scans.Match = func(cmd redis.Cmder) bool { return strings.EqualFold(cmd.Name(), "hscan") }
	w := newWorld(t, func(cfg *Config) { cfg.Client.Redis().AddHook(scans) })
	j := w.create("careful", "p")
	items := make([]jobs.NewItem, 10_000)
	for i := range items {
		items[i] = jobs.NewItem{Key: fmt.Sprintf("req-%05d", i), Text: strings.Repeat("text ", 20)}
	}
	w.emit(items...)
	for i := range 60 {
		w.fail(fmt.Sprintf("error %d", i%20))
	}
	scans.Arm()
	at := "/jobs/" + j.ID
	showsText(t, w.h, at, "0 of 10\u202f000", "error 0", "Of the last 60 items")
	showsText(t, w.h, "/jobs", "10\u202f000")
	showsText(t, w.h, "/tasks/todo", "More items")
	showsText(t, w.h, at+"/items?state=review", "Next page")
	if n := scans.Calls(); n != 0 {
		t.Errorf("got %d looks at all items, want none", n)
	}
	showsText(t, w.h, at+"/items", "Next page")
	if scans.Calls() == 0 {
		t.Error("the list of all items was read without a look that is counted")
	}
}
