package browser

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
	"muster/tasks/tasktype"
)

// mostClicks is the maximum number of clicks of a job, from the overview.
const mostClicks = 4

// operator does a job with the pages. It counts clicks.
type operator struct {
	*tab
	clicks int
}

// start starts a job on the overview.
func (o *operator) start(t *testing.T) {
	o.T, o.clicks = t, 0
	o.visit("/")
	t.Cleanup(func() {
		if o.clicks > mostClicks {
			t.Errorf("the job took %d clicks, want at most %d", o.clicks, mostClicks)
		}
	})
}

// follow clicks the first visible link or button whose text begins with a text, and waits for the next page. It finds and clicks it
// in one step, because an update of the page may replace it.
func (o *operator) follow(text string) {
	o.Helper()
	o.clicks++
	named := fmt.Sprintf(`[...document.querySelectorAll("header a, main a, main button")].find(e => e.checkVisibility() && e.textContent.trim().startsWith(%q))`, text)
	if !testutil.Becomes(func() bool { return eval[bool](o.tab, "!!"+named) }) {
		o.Fatalf("no link or button %q on the page: %.2000s", text, o.text())
	}
	if got := o.clickOn(named); got != http.StatusOK {
		o.Fatalf("click on %s: got %d: %.1000s", text, got, o.text())
	}
}

// label returns the accessible description of an element.
func (o *operator) label(selector string) string {
	o.Helper()
	return eval[string](o.tab, fmt.Sprintf(`document.querySelector(%q)?.getAttribute("aria-label") ?? ""`, selector))
}

// fill types a text into a field; clicking into it is a click.
func (o *operator) fill(name, text string) {
	o.Helper()
	o.clicks++
	o.do(chromedp.SendKeys(fmt.Sprintf("main [name=%s]", name), text))
}

