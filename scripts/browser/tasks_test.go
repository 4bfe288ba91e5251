package browser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/ui"
)

var (
	inc     = tasks.New[int, int]("shop.inc")
	sum     = tasks.New[[]int, int]("shop.sum")
	text    = tasks.New[string, string]("shop.text")
	bad     = tasks.New[string, int]("shop.bad", tasks.MaxRetry(0))
	waits   = tasks.New[int, int]("shop.waits", tasks.External())
	delayed = tasks.New[int, int]("shop.delayed")
	refund  = tasks.New[string, bool]("shop.refund", tasks.External(), tasks.Choice("Approve", true), tasks.Choice("Refuse", false))
	stock   = tasks.New[int, int]("shop.stock", tasks.MaxRetry(0))
)

// hostile is executed if a page does not escape it.
const hostile = `<img src=x onerror="window.hostile=1"><script>window.hostile=1</script></main></svg>` + "\u202Egnp.exe\x1b[31m"

// site is a program with the pages of tasks/ui.
type site struct {
	*httptest.Server
	client  *tasks.Client
	stocked atomic.Bool // shop.stock succeeds
}

// serve serves the pages for a Redis, optionally with a worker.
func serve(t *testing.T, redis string, worker bool) *site {
	t.Helper()
	client := testutil.Must(tasks.Connect(t.Context(), redis))(t)
	t.Cleanup(func() { _ = client.Close() })
	s := &site{client: client}
	s.Server = httptest.NewServer(ui.Handler(client, ui.Config{May: func(*http.Request) bool { return true }}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	if !worker {
		return s
	}
	mux := tasks.NewMux()
	tasks.Handle(mux, inc, func(_ context.Context, n int) (int, error) { return n + 1, nil })
	tasks.Handle(mux, delayed, func(_ context.Context, n int) (int, error) { return n, nil })
	tasks.Handle(mux, sum, func(_ context.Context, ns []int) (int, error) { return len(ns), nil })
	tasks.Handle(mux, text, func(_ context.Context, s string) (string, error) { return s, nil })
	logger := slog.New(tasks.LogHandler(slog.NewTextHandler(io.Discard, nil)))
	tasks.Handle(mux, bad, func(ctx context.Context, s string) (int, error) {
		logger.WarnContext(ctx, "the bank refused the card", "customer", "acme")
		return 0, errors.New(s)
	})
	tasks.Handle(mux, stock, func(_ context.Context, n int) (int, error) {
		if !s.stocked.Load() {
			return 0, errors.New("out of stock")
		}
		return n, nil
	})
	w := testutil.Must(tasks.NewWorker(client, mux, tasks.WorkerConfig{Name: "worker-1"}))(t)
	testutil.Background(t, w.Run)
	return s
}

// past stores the values of an hour, as workers do every minute: a queue that grows.
func past(t *testing.T, s *site) {
	t.Helper()
	values := map[string]map[string]string{}
	now := time.Now().Unix() / 60
	for minute := now - 60; minute < now; minute++ {
		ago := now - minute
		gpu, mail := (60-ago)*3, max(0, 20-(ago*7)%40)
		for measure, of := range map[string]map[string]int64{
			"pending": {"": gpu + mail, "gpu": gpu, "default": mail},
			"active":  {"": (ago * 5) % 8},
		} {
			key := fmt.Sprintf("muster:{history}:%s:%d", measure, minute/60)
			if values[key] == nil {
				values[key] = map[string]string{}
			}
			for name, n := range of {
				values[key][name] += fmt.Sprintf("%d:%d ", minute%60, n)
			}
		}
	}
	for key, fields := range values {
		testutil.Ok(t, s.client.Redis().HSet(t.Context(), key, fields).Err())
	}
}

// begin sends work without waiting for it.
func begin[O any](t *testing.T, s *site, work tasks.Signature[O]) *tasks.Run[O] {
	t.Helper()
	run := testutil.Must(work.Send(t.Context(), s.client))(t)
	return run
}

// over sends work, waits until it has finished, and returns its ID.
func over[O any](t *testing.T, s *site, work tasks.Signature[O]) string {
	t.Helper()
	run := begin(t, s, work)
	if _, err := run.Wait(t.Context()); t.Context().Err() != nil {
		t.Fatal(err)
	}
	return run.ID()
}

// complete completes the external task of a workflow.
func complete(t *testing.T, s *site, id string) {
	t.Helper()
	nodes := testutil.Must(s.client.Workflow(id).Nodes(t.Context()))(t)
	for _, n := range nodes {
		if n.Task != "shop.waits" {
			continue
		}
		testutil.Eventually(t, "the task is completed", func() bool {
			token, err := s.client.Workflow(id).NewToken(t.Context(), n.ID)
			return err == nil && s.client.Complete(t.Context(), token, []byte("1")) == nil
		})
		return
	}
	t.Fatalf("workflow %s has no pending external task", id)
}

// approval returns a workflow with an external task before its last task.
func approval() tasks.Signature[int] { return tasks.Chain(waits.S(1), inc) }

func flow(id string) string { return "/workflows/" + id }

func TestEmptyPages(t *testing.T) {
	t.Parallel()
	s := serve(t, redistest.URL(t), false)
	c := walk(open(t, s.URL), "empty", "", "")
	c.perform()
}

func TestFullPages(t *testing.T) {
	t.Parallel()
	s := serve(t, redistest.URL(t), true)
	over(t, s, tasks.Chord(tasks.Each([]int{1, 2, 3}, inc), sum))
	over(t, s, bad.S("the shop is closed"))
	over(t, s, tasks.Chain(text.S("no number"), bad))
	revoked := begin(t, s, approval())
	testutil.Ok(t, revoked.Revoke(t.Context()))
	begin(t, s, approval())
	begin(t, s, delayed.S(1, tasks.In(time.Hour)))
	testutil.Ok(t, s.client.Schedules().Put(t.Context(), tasks.Schedule{Name: "nightly", Spec: "0 3 * * *", Work: inc.S(1)}))
	past(t, s)
	c := walk(open(t, s.URL), "full", "", "")
	if len(c.questions) == 0 {
		t.Errorf("no confirmation page: %v", c.paths())
	}
	c.perform()
}

// confirm clicks the link to an action and the button of its confirmation page.
func (b *tab) confirm(link string) {
	b.Helper()
	b.click(link)
	if got := b.click("form[method=post] button"); got != http.StatusOK {
		b.Fatalf("%s: got %d: %.500s", link, got, b.text())
	}
}

// People decide: one decision with two clicks, several together, and who decides late is told the earlier decision.
func TestDecisions(t *testing.T) {
	t.Parallel()
	s := serve(t, redistest.URL(t), true)
	var runs []*tasks.Run[bool]
	for i := range 5 {
		runs = append(runs, begin(t, s, refund.S(fmt.Sprintf("order %d: %s", i, hostile))))
	}
	begin(t, s, waits.S(1))
	testutil.Eventually(t, "all tasks are open", func() bool {
		open, err := s.client.Inspect().OpenTasks(t.Context())
		return err == nil && len(open) == 2 && open[0].Open+open[1].Open == 6
	})
	wants := func(run *tasks.Run[bool], want bool) {
		t.Helper()
		if got, err := run.Wait(t.Context()); err != nil || got != want {
			t.Errorf("got %t, %v, want %t", got, err, want)
		}
	}
	choice := func(run *tasks.Run[bool], label string) string {
		return fmt.Sprintf(`a[href*="choice=%s&task=%s"]`, label, run.ID())
	}
	b, other := open(t, s.URL), open(t, s.URL)
	b.visit("/")
	b.click(`header nav a[href="/todo"]`)
	b.shows("order 4")
	b.inspect("decisions")
	other.visit("/todo")
	other.click(choice(runs[0], "Refuse"))
	b.confirm(choice(runs[0], "Approve"))
	wants(runs[0], true)
	other.expectFailures()
	if got := other.click("form[method=post] button"); got != http.StatusConflict {
		t.Errorf("the second decision: got %d, want 409", got)
	}
	other.shows("already decided: shop.refund of workflow " + runs[0].ID() + " has succeeded at")
	other.shows("with the result true")

	for _, run := range runs[1:4] {
		b.do(chromedp.Click(fmt.Sprintf(`input[name=task][value^="%s"]`, run.ID())))
	}
	other.visit("/todo")
	other.confirm(choice(runs[1], "Approve"))
	b.click(`button[name=choice][value=Refuse]`)
	b.shows("Not included: 1, for example: already decided")
	b.click("form[method=post] button")
	b.shows("Refuse: 2. Unchanged: 1, for example: already decided: shop.refund")
	wants(runs[1], true)
	wants(runs[2], false)
	wants(runs[3], false)

	b.visit("/todo")
	b.click(choice(runs[4], "Other%20result"))
	b.do(chromedp.SendKeys("textarea[name=comment]", "true"))
	b.click("form[method=post] button")
	wants(runs[4], true)
	b.shows("shop.waits")
	if got := b.text(); strings.Contains(got, "shop.refund") {
		t.Errorf("got %.1000s, want no decided tasks", got)
	}
}

// Every page is readable without JavaScript.
func TestWithoutJavaScript(t *testing.T) {
	t.Parallel()
	s := serve(t, redistest.URL(t), true)
	id := over(t, s, tasks.Chord(tasks.Each([]int{1, 2, 3}, inc), sum))
	b := open(t, s.URL)
	send(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	for path, want := range map[string]string{
		"/": "shop.inc → shop.sum", "/workflows": "shop.inc → shop.sum", flow(id): "4 of 4", flow(id) + "/nodes/0": "Result", "/names": "shop.inc", "/queues": "default", "/workers": "worker-1", "/schedule": "No schedules found",
	} {
		got := ""
		if !testutil.Becomes(func() bool { // workers store their counts once a second
			if got := b.visit(path); got != http.StatusOK {
				t.Errorf("%s: got %d, want 200", path, got)
			}
			got = b.text()
			return strings.Contains(got, want) || strings.Contains(got, want[:len(want)/2])
		}) {
			t.Errorf("%s: got %.1000s, want %q", path, got, want)
		}
		if eval[bool](b, `[...document.querySelectorAll("button")].some(e => e.type === "button" && e.checkVisibility())`) {
			t.Errorf("%s: got a button that has no effect without JavaScript", path)
		}
	}
}

// A task is shown beside its workflow without a load of the page, and the browser's back closes it.
func TestTaskBesideItsWorkflow(t *testing.T) {
	t.Parallel()
	s := serve(t, redistest.URL(t), true)
	id := over(t, s, tasks.Chord(tasks.Each([]int{1, 2, 3}, inc), sum))
	b := open(t, s.URL)
	b.visit(flow(id))
	b.status("Live")
	eval[chromedp.Void](b, `window.loaded = true`)
	panel := func() string {
		return eval[string](b, `(document.querySelector(".panel") || {innerText: ""}).innerText`)
	}
	b.do(press(`tr[id="n-0"] a`))
	testutil.Eventually(t, "the task is shown", func() bool { return strings.Contains(panel(), "Result") })
	if got := eval[string](b, `window.loaded + " " + location.pathname`); got != "true "+flow(id)+"/nodes/0" {
		t.Errorf("got %s, want the same page with the URL of the task", got)
	}
	eval[chromedp.Void](b, `history.back()`)
	testutil.Eventually(t, "the task is closed", func() bool { return panel() == "" })
}

// In a list the keyboard moves between rows and selects them; actions appear with a selection, a link removes a filter.
func TestListByKeyboard(t *testing.T) {
	t.Parallel()
	s := serve(t, redistest.URL(t), true)
	over(t, s, inc.S(1))
	id := over(t, s, inc.S(2))
	b := open(t, s.URL)
	b.visit("/workflows?name=inc&within=1h")
	b.status("Live")
	bulk := func() bool { return eval[bool](b, `document.querySelector(".bulk").checkVisibility()`) }
	if bulk() {
		t.Error("actions are shown without a selection")
	}
	b.do(chromedp.KeyEvent("jjkx"))
	if !bulk() || !eval[bool](b, `document.querySelector("tr[id='w-`+id+`'] input").checked`) {
		t.Error("the first row is not selected, or no actions are shown")
	}
	b.do(press(".chip"))
	testutil.Eventually(t, "the filter is removed", func() bool { return eval[string](b, `location.search`) == "?within=1h" })
}

// Changes appear on the page unless updates are paused.
func TestUpdates(t *testing.T) {
	t.Parallel()
	s := serve(t, redistest.URL(t), true)
	first, second := begin(t, s, approval()), begin(t, s, approval())
	b := open(t, s.URL)
	b.visit(flow(first.ID()))
	b.shows("0 of 2")
	b.status("Live")
	complete(t, s, first.ID())
	b.shows("succeeded")
	if got := eval[string](b, `document.querySelector("#news[role=status]").textContent`); !strings.Contains(got, "succeeded") {
		t.Errorf("got %q for screen readers, want a message about the success", got)
	}

	b.visit(flow(second.ID()))
	b.status("Live")
	b.do(press("#pause"))
	b.status("Paused")
	other := open(t, s.URL)
	other.visit(flow(second.ID()))
	other.status("Live")
	complete(t, s, second.ID())
	other.shows("succeeded")
	if got := b.text(); strings.Contains(got, "succeeded") {
		t.Errorf("while updates are paused: got %.500s, want an unchanged page", got)
	}
	b.do(press("#pause"))
	b.shows("succeeded")
	testutil.Eventually(t, "the navigation counts no open tasks", func() bool {
		return !strings.Contains(eval[string](b, `document.querySelector("header nav").textContent`), "open")
	})

	s.stocked.Store(false)
	failed := over(t, s, stock.S(1))
	b.visit(flow(failed))
	b.shows("out of stock")
	testutil.Eventually(t, "the navigation counts failed workflows", func() bool {
		return strings.Contains(eval[string](b, `document.querySelector("header nav").textContent`), "Workflows 1 failed")
	})
	s.stocked.Store(true)
	testutil.Ok(t, s.client.Workflow(failed).Retry(t.Context()))
	b.shows("succeeded") // a workflow that had ended
}

// A hidden page sends no requests, and is updated at once when it is visible again.
func TestHiddenPage(t *testing.T) {
	t.Parallel()
	s := serve(t, redistest.URL(t), true)
	run := begin(t, s, approval())
	b := open(t, s.URL)
	b.visit(flow(run.ID()))
	b.status("Live")
	hide := func(hidden bool) {
		eval[chromedp.Void](b, fmt.Sprintf(`Object.defineProperty(document, "hidden", {configurable: true, get: () => %t}); document.dispatchEvent(new Event("visibilitychange"))`, hidden))
	}
	requests := func(b *tab) int {
		return eval[int](b, `performance.getEntriesByType("resource").filter((e) => e.initiatorType === "fetch").length`)
	}
	visible := open(t, s.URL)
	visible.visit("/workflows")
	hide(true)
	before, beforeVisible := requests(b), requests(visible)
	complete(t, s, run.ID())
	testutil.Eventually(t, "a visible page has sent three requests", func() bool { return requests(visible) >= beforeVisible+3 })
	if got := requests(b); got != before || strings.Contains(b.text(), "succeeded") {
		t.Errorf("got %d requests while the page was hidden, want none", got-before)
	}
	hide(false)
	b.shows("succeeded")
}

// Updates keep changed values of form fields, including fields without focus.
func TestUpdatesKeepTypedText(t *testing.T) {
	t.Parallel()
	s := serve(t, redistest.URL(t), true)
	begin(t, s, approval())
	b := open(t, s.URL)
	b.visit("/workflows")
	b.status("Live")
	b.do(press("main .filter summary"))
	b.do(chromedp.SendKeys("main input[name=name]", "refund"))
	eval[chromedp.Void](b, `(e => { e.value = "24h"; e.dispatchEvent(new Event("input", {bubbles: true})); })(document.querySelector("main select[name=within]"))`)
	b.do(chromedp.Focus("main form button"))
	for want := range 3 {
		begin(t, s, approval())
		testutil.Eventually(t, "the new row appears", func() bool { return eval[int](b, `document.querySelectorAll("main tbody tr").length`) == want+2 })
	}
	if got := eval[string](b, `[...document.querySelectorAll("main input[name=name], main select[name=within]")].map(e => e.value).join(" ")`); got != "refund 24h" {
		t.Errorf("after updates the fields are %q, want refund 24h", got)
	}
	b.click("main form button")
	if got := eval[string](b, `location.search`); got != "?name=refund&label=&task=&error=&queue=&within=24h" {
		t.Errorf("the form was sent as %s", got)
	}
	b.shows("No workflows found")
}

// Selected workflows are retried by clicks. The list does not move while rows are selected.
func TestSelection(t *testing.T) {
	t.Parallel()
	s := serve(t, redistest.URL(t), true)
	for _, reason := range []string{"no stock of 17", "no stock of 18", "closed"} {
		over(t, s, bad.S(reason))
	}
	b := open(t, s.URL)
	b.visit("/workflows?state=failure")
	b.status("Live")
	count := func(selector string) int {
		return eval[int](b, fmt.Sprintf(`document.querySelectorAll(%q).length`, selector))
	}
	b.do(chromedp.Click("input[data-all]"))
	if got := count("tbody input:checked"); got != 3 {
		t.Fatalf("after a click on the checkbox of the head: %d rows are selected, want 3", got)
	}
	over(t, s, bad.S("late"))
	testutil.Eventually(t, "the new row is counted", func() bool {
		return eval[string](b, `(e => e.checkVisibility() ? e.textContent : "")(document.getElementById("more"))`) == "1 new"
	})
	if got := count("tbody tr"); got != 3 {
		t.Errorf("while rows are selected the list has %d, want 3", got)
	}
	b.inspect("selection")
	b.do(press("#more"))
	if all, selected := count("tbody tr"), count("tbody input:checked"); all != 4 || selected != 3 {
		t.Errorf("after a click on 1 new: %d rows, %d selected, want 4 and 3", all, selected)
	}
	b.click(`button[formaction$="/retry"]`)
	b.shows("selected workflows: 3.")
	b.click("form[method=post] button")
	b.shows("Retried 3 workflows.")

	b.visit("/names/shop.bad")
	b.shows("error: no stock of …")
	b.click(`a[href^="?error="]`)
	b.shows("Show all")
	b.inspect("error group")
	b.click(`a[href*="/retry?failed="]`)
	b.shows(`"shop.bad" failed`)
	b.click("form[method=post] button")
	b.shows("Retried 2 workflows.")
}

// On phones, each row of a table is a card with the titles of the columns.
func TestCardsOnPhones(t *testing.T) {
	t.Parallel()
	s := serve(t, redistest.URL(t), true)
	over(t, s, bad.S("closed"))
	b := open(t, s.URL)
	b.look(light, 390)
	b.visit("/workflows")
	b.shows("closed")
	if got := eval[[]string](b, `[...document.querySelectorAll("tbody tr:first-child td")].filter(e => e.checkVisibility() && e.getBoundingClientRect().right <= 390).map(e => e.dataset.title)`); !slices.Equal(got, []string{"Select", "Workflow", "State", "Sent", "Took"}) {
		t.Errorf("visible cells of the row: %q", got)
	}
	if got := eval[string](b, `getComputedStyle(document.querySelector("td[data-title=Sent]"), "::before").content`); got != `"Sent"` {
		t.Errorf("the title of a cell is %s", got)
	}
	b.do(press("input[data-all]"))
	if got := eval[int](b, `document.querySelectorAll("tbody input:checked").length`); got != 1 {
		t.Errorf("after Select all: %d rows are selected, want 1", got)
	}
}

// On phones, the navigation opens by a click, also without JavaScript.
func TestMenuOnPhones(t *testing.T) {
	t.Parallel()
	b := open(t, serve(t, redistest.URL(t), false).URL)
	send(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.look(light, 390)
	b.visit("/queues")
	shown := func() bool { return eval[bool](b, `document.querySelector("header nav a").checkVisibility()`) }
	if shown() {
		t.Error("the navigation is open before a click")
	}
	if got := eval[float64](b, `document.querySelector("h1").getBoundingClientRect().top`); got > 150 {
		t.Errorf("the page begins after %.0f px, want at most 150", got)
	}
	b.do(chromedp.Click(".menu"))
	if !shown() {
		t.Error("the navigation is not open after a click")
	}
	b.click(`header nav a[href="/workers"]`)
	b.shows("No live workers")
}

func TestKeyboard(t *testing.T) {
	t.Parallel()
	s := serve(t, redistest.URL(t), true)
	over(t, s, inc.S(1))
	run := begin(t, s, approval())
	b := open(t, s.URL)
	b.visit("/workflows?state=running")
	active := func() string {
		return eval[string](b, `(e => e.className || e.id || e.getAttribute("href") || e.localName)(document.activeElement)`)
	}
	b.do(chromedp.KeyEvent("\t"))
	if got := active(); got != "skip" {
		t.Errorf("the first tab stop is %s, want the link to the content", got)
	}
	b.do(chromedp.KeyEvent("\r"))
	if got := active(); got != "main" {
		t.Errorf("the link to the content leads to %s, want main", got)
	}
	b.do(chromedp.KeyEvent("/"))
	if got := active(); got != "search" {
		t.Errorf("/ leads to %s, want the search", got)
	}
	row := flow(run.ID())
	for i := 0; active() != row; i++ {
		if i == 40 {
			t.Fatalf("got %s 40 tab stops after the search, want a row of the table", active())
		}
		b.do(chromedp.KeyEvent("\t"))
	}
	begin(t, s, tasks.Chain(waits.S(7), inc)) // a new first row
	testutil.Eventually(t, "the new row appears", func() bool { return eval[int](b, `document.querySelectorAll("main tbody tr").length`) == 2 })
	if got := active(); got != row {
		t.Errorf("after an update the focus is on %s, want unchanged focus: %s", got, row)
	}
	testutil.Must(chromedp.RunResponse(b.ctx, chromedp.KeyEvent("\r")))(t)
	b.shows("0 of 2")
}

// Untrusted texts are escaped and truncated.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	s := serve(t, redistest.URL(t), true)
	failed := over(t, s, bad.S(hostile))
	told := over(t, s, text.S(hostile))
	long := over(t, s, bad.S(hostile+strings.Repeat("<b>long</b> ", 100_000)))
	huge := over(t, s, text.S(hostile+strings.Repeat("<b>long</b> ", 100_000)))
	b := open(t, s.URL)
	for path, shown := range map[string]bool{
		"/": false, "/workflows": false, flow(failed): true, flow(failed) + "/nodes/0": true, flow(told): false, flow(told) + "/nodes/0": true,
		flow(long): true, flow(long) + "/nodes/0": true, flow(huge): false, flow(huge) + "/nodes/0": true,
		"/search?q=" + "%3Cimg%20src%3Dx%20onerror%3D%22window.hostile%3D1%22%3E": false,
	} {
		b.visit(path)
		if eval[bool](b, `"hostile" in window || !!document.querySelector("main img, main script, main b:not([class]):empty")`) {
			t.Errorf("%s: the text was executed", path)
		}
		if got := b.text(); shown && !strings.Contains(got, "<img src=x") && !strings.Contains(got, `\u003cimg src=x`) {
			t.Errorf("%s: got %.1000s, want the text", path, got)
		}
		if got := eval[int](b, `document.documentElement.outerHTML.length`); got > largest {
			t.Errorf("%s: got %d characters, want at most %d", path, got, largest)
		}
	}
	b.visit(flow(long))
	b.inspect("hostile workflow")
	b.visit(flow(huge) + "/nodes/0")
	b.inspect("hostile node")
}

// While Redis is unavailable, the pages show an error, and recover automatically.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	redis := redistest.Server(t, "appendonly", "yes")
	s := serve(t, redis.URL(), false)
	run := begin(t, s, inc.S(1))
	b := open(t, s.URL)
	b.expectFailures()
	b.visit(flow(run.ID()))
	b.status("Live")
	redis.Stop()
	b.status("Not up to date: Redis is unavailable")
	b.shows("0 of 1") // the last known state
	b.inspect("outage of an open page")
	for _, path := range []string{"/", "/workflows", flow(run.ID()), "/names", "/queues", "/workers", "/schedule"} {
		if got := b.visit(path); got != http.StatusServiceUnavailable {
			t.Errorf("%s: got %d, want 503", path, got)
		}
		b.shows("Redis is unavailable")
	}
	b.inspect("outage")
	b.visit(flow(run.ID()))
	redis.Start()
	b.shows("0 of 1")
	b.status("Live")
}
