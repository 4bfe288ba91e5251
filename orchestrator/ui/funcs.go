package ui

import (
	"fmt"
	"html/template"
	"net/url"
	"strings"
	"time"

	"muster/internal/webui"
	"muster/jobs"
	"muster/sites"
)

// funcs are the functions of the templates.
var funcs = template.FuncMap{
	"plain":   webui.Plain,
	"line":    line,
	"plus":    func(a, b int64) int64 { return a + b },
	"share":   func(f float64) string { return fmt.Sprintf("%.0f %%", 100*f) },
	"percent": func(f float64) string { return fmt.Sprintf("%.0f", 100*min(max(f, 0), 1)) },
	"millis":  millis,
	"tone":    tone,
	"outcome": outcome,
	"quality": quality,
	"lower":   strings.ToLower,
	"seg":     url.PathEscape,
	"sum":     sum,
	"seconds": func(f float64) string { return webui.Took(time.Duration(f * float64(time.Second))) },
	"rate":    func(f float64) string { return fmt.Sprintf("%.1f", f) },
}

// millis formats milliseconds, with a dash for none.
func millis(f float64) string {
	if f <= 0 {
		return "–"
	}
	return webui.Took(time.Duration(f * float64(time.Millisecond)))
}

// tones maps states of all kinds to classes of badges: SUCCESS, FAILURE, RETRY for a warning, STARTED for work in progress.
var tones = map[string]string{
	"healthy": "SUCCESS", "complete": "SUCCESS", "completed": "SUCCESS", "active": "SUCCESS", "ok": "SUCCESS", "ready": "SUCCESS",
	"yields": "SUCCESS", "success": "SUCCESS", "integrated": "SUCCESS", "closed": "SUCCESS",
	"critical": "FAILURE", "failed": "FAILURE", "failure": "FAILURE", "banned": "FAILURE", "unavailable": "FAILURE", "open": "FAILURE",
	"degraded": "RETRY", "paused": "RETRY", "blocked": "RETRY", "incomplete": "RETRY", "canceled": "RETRY", "cancelled": "RETRY",
	"expired": "RETRY", "revoked": "RETRY", "rests": "RETRY", "rejected": "RETRY", "review": "RETRY", "draining": "RETRY", "half_open": "RETRY",
	"running": "STARTED", "processing": "STARTED", "validating": "STARTED",
}

// tone returns the class of the badge of a state, or "".
func tone(state any) string { return tones[strings.ToLower(fmt.Sprint(state))] }

// outcome returns the tone of a job's state. A completed job with failed items is a warning, and a failure if no item was
// integrated or rejected.
func outcome(j jobs.Job) string {
	switch {
	case j.Status != jobs.Completed || j.Items.Failed == 0:
		return tone(j.Status)
	case j.Items.Failed == j.Items.Processed():
		return "FAILURE"
	}
	return "RETRY"
}

// quality returns the tone of a scrape's state. A complete scrape has the tone of the health of its data.
func quality(j sites.Job) string {
	if t := tone(j.Status); t != "SUCCESS" || j.Summary == nil || j.Summary.Health.Status == "" {
		return t
	}
	return tone(j.Summary.Health.Status)
}

func sum(byType map[string]int) int {
	n := 0
	for _, of := range byType {
		n += of
	}
	return n
}