// The jobs of an operator take few clicks from the overview. They have the effect or show the facts that the operator wants.
func TestJobsOfAnOperator(t *testing.T) {
	t.Parallel()
	s := serve(t, redistest.URL(t), true)
	schedule := tasks.NewScheduler(s.client, tasks.SchedulerConfig{})
	if err := schedule.Add("nightly", "@every 720h", inc.S(1)); err != nil {
		t.Fatal(err)
	}
	testutil.Background(t, schedule.Run)
	send := func(s *site, work tasks.Work, customer string) string {
		t.Helper()
		sent, err := s.client.SendMany(t.Context(), []tasks.Sending{{Work: work, Options: []tasks.SendOption{tasks.Labels(map[string]string{"customer": customer})}}})
		if err != nil || sent[0].Err != nil {
			t.Fatal(err, sent)
		}
		return sent[0].ID
	}
	failed := send(s, tasks.Chain(text.S("card 17 declined"), bad), "acme")
	send(s, bad.S("card 18 declined"), "zen")
	send(s, bad.S("closed"), "zen")
	out := send(s, stock.S(1), "acme")
	stuck := send(s, inc.S(1, tasks.Queue("gpu")), "zen")
	used := send(s, inc.S(1, tasks.Queue("used")), "zen")
	begin(t, s, refund.S("order 1"))
	past(t, s)
	testutil.Eventually(t, "the tasks have ended or are open", func() bool {
		counts, err := s.client.CountWorkflows(t.Context())
		open, err2 := s.client.OpenTasks(t.Context())
		entries, err3 := s.client.Schedules(t.Context())
		return err == nil && err2 == nil && err3 == nil && counts[tasktype.WorkflowFailed] == 4 && len(open) == 1 && len(entries) == 1
	})
	state := func(id string) tasktype.Status {
		t.Helper()
		p, err := tasks.Attach[any](s.client, id).Progress(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return p.Status
	}
	becomes := func(t *testing.T, id string, want tasktype.Status) {
		t.Helper()
		testutil.Eventually(t, "the workflow is "+string(want), func() bool { return state(id) == want })
	}
	o := &operator{tab: open(t, s.URL)}
	for _, job := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"why did this workflow fail, and with which input", func(t *testing.T) {
			o.clicks++
			o.do(chromedp.SendKeys("#search", failed))
			if _, err := chromedp.RunResponse(o.ctx, chromedp.KeyEvent("\r")); err != nil {
				t.Fatal(err)
			}
			o.shows("card 17 declined")
			o.follow("shop.bad")
			o.shows(`"card 17 declined"`)
		}},
		{"what did the failed task log", func(t *testing.T) {
			o.follow("shop.text → shop.bad")
			o.shows("the bank refused the card customer=acme")
			o.follow("shop.bad")
			o.shows("the bank refused the card customer=acme")
		}},
		{"since when does a queue grow", func(t *testing.T) {
			o.follow("gpu")
			o.shows("Grows since 2 h ago, when 0 tasks were waiting")
		}},
		{"which worker leaks", func(t *testing.T) {
			o.follow("Workers")
			o.shows("from 220 MiB, 24 h ago")
			if got := o.label("#w-worker-1 svg"); !strings.Contains(got, ": 220 MiB to ") {
				t.Errorf("got the line %q of the memory", got)
			}
		}},
		{"is today worse than yesterday", func(t *testing.T) {
			if got := o.label(`main a[href="/queues"] svg`); !strings.Contains(got, "; in the same hour yesterday: 0 to 20") {
				t.Errorf("got the line %q of waiting tasks", got)
			}
		}},
		{"pause and empty a queue in use", func(t *testing.T) {
			o.follow("used")
			o.follow("Pause and empty…")
			o.follow("Cancel workflows")
			becomes(t, used, tasktype.Failed)
		}},
		{"which failures of a task have the same error", func(t *testing.T) {
			o.follow("Tasks")
			o.follow("shop.bad")
			o.follow("error: card … declined")
			o.shows("card 17 declined")
			o.shows("card 18 declined")
			if got := o.text(); strings.Contains(got[strings.Index(got, "Failed tasks"):], "closed") {
				t.Errorf("got %s, want one error", got)
			}
		}},
		{"retry what failed with an error", func(t *testing.T) {
			s.stocked.Store(true)
			o.follow("shop.stock")
			o.follow("Retry…")
			o.follow("Retry workflows")
			becomes(t, out, tasktype.Success)
		}},
		{"find the workflows of a customer", func(t *testing.T) {
			o.follow("Workflows")
			o.fill("label", "customer=acme")
			o.follow("Filter")
			o.shows(failed[:8])
			if got := eval[int](o.tab, `document.querySelectorAll("tbody tr").length`); got != 2 {
				t.Errorf("got %d workflows, want 2", got)
			}
		}},
		{"pause a queue", func(t *testing.T) {
			o.follow("gpu")
			o.follow("Pause…")
			o.follow("Pause the queue")
			testutil.Eventually(t, "the queue is paused", func() bool {
				queues, err := s.client.Queues(t.Context())
				for _, q := range queues {
					if q.Name == "gpu" {
						return err == nil && q.Paused
					}
				}
				return false
			})
		}},
		{"cancel what is stuck in a queue without workers", func(t *testing.T) {
			o.follow("gpu")
			o.shows("no live workers")
			o.follow("Empty…")
			o.follow("Cancel workflows")
			becomes(t, stuck, tasktype.Failed)
		}},
		{"run a schedule now", func(t *testing.T) {
			o.follow("Schedule")
			o.follow("Trigger…")
			o.follow("Trigger now")
			testutil.Eventually(t, "the schedule has run", func() bool {
				e, err := s.client.Schedule(t.Context(), "nightly")
				return err == nil && e.Sent == 1
			})
		}},
		{"answer a question", func(t *testing.T) {
			o.follow("To do")
			o.shows("order 1")
			o.follow("Approve…")
			o.follow("Approve")
			testutil.Eventually(t, "no task is open", func() bool {
				open, err := s.client.OpenTasks(t.Context())
				return err == nil && len(open) == 0
			})
		}},
		{"share a view", func(t *testing.T) {
			o.follow("Workflows")
			o.fill("error", "closed")
			o.follow("Filter")
			shared := eval[string](o.tab, "location.pathname + location.search")
			other := open(t, s.URL)
			other.visit(shared)
			other.shows("closed")
			if got := eval[int](other, `document.querySelectorAll("tbody tr").length`); got != 1 {
				t.Errorf("another person sees %d workflows, want 1", got)
			}
		}},
	} {
		t.Run(job.name, func(t *testing.T) {
			o.start(t)
			job.do(t)
		})
	}
}
