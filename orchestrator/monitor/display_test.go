package monitor

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestLinesAreRateLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		d := New(&out, Lines)
		track := d.Track("shop")
		for i := range int64(100) {
			track.Update(Progress{Done: i + 1, Total: 100, Unit: "pages"})
			time.Sleep(100 * time.Millisecond) // synctest's clock
		}
		track.Done("100 records")
		track.Done("again")
		track.Update(Progress{Done: 1, Total: 100})
		d.Close()

		got := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(got) != 6 { // at 0, 2, 4, 6, 8 s and the end
			t.Fatalf("got %d lines, want 6:\n%s", len(got), out.String())
		}
		if want := "[PROGRESS] shop: 21/100 pages (21%) - 0m 02s"; got[1] != want {
			t.Errorf("got %q, want %q", got[1], want)
		}
		if want := "[DONE] shop: 100 records - 0m 10s"; got[5] != want {
			t.Errorf("got %q, want %q", got[5], want)
		}
	})
}

func TestCloseFailsRunningTracks(t *testing.T) {
	t.Parallel()
	for _, format := range []Format{Lines, Bars, None} {
		t.Run(string(format), func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			d := New(&out, format)
			d.Track("unknown size")
			track := d.Track("shop")
			track.Update(Progress{Done: 3, Total: 10, Unit: "pages"})
			d.Close()
			d.Close()
			track.Done("late")
			if format != None && format != Bars && strings.Count(strings.ToLower(out.String()), "failed") != 2 {
				t.Errorf("both tracks should be shown as failed:\n%s", out.String())
			}
			if strings.Contains(out.String(), "late") {
				t.Errorf("a closed display must show nothing more:\n%s", out.String())
			}
		})
	}
}

func TestDisplayIsSafeForManyJobs(t *testing.T) {
	t.Parallel()
	for _, format := range []Format{Lines, Bars} {
		t.Run(string(format), func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			d := New(&out, format)
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					track := d.Track(fmt.Sprintf("site-%d", i))
					for n := range int64(50) {
						track.Update(Progress{Done: n, Total: 50, Unit: "pages"})
					}
					fmt.Fprintf(d, "a log line of %d\n", i)
					track.Done("")
				})
			}
			wg.Wait()
			d.Close()
			if !strings.Contains(out.String(), "site-7") {
				t.Errorf("no line about the last site:\n%s", out.String())
			}
		})
	}
}

func TestDoneShowsTheTotal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	d := New(&out, Lines)
	track := d.Track("shop")
	track.Update(Progress{Done: 3, Total: 4, Unit: "pages"})
	track.Done("")
	d.Close()
	if !strings.Contains(out.String(), "[DONE] shop: ") || !strings.Contains(out.String(), "4/4 pages (100%)") {
		t.Errorf("got %s, want done with 4 of 4", out.String())
	}
}

// If there is little space, the brief note is displayed, truncated to the available width.
func TestNoteFits(t *testing.T) {
	t.Parallel()
	v := &bar{now: Progress{Note: "58 ok, 1 errors, 100 queued", Brief: "58 ok 1 err 100 q"}}
	for columns, want := range map[int]string{
		100: "  58 ok, 1 errors, 100 queued", 39: "  58 ok, 1 errors, 100 queued", 38: "  58 ok 1 err 100 q", 10: "  58 ok 1…", 3: "  …", 2: "", 0: "",
	} {
		if got := v.note(columns); got != want {
			t.Errorf("%d columns: got %q, want %q", columns, got, want)
		}
	}
}
