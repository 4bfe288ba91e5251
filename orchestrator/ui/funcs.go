package ui

import (
	"encoding/json"
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/counts"
	"muster/internal/webui"
	"muster/jobs"
	"muster/jobs/pipeline"
	"muster/orchestrator/event"
	"muster/sites"
	taskui "muster/tasks/ui"
)

// line returns the beginning of an untrusted string on one line, at most n characters, safe for display.
var line = webui.OneLine

// funcs are the functions of the templates.
var funcs = template.FuncMap{
	"share":   func(f float64) string { return fmt.Sprintf("%.0f %%", 100*f) },
	"percent": func(f float64) string { return fmt.Sprintf("%.0f", 100*min(max(f, 0), 1)) },
	"digits":  func(f float64) string { return strconv.FormatFloat(f, 'g', 3, 64) },
	"rate":    func(f float64) string { return fmt.Sprintf("%.1f", f) },
	"seconds": func(f float64) string { return webui.Took(time.Duration(f * float64(time.Second))) },
	"join":    func(texts []string) string { return strings.Join(texts, ", ") },
	"lower":   strings.ToLower,
	"millis":  millis,
	"tone":    tone,
	"outcome": outcome,
	"quality": quality,
	"sum":     sum,
	"pace":    paceOf,
	"bar":     byState,
	"steps":   stepsOf,
	"details": indented,
	"event":   aboutEvent,
	"summary": jobs.Item.Summary,
	"grouped": grouped,
	"byhour":  byHour,
	"bycount": counts.Names[string],
	"choices": func() []taskui.Choice { return itemChoices },
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

// part is a part of a bar with a width of 1000.
type part struct {
	State string
	N     int64
	X, W  float64
}

// byState returns the non-empty parts of a bar of items, ended items first.
func byState(c jobs.Counts) []part {
	all := slices.DeleteFunc([]part{
		{State: string(jobs.ItemIntegrated), N: c.Integrated}, {State: string(jobs.ItemRejected), N: c.Rejected}, {State: string(jobs.ItemFailed), N: c.Failed},
		{State: string(jobs.ItemReview), N: c.Review}, {State: string(jobs.ItemValidating), N: c.Validating}, {State: string(jobs.ItemPending), N: c.Pending},
	}, func(p part) bool { return p.N <= 0 })
	total := int64(0)
	for _, p := range all {
		total += p.N
	}
	x := 0.0
	for i := range all {
		all[i].X, all[i].W = x, 1000*float64(all[i].N)/float64(total)
		x += all[i].W
	}
	return all
}

// step is a stage with its progress bar.
type step struct {
	jobs.Stage
	Done, Total int64 // items that have passed the stage
	Bar         bool
	Open        bool // can be ended manually
}

// stepsOf returns the stages of a job with their progress bars.
func stepsOf(j jobs.Job) []step {
	var all []step
	var open int64 // items in the stages so far
	for _, st := range j.Stages {
		s := step{Stage: st, Open: !j.Status.Terminal() && st.Status != jobs.StageCompleted && st.Status != jobs.StageFailed}
		if st.Takes == pipeline.TakesItem {
			open += st.Pending + st.Processing
			s.Bar, s.Total, s.Done = j.Items.Total > 0, j.Items.Total, max(j.Items.Total-open, 0)
		}
		all = append(all, s)
	}
	return all
}

// indented formats JSON for display, and omits an empty object.
func indented(raw json.RawMessage) webui.Document {
	if text := strings.TrimSpace(string(raw)); text == "" || text == "{}" || text == "null" {
		return webui.Document{}
	}
	return webui.NewJSON(promptShown, raw)
}

// eventData is the data of an event that is shown.
type eventData struct {
	Key  string // of an item
	Text string
}

// aboutEvent returns the data of an event.
func aboutEvent(e event.Event) eventData {
	var data struct{ Key, Stage, Error, Reason, Decision, By string }
	if json.Unmarshal(e.Data, &data) != nil {
		return eventData{}
	}
	parts := slices.DeleteFunc([]string{data.Stage, data.Error, data.Decision, data.By, data.Reason}, func(s string) bool { return s == "" })
	return eventData{data.Key, line(200, strings.Join(parts, ": "))}
}

// grouped groups errors by their text.
func grouped(errs []jobs.ItemError) []webui.Group[jobs.ItemError] {
	return webui.Grouped(errs, func(e jobs.ItemError) string { return line(300, e.Error) })
}
