package ui

import (
	"html/template"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"muster/internal/clip"
	"muster/tasks/tasktype"
)

// funcs are the functions of the templates.
var funcs = template.FuncMap{
	"state":     stateWord,
	"segment":   url.PathEscape,
	"workflow":  workflowWord,
	"bytes":     mebibytes,
	"mebibytes": func(n int64) string { return mebibytes(uint64(n)) },
	"ran":       ran,
	"outcome":   outcomeWord,
	"line":      func(text string) string { return clip.Line(text, 300) },
	"names":     func(prefix string, list []taskRow) any { return names{prefix, list} },
	"labels":    newLabels,
	"flows": func(prefix string, selectable bool, list []flowRow) any {
		return flows{prefix, selectable, list}
	},
}

// flows is a list of workflows with the prefix of the pages.
type flows struct {
	Prefix string
	Select bool // with checkboxes
	List   []flowRow
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
