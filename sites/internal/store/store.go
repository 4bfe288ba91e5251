// Package store defines the Redis keys, scripts and stored values of the packages of sites.
package store

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/wrap"
	"muster/sites/definition"
	"muster/sites/fetch"
	"muster/sites/report"
	"muster/tasks/workqueue"
)

// Keep is how long Redis keeps a job after its last step.
const Keep = 7 * 24 * time.Hour

// ReadJSON reads a JSON value. ok is false if the key does not exist.
func ReadJSON[T any](ctx context.Context, rdb redis.UniversalClient, key string) (v T, ok bool, err error) {
	data, err := rdb.Get(ctx, key).Bytes()
	if errors.Is(err, redis.Nil) {
		return v, false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	return v, err == nil, wrap.Err(err, "read %s", key)
}

var (
	//go:embed lua/grant.lua
	grantLua string
	grantCmd = redis.NewScript(grantLua)
)

// Grant adds the records and bytes of a page to the totals of a job at a key and returns how many of its records to keep. The job may have at most
// maxRecords; 0 is no limit. Grant is idempotent per page.
func Grant(ctx context.Context, rdb redis.UniversalClient, key, page string, records, bytes int, maxRecords int64) (int, error) {
	n, err := grantCmd.Run(ctx, rdb, []string{key}, page, records, bytes, maxRecords, Keep.Milliseconds()).Int()
	return n, wrap.Err(err, "count a page in %s", key)
}

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
