package browser

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	logs "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"muster/internal/testutil"
)

//go:embed testdata/axe.min.js
var axe string

// tab is a browser tab with separate cookies. At the end of the test it checks that the pages sent requests only to their server
// and that the console has no errors.
type tab struct {
	*testing.T
	ctx  context.Context
	base string // base URL of the server, such as http://127.0.0.1:1234

	mu       sync.Mutex // guards the fields below
	faults   []string
	expected bool // failed requests are expected
}

// open opens a tab for the pages of a server.
func open(t *testing.T, base string) *tab {
	t.Helper()
	if chromium == "" {
		t.Skip("NOT COVERED: Chromium not found; set MUSTER_TEST_BROWSER")
	}
	b := &tab{T: t, base: base}
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext(), chromedp.WithListener(b.heard))
	b.ctx = ctx
	t.Cleanup(func() {
		cancel()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, fault := range b.faults {
			t.Error(fault)
		}
	})
	b.do(chromedp.Navigate("about:blank"))
	b.look(light, 1280)
	return b
}

// heard records violations in browser events.
func (b *tab) heard(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fault := func(format string, args ...any) { b.faults = append(b.faults, fmt.Sprintf(format, args...)) }
	switch ev := ev.(type) {
	case *network.EventRequestWillBeSent:
		u, err := url.Parse(ev.Request.URL)
		if err != nil || (u.Scheme+"://"+u.Host != b.base && u.Scheme != "about" && u.Scheme != "data") {
			fault("%s requests %.200s, want no external requests", ev.DocumentURL, ev.Request.URL)
		}
	case *runtime.EventExceptionThrown:
		fault("exception: %s %+v", ev.ExceptionDetails.Text, ev.ExceptionDetails.Exception)
	case *runtime.EventConsoleAPICalled:
		if ev.Type == runtime.ConsoleAPICalledTypeError || ev.Type == runtime.ConsoleAPICalledTypeWarning {
			var text []string
			for _, arg := range ev.Args {
				text = append(text, fmt.Sprintf("%s%s", arg.Value, arg.Description))
			}
			fault("console %s: %s", ev.Type, strings.Join(text, " "))
		}
	case *logs.EventEntryAdded:
		if ev.Entry.Level == logs.EntryLevelError && (ev.Entry.Source != logs.EntrySourceNetwork || !b.expected) {
			fault("console: %s: %s", ev.Entry.URL, ev.Entry.Text)
		}
	}
}

// expectFailures allows failed requests.
func (b *tab) expectFailures() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = true
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	testutil.Ok(b, chromedp.Do(b.ctx, steps...))
}

// send sends a DevTools command to the tab.
func send[P, R any](b *tab, c cdp.Command[P, R], params P) R {
	b.Helper()
	r, err := chromedp.Run(b.ctx, func(ctx context.Context, t *chromedp.Target) (R, error) { return cdp.Call(ctx, t, c, params) })
	if err != nil {
		b.Fatalf("%s: %v", c.Method, err)
	}
	return r
}

// visit opens a page and returns its status.
func (b *tab) visit(path string) int64 {
	b.Helper()
	res, err := chromedp.Run(b.ctx, chromedp.NavigateResponse(b.base+path))
	if err != nil {
		b.Fatalf("open %s: %v", path, err)
	}
	return res.Status
}

// click clicks the first element that matches a selector, waits for the next page and returns its status.
func (b *tab) click(selector string) int64 {
	b.Helper()
	return b.clickOn(element(selector))
}

// clickOn is like click for the element that is the value of a JavaScript expression.
func (b *tab) clickOn(js string) int64 {
	b.Helper()
	res, err := chromedp.RunResponse(b.ctx, chromedp.Evaluate[chromedp.Void](js+dispatchClick))
	if err != nil {
		b.Fatalf("click on %s: %v", js, err)
	}
	return res.Status
}

// press clicks an element that does not open a page.
func press(selector string) chromedp.Action[chromedp.Void] {
	return chromedp.Evaluate[chromedp.Void](element(selector) + dispatchClick)
}

func element(selector string) string { return fmt.Sprintf("document.querySelector(%q)", selector) }

const dispatchClick = `.dispatchEvent(new MouseEvent("click", {bubbles: true, cancelable: true, view: window}))`

// eval returns the value of a JavaScript expression in the page.
func eval[T any](b *tab, js string) T {
	b.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](js, chromedp.EvalAwaitPromise))
	if err != nil {
		b.Fatalf("evaluate %.200s: %v", js, err)
	}
	return v
}

