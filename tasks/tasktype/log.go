package tasktype

import "time"

// LogLine is a log line of a task.
type LogLine struct {
	Time    time.Time `json:"time"`
	Level   string    `json:"level"` // as of log/slog, such as INFO
	Node    string    `json:"node"`
	Task    string    `json:"task"`
	Attempt int       `json:"attempt"`
	Text    string    `json:"text"` // message and attributes, at most 1,000 bytes
}
