// Package store keeps workflows, results and progress in Redis.
package store

import "errors"

// ErrUnknown says that no workflow has this id.
var ErrUnknown = errors.New("no such workflow: it was never sent, or its retention is over")

// Failure is why a node has no value.
type Failure struct {
	Task     string `json:"task"`
	Node     string `json:"node"`
	Attempts int    `json:"attempts"`
	Message  string `json:"message"`
	Code     string `json:"code"`
}