// text returns the text of the main content.
func (b *tab) text() string { return eval[string](b, `document.getElementById("main").innerText`) }

// shows waits until the page contains a text.
func (b *tab) shows(want string) {
	b.Helper()
	got := ""
	if !testutil.Becomes(func() bool { got = b.text(); return strings.Contains(got, want) }) {
		b.Fatalf("got %.2000s\nwant %q", got, want)
	}
}

// status waits until the update status contains a text.
func (b *tab) status(want string) {
	b.Helper()
	got := ""
	if !testutil.Becomes(func() bool {
		got = eval[string](b, `document.getElementById("livestate").textContent`)
		return strings.Contains(got, want)
	}) {
		b.Fatalf("got update status %q, want %q", got, want)
	}
}

const light, dark = "light", "dark"

// look sets the preferred color scheme and the window width.
func (b *tab) look(colours string, width int64) {
	b.Helper()
	send(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: colours}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
	send(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 900, DeviceScaleFactor: 1})
}

// violation is a violation found by axe-core.
type violation struct {
	ID, Help, Impact string
	Nodes            []struct {
		HTML, FailureSummary string
		Target               []any
	}
}

// violations returns the violations found by axe-core, for all rules or some.
func (b *tab) violations(rules ...string) []string {
	b.Helper()
	options := map[string]any{"resultTypes": []string{"violations"}}
	if len(rules) > 0 {
		options["runOnly"] = map[string]any{"type": "rule", "values": rules}
	}
	raw := testutil.Must(json.Marshal(options))(b)
	if !eval[bool](b, "typeof axe === 'object'") {
		eval[chromedp.Void](b, axe+";0")
	}
	found := eval[[]violation](b, fmt.Sprintf(`axe.run(document, %s).then(r => r.violations)`, raw))
	var all []string
	for _, v := range found {
		text := fmt.Sprintf("%s: %s: %d times, as in", v.ID, v.Help, len(v.Nodes))
		for _, n := range v.Nodes[:min(len(v.Nodes), 3)] {
			why := strings.Split(n.FailureSummary, "\n")
			text += fmt.Sprintf("\n    %.200s %.250s", n.HTML, strings.TrimSpace(why[min(1, len(why)-1)]))
		}
		all = append(all, text)
	}
	return all
}

var plain = regexp.MustCompile(`[^a-zA-Z0-9]+`)

// inspect runs the automatic checks on the page of a tab: axe-core and the width. It does nothing with -short.
func (b *tab) inspect(name string) {
	b.Helper()
	if testing.Short() {
		return
	}
	folder := os.Getenv("MUSTER_TEST_PICTURES")
	// Only contrast rules depend on colors, and only size rules on the width.
	for _, v := range []struct {
		colours string
		width   int64
		rules   []string
	}{
		{light, 1280, nil}, {dark, 1280, []string{"color-contrast"}},
		{light, 390, []string{"target-size", "scrollable-region-focusable"}}, {dark, 390, nil},
	} {
		if folder == "" && v.colours == dark && v.width == 390 {
			continue
		}
		b.look(v.colours, v.width)
		eval[chromedp.Void](b, `new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(() => drawn())))`)
		if folder != "" {
			b.picture(filepath.Join(folder, fmt.Sprintf("%s-%d-%s.png", strings.Trim(plain.ReplaceAllString(name, "-"), "-"), v.width, v.colours)))
		}
		if v.colours == dark && v.width == 390 {
			continue
		}
		for _, found := range b.violations(v.rules...) {
			b.Errorf("%s: %s, %d px: %s", name, v.colours, v.width, found)
		}
		if got := eval[int64](b, `document.documentElement.scrollWidth`); got > v.width {
			b.Errorf("%s: the page is %d px wide, want at most %d: %s", name, got, v.width, eval[string](b, widest))
		}
	}
	b.look(light, 1280)
}

// widest lists the elements that make a page too wide.
const widest = `[...document.querySelectorAll("body *")].filter(e => {
	if (e.getBoundingClientRect().right <= innerWidth) return false;
	for (let p = e.parentElement; p; p = p.parentElement) if (/auto|scroll|hidden/.test(getComputedStyle(p).overflowX)) return false;
	return true;
}).slice(0, 5).map(e => e.outerHTML.slice(0, 150)).join("\n")`

// picture writes a screenshot of the complete page.
func (b *tab) picture(file string) {
	b.Helper()
	raw, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o700)
	}
	if err == nil {
		err = os.WriteFile(file, raw, 0o600)
	}
	if err != nil {
		b.Fatalf("take a picture: %v", err)
	}
}
