package store

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"muster/internal/clip"
	"muster/tasks/tasktype"
)

// maxMessage is the limit of the message that is kept of a run, in bytes.
const maxMessage = 300

// EncodeRun returns the form in which scripts store a run that was followed by another; the scripts add its number.
func EncodeRun(a *tasktype.NodeAttempt) []byte {
	out := strconv.AppendInt(nil, int64(a.Attempt), 10)
	for _, at := range [...]time.Time{a.Started, a.Ended} {
		out = append(out, '|')
		if !at.IsZero() {
			out = strconv.AppendInt(out, at.UnixMilli(), 10)
		}
	}
	failure, _ := json.Marshal([2]string{a.Code, clip.Bytes(a.Message, maxMessage)}) // strings have no error
	out = append(out, '|')
	out = append(out, a.Outcome...)
	out = append(out, '|')
	out = append(out, a.Worker...)
	out = append(out, '|')
	return append(out, failure...)
}

// ParseRuns reads the field of [FieldRuns]. It omits damaged lines.
func ParseRuns(lines []byte) (out []tasktype.NodeAttempt) {
	for line := range bytes.Lines(lines) {
		p := strings.SplitN(string(line), "|", 7)
		var failure [2]string
		if len(p) < 7 || json.Unmarshal([]byte(p[6]), &failure) != nil {
			continue
		}
		a := tasktype.NodeAttempt{Run: int(toInt(p[0])), Attempt: int(toInt(p[1])), Outcome: tasktype.Outcome(p[4]), Worker: p[5], Code: failure[0], Message: failure[1]}
		for i, at := range [...]*time.Time{&a.Started, &a.Ended} {
			if p[2+i] != "" {
				*at = time.UnixMilli(toInt(p[2+i]))
			}
		}
		out = append(out, a)
	}
	return out
}
