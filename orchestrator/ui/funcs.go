package ui

import (
	"fmt"
	"html/template"
	"net/url"
	"strings"
	"time"

	"muster/internal/webui"
)

// funcs are functions of the templates.
var funcs = template.FuncMap{
	"plain":   plain,
	"line":    line,
	"look":    look,
	"plus":    func(a, b int64) int64 { return a + b },
	"share":   func(f float64) string { return fmt.Sprintf("%.0f %%", 100*f) },
	"percent": func(f float64) string { return fmt.Sprintf("%.0f", 100*min(max(f, 0), 1)) },
	"millis":  millis,
	"tone":    tone,
	"lower":   strings.ToLower,
	"seg":     url.PathEscape,
	"sum":     sum,
	"list2":   func(a, b any) []any { return []any{a, b} },
	"seconds": func(f float64) string { return webui.Took(time.Duration(f * float64(time.Second))) },
	"rate":    func(f float64) string { return fmt.Sprintf("%.1f", f) },
}

// millis writes milliseconds, or a dash for none.
func millis(f float64) string {
	if f <= 0 {
		return "–"
	}
	return webui.Took(time.Duration(f * float64(time.Millisecond)))
}

// tone is the class of a badge: SUCCESS, FAILURE, RETRY for a warning, STARTED for what is under way, or none.
func tone(state any) string {
	switch strings.ToLower(fmt.Sprint(state)) {
	case "healthy", "complete", "completed", "active", "ok", "ready", "yields", "success":
		return "SUCCESS"
	case "critical", "failed", "failure", "banned":
		return "FAILURE"
	case "degraded", "paused", "blocked", "incomplete", "canceled", "cancelled", "expired", "revoked", "rests":
		return "RETRY"
	case "running", "processing":
		return "STARTED"
	}
	return ""
}

func sum(byType map[string]int) int {
	n := 0
	for _, of := range byType {
		n += of
	}
	return n
}
