package ui

import (
	"html/template"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"muster/internal/clip"
	"muster/internal/webui"
	"muster/tasks/tasktype"
)

// funcs are the functions of the templates.
var funcs = template.FuncMap{
	"state":    stateWord,
	"segment":  url.PathEscape,
	"workflow": workflowWord,
	"bytes":    mebibytes,
	"ran":      ran,
	"outcome":  outcomeWord,
	"line":     func(text string) string { return webui.Plain(clip.Line(text, 300)) },
	"names":    func(prefix string, list []taskRow) any { return names{prefix, list} },
	"labels":   newLabels,
	"flows": func(prefix string, selectable bool, list []flowRow) any {
		return flows{prefix, selectable, list, "workflows"}
	},
	"archived": func(prefix string, list []flowRow) any { return flows{prefix, false, list, "archive"} },
}

// flows is a list of workflows with the prefix of the pages.
type flows struct {
	Prefix string
	Select bool // with checkboxes
	List   []flowRow
	Page   string // of a workflow
}

// mebibytes formats a number of bytes.
func mebibytes(n uint64) string { return strconv.FormatUint((n+1<<19)>>20, 10) + " MiB" }

// names is a list of tasks with the prefix of the pages.
type names struct {
	Prefix string
	List   []taskRow
}

// ran returns the duration of the last run of a node; negative if it is running or did not run.
func ran(n tasktype.Node) time.Duration {
	end := n.Ended
	if !n.Planned.IsZero() {
		end = n.Planned
	}
	if n.Started.IsZero() || end.Before(n.Started) {
		return -1
	}
	return end.Sub(n.Started)
}

// labels are links to the workflows with the same labels.
type labels struct {
	Prefix string
	List   []string // key=value
	More   int      // that are not listed
}

// newLabels lists at most some labels.
func newLabels(prefix string, most int, of map[string]string) labels {
	l := labels{Prefix: prefix, List: labelTexts(of)}
	l.More = max(len(l.List)-most, 0)
	l.List = l.List[:len(l.List)-l.More]
	return l
}

// labelTexts returns labels as KEY=VALUE, sorted.
func labelTexts(of map[string]string) (all []string) {
	for _, k := range slices.Sorted(maps.Keys(of)) {
		all = append(all, k+"="+of[k])
	}
	return all
}

// stateWord returns the label of a node state.
func stateWord(s tasktype.Status) string {
	switch s {
	case tasktype.Pending:
		return "pending"
	case tasktype.Started:
		return "running"
	case tasktype.Retry:
		return "retrying"
	case tasktype.Success:
		return "succeeded"
	case tasktype.Failed:
		return "failed"
	case tasktype.Revoked:
		return "revoked"
	case tasktype.Skipped:
		return "skipped"
	}
	return string(s)
}

// outcomeWord returns the label of the outcome of a run that was followed by another run.
func outcomeWord(o tasktype.Outcome) string {
	switch o {
	case tasktype.OutcomeAgain:
		return "repeated"
	case tasktype.OutcomeReturned:
		return "worker stopped"
	case tasktype.OutcomeLost:
		return "worker died"
	case tasktype.OutcomeRetry:
		return "failed"
	}
	return string(o)
}

// workflowWord returns the label of a workflow state.
func workflowWord(s tasktype.WorkflowState) string {
	switch s {
	case tasktype.WorkflowSucceeded:
		return "succeeded"
	case tasktype.WorkflowFailed:
		return "failed"
	}
	return string(s)
}

// newChart returns a chart of the completed tasks with a bar for each step.
func newChart(title string, points []tasktype.RatePoint, since, until time.Time, step time.Duration) webui.Chart {
	all := make([]webui.Point, len(points))
	for i, p := range points {
		all[i] = webui.Point{At: p.Time, Succeeded: p.Succeeded, Failed: p.Failed}
	}
	return webui.NewChart(title, all, since, until, step)
}
