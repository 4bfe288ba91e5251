package store

import (
	"strings"
	"time"
)

// The states of records: the first letters of their stored form, which the comment of the package describes.
const (
	StateDelayed   = 'D' // waits for its time
	StateRetrying  = 'T' // likewise, after a failure
	StateLimited   = 'L' // waits for a limit per key
	StateUnhandled = 'H' // waits for a worker with a handler
	StateGathering = 'G' // waits for others of its batch
	StateReady     = 'Q'
	StateOpen      = 'W' // waits for an external result
	StatePlanned   = 'P' // its plan runs
	StateMapping   = 'E' // a map that has its members
	StateMapped    = 'e' // a map whose members have all succeeded
	StateSkipping  = 'k' // skipped; the nodes that need it do not know yet
	StateSkipped   = 'K'
	StateSucceeded = 'S'
	StateFailed    = 'F'
	StateRevoked   = 'X'
)

// Record is the stored state of a node.
type Record struct {
	State    byte // as above; 0 without a record
	Attempts int
	Lost     int
	At       int64 // of D, T, L, H and G when it is due: unix ms; of Q when it was due as one of a batch
	Expires  int64 // of D, T, L, H, G and Q when it expires: unix ms; 0 for never
	Owner    string
	Began    time.Time // of P, of W when it began to wait, and of a terminal node that ran
	Deadline time.Time // of W; zero for none
	Ended    time.Time // of a terminal node
	Body     []byte    // of S, F and X
	Input    []byte    // the literal input, which is not in the record; nil for none
	Cause    string    // of k and K
}

// Terminal reports whether nothing follows the state.
func (r *Record) Terminal() bool {
	switch r.State {
	case StateSucceeded, StateFailed, StateRevoked, StateSkipped, StateSkipping:
		return true
	}
	return false
}

// ParseRecord reads a record; created is when the workflow was sent, in unix ms. A damaged record is read as far as
// possible; the rest is zero.
func ParseRecord(raw []byte, created int64) Record {
	if len(raw) == 0 {
		return Record{}
	}
	r := Record{State: raw[0]}
	split := func(n int) []string { return append(strings.SplitN(string(raw), "|", n), make([]string, n)...) }
	switch r.State {
	case StateSkipping, StateSkipped:
		_, r.Cause, _ = strings.Cut(string(raw), "|")
	case StateSucceeded, StateFailed, StateRevoked:
		p := split(6)
		r.Attempts = int(toInt(p[1]))
		if p[2] != "" {
			r.Began = time.UnixMilli(created + toInt(p[2])).UTC()
		}
		r.Ended = time.UnixMilli(created + toInt(p[3])).UTC()
		r.Owner = p[4]
		r.Body = raw[len(raw)-len(p[5]):]
	case StateDelayed, StateRetrying, StateLimited, StateUnhandled, StateGathering, StateReady:
		p := split(6)
		r.Attempts, r.Lost, r.At, r.Expires = int(toInt(p[1])), int(toInt(p[2])), toInt(p[3]), toInt(p[4])
	case StateOpen:
		p := split(4)
		r.Attempts, r.Began = int(toInt(p[1])), time.UnixMilli(created+toInt(p[2])).UTC()
		if at := toInt(p[3]); at > 0 {
			r.Deadline = time.UnixMilli(at).UTC()
		}
	case StatePlanned:
		p := split(5)
		r.Attempts, r.Lost, r.Owner = int(toInt(p[1])), int(toInt(p[2])), p[4]
		if p[3] != "" {
			r.Began = time.UnixMilli(created + toInt(p[3])).UTC()
		}
	}
	return r
}
