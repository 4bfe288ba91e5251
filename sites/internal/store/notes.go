package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"muster/sites/definition"
	"muster/sites/fetch"
	"muster/sites/report"
	"muster/tasks/workqueue"
)

// The writer of a job stores notes with the outputs of its queue: the number of written records by type, and the notes below.
// Types cannot have such names.
const (
	TroubleNote = "!trouble" // error of the writer; empty if it can write
	ClosedNote  = "!closed " // plus the ID of a job: its summary as JSON, after its files are closed
)

// Written returns the number of written records by type, and the error that blocks the writer, or "".
func Written(ctx context.Context, out *workqueue.Outputs) (byType map[string]int, trouble string, err error) {
	notes, err := out.Notes(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("count records: %w", err)
	}
	byType = map[string]int{}
	for typ, n := range notes {
		if !strings.HasPrefix(typ, "!") {
			byType[typ], _ = strconv.Atoi(n) // writers store only numbers
		}
	}
	return byType, notes[TroubleNote], nil
}

// FailureOf describes a failed page. ok is false if its item is damaged.
func FailureOf(info workqueue.Info) (f report.FailedPage, ok bool) {
	var page struct {
		URL  string          `json:"url"`
		Post definition.Post `json:"post"`
	}
	if json.Unmarshal(info.Payload, &page) != nil {
		return f, false
	}
	var result struct {
		Class      fetch.Class `json:"class"`
		RetryAfter time.Time   `json:"retry_after"`
	}
	if len(info.Result) == 0 || json.Unmarshal(info.Result, &result) != nil {
		result.Class = "lost"
	}
	failure := report.Failure{URL: page.URL, Class: result.Class, Attempts: info.Attempts, Error: info.Note}
	return report.FailedPage{Status: report.StatusOf(result.Class), Failure: failure, RetryAfter: result.RetryAfter, Post: page.Post, Item: info.ID}, true
}
