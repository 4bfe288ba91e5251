package store

import (
	"context"
	"encoding/json"
	"fmt"

	"muster/tasks/tasktype"
)

// MaxLog is the maximum number of stored log lines of a workflow.
const MaxLog = 200

// logKey is the key of the log lines of a workflow.
func (k Keys) logKey(f Flow) string { return k.Key(f) + ":log" }

// AddLog stores log lines of the tasks of a workflow, unless it has expired.
func (s Flows) AddLog(ctx context.Context, f Flow, lines []tasktype.LogLine) error {
	args := []any{f.Ref, MaxLog}
	for _, l := range lines {
		raw, err := json.Marshal(l)
		if err != nil {
			return fmt.Errorf("encode log line: %w", err)
		}
		args = append(args, raw)
	}
	if _, err := s.call(ctx, "log", f.shard, args...); err != nil {
		return fmt.Errorf("store log lines: %w", err)
	}
	return nil
}

// Log returns the stored log lines of a workflow.
func (s Flows) Log(ctx context.Context, f Flow) ([]tasktype.LogLine, error) {
	raws, err := s.rdb.LRange(ctx, s.logKey(f), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("read log lines: %w", err)
	}
	lines := make([]tasktype.LogLine, len(raws))
	for i, raw := range raws {
		if err := json.Unmarshal([]byte(raw), &lines[i]); err != nil {
			return nil, fmt.Errorf("log line of workflow %s: %w", f.ID(), err)
		}
	}
	return lines, nil
}
