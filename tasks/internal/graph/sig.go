// Package graph computes which nodes of a workflow can run, given the outcomes of others. It does no I/O.
//
// A [Sig] is the untyped tree of a signature. [Compile] turns it into a [Graph]: tasks and the joins between them,
// with edges from each node to the nodes that its outcome affects. The graph is stored once for each workflow; a
// process that finishes a node reads the next steps from it.
package graph

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"
)

// Shape is the way in which a [Sig] combines its parts.
type Shape uint8

// The shapes of a signature.
const (
	Call      Shape = iota + 1 // one task with a literal input
	Chain                      // Kids[0], then the task with its result
	Chord                      // a Chain over a list, so that options of a send reach both sides
	Group                      // all Kids, as a list
	Map                        // the task once for each element of Kids[0]
	Join                       // two Kids, as an object
	Settle                     // the members of Kids[0] as outcomes
	After                      // Kids[1] once Kids[0] has succeeded
	Rescue                     // Kids[0], or the task with its failure
	OnSuccess                  // Kids[0]; its value also goes to the task
	OnError                    // Kids[0]; its failure also goes to the task
	Value                      // Input, without a task
	MapFunc                    // Body once for each element of Kids[0]
	Try                        // Kids[0] as an outcome
)

// Sig is an immutable tree of tasks to run. Two uses of one *Sig in one send are one run.
type Sig struct {
	Shape Shape
	Task  string          // name of the task the shape adds, if it adds one
	Input json.RawMessage // of a Call or a Value
	Opts  *Opts           // of that task, or of the group
	Spec  *Spec           // of a Call, in place of the defaults of Opts
	Kids  []*Sig
	Err   error // why this signature cannot be sent

	Body *Sig // of a MapFunc
	Hole *Sig // the Value in Body for the element

	Compiled *Graph // of a stored send, which has nothing else
}

// Opts are the options of a task, a group or a send; a nil or zero field is unset.
type Opts struct {
	Every
	Queue    string
	Priority *int
	In       *time.Duration
	At       *time.Time
	FailFast bool
	AtMost   int
	External bool
	Choices  []Choice

	// Of a whole workflow.
	ID               string
	NewID            string // a generated id, in place of a new one
	Deadline         *time.Time
	Retention        *time.Duration // of a success
	FailureRetention *time.Duration
	Progress         string
	Unique           string
	UniqueTTL        time.Duration
	Once             bool // a success keeps the unique key
	FairnessKey      string
	Headers          map[string]string
	Name             string
	Labels           map[string]string
	Overlap          string // name of the policy for its unique key

	// Of a declaration, used by workers only.
	Alias  []string
	Limits []*Limit // in the order in which they are applied

	OutputChunks, OutputBytes int // limits of the output; 0 for the defaults

	// Of a client.
	Namespace string // empty for the default

	Bind []json.RawMessage // second halves of the input; the last one is added first

	Err error // of the first invalid option
}

// Every are the options that, given to a send, reach every task.
type Every struct {
	Timeout  *time.Duration `json:"to,omitempty"` // soft: the deadline of the handler's context
	Hard     *time.Duration `json:"ht,omitempty"` // hard: the node fails and its slot is freed
	MaxRetry *int           `json:"mr,omitempty"`
	Backoff  *Backoff       `json:"b,omitempty"`
	Expires  *time.Duration `json:"ex,omitempty"`
}

// Backoff is the delay before a retry.
type Backoff struct {
	Base  time.Duration `json:"b,omitempty"`
	Cap   time.Duration `json:"c,omitempty"`
	Fixed bool          `json:"f,omitempty"` // always Base, without growth and jitter
}

// Limit is a named limit of the nodes of tasks that have the same key: N run at once, or N start in each Per.
type Limit struct {
	Name string
	N    int
	Per  time.Duration
	In   reflect.Type                       // that Key decodes an input to
	Key  func(input []byte) (string, error) // the error is of an input that does not decode; nil if all nodes have the same key
}

// NoOpts sets nothing; it must not be written to.
var NoOpts = &Opts{}

// Over returns o with every field that is set in top replaced by top's.
func (o *Opts) Over(top *Opts) *Opts {
	if o == nil {
		o = &Opts{}
	}
	if top == nil || top == NoOpts {
		return o
	}
	m := *o
	m.Queue = cmp.Or(top.Queue, m.Queue)
	m.Priority = cmp.Or(top.Priority, m.Priority)
	m.Timeout = cmp.Or(top.Timeout, m.Timeout)
	m.Hard = cmp.Or(top.Hard, m.Hard)
	m.MaxRetry = cmp.Or(top.MaxRetry, m.MaxRetry)
	m.Backoff = cmp.Or(top.Backoff, m.Backoff)
	if top.In != nil || top.At != nil {
		m.In, m.At = top.In, top.At
	}
	m.Expires = cmp.Or(top.Expires, m.Expires)
	m.FailFast = m.FailFast || top.FailFast
	m.External = m.External || top.External
	if top.Choices != nil {
		m.Choices = top.Choices
	}
	m.AtMost = cmp.Or(top.AtMost, m.AtMost)
	m.ID = cmp.Or(top.ID, m.ID)
	m.NewID = cmp.Or(top.NewID, m.NewID)
	m.Deadline = cmp.Or(top.Deadline, m.Deadline)
	m.Retention = cmp.Or(top.Retention, m.Retention)
	m.FailureRetention = cmp.Or(top.FailureRetention, m.FailureRetention)
	m.Progress = cmp.Or(top.Progress, m.Progress)
	if top.Unique != "" {
		m.Unique, m.UniqueTTL, m.Once = top.Unique, top.UniqueTTL, top.Once
	}
	m.Overlap = cmp.Or(top.Overlap, m.Overlap)
	m.Headers = merged(m.Headers, top.Headers)
	m.Labels = merged(m.Labels, top.Labels)
	m.Name = cmp.Or(top.Name, m.Name)
	m.FairnessKey = cmp.Or(top.FairnessKey, m.FairnessKey)
	m.Limits = slices.Concat(m.Limits, top.Limits)
	m.Err = cmp.Or(m.Err, top.Err)
	m.Alias = append(slices.Clone(m.Alias), top.Alias...)
	return &m
}

// merged returns base with the values of top, without a change of either.
func merged(base, top map[string]string) map[string]string {
	if len(top) == 0 {
		return base
	}
	out := maps.Clone(base)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, top)
	return out
}

// With returns s with opts on the tasks that s itself adds: a task, the last step of a chain or chord, every member
// of a group, every instance of a map, or the wrapped part. Shared parts stay shared.
func (s *Sig) With(opts *Opts) *Sig { return s.with(opts, map[*Sig]*Sig{}) }

func (s *Sig) with(opts *Opts, memo map[*Sig]*Sig) *Sig {
	if s == nil || reflect.ValueOf(opts).Elem().IsZero() {
		return s
	}
	if c, ok := memo[s]; ok {
		return c
	}
	c := *s
	memo[s] = &c
	kids := func(opts *Opts) {
		c.Kids = make([]*Sig, len(s.Kids))
		for i, k := range s.Kids {
			c.Kids[i] = k.with(opts, memo)
		}
	}
	switch s.Shape {
	case Map:
		c.Opts = s.Opts.Over(opts)
	case Call, Chain, Chord:
		if opts.AtMost > 0 || opts.FailFast {
			c.Err = errors.New("options tasks.AtMost and tasks.FailFast are for a group, a map or a join")
		}
		c.Opts = s.Opts.Over(opts)
	case After:
		c.Kids = []*Sig{s.Kids[0], s.Kids[1].with(opts, memo)}
	case MapFunc:
		c.Opts = s.Opts.Over(opts.whole())
		c.body(func(b *Sig) *Sig { return b.with(opts.each(), memo) }, memo)
	case Value:
	case Group, Join:
		c.Opts = s.Opts.Over(opts.whole())
		kids(opts.each())
	default:
		kids(opts)
	}
	return &c
}

// whole returns the options for a group as a whole.
func (o *Opts) whole() *Opts { return &Opts{AtMost: o.AtMost, FailFast: o.FailFast, Err: o.Err} }

// each returns the options for every member of a group.
func (o *Opts) each() *Opts {
	c := *o
	c.AtMost, c.FailFast = 0, false
	return &c
}

// body replaces the body of s by the result of change, and updates the hole.
func (s *Sig) body(change func(*Sig) *Sig, memo map[*Sig]*Sig) {
	s.Body = change(s.Body)
	if hole, ok := memo[s.Hole]; ok {
		s.Hole = hole
	}
}

// firsts collects the parts to which a queue or priority of a send applies: the first step of a chain, both sides
// of a chord and every member of a group.
func (s *Sig) firsts(into map[*Sig]bool) {
	if s == nil || into[s] {
		return
	}
	into[s] = true
	for i, k := range s.Kids {
		if s.Shape != After || i == 0 {
			k.firsts(into)
		}
	}
}

// sendWith applies the options of a send: a queue and a priority apply to the first tasks; retries and time limits to
// every task. Shared parts stay shared.
func (s *Sig) sendWith(opts *Opts, first map[*Sig]bool, memo map[*Sig]*Sig) *Sig {
	if s == nil {
		return nil
	}
	if c, ok := memo[s]; ok {
		return c
	}
	c := *s
	memo[s] = &c
	mine := &Opts{Every: opts.Every}
	switch s.Shape {
	case Call, Chord, Map:
		if first[s] {
			mine.Queue, mine.Priority = opts.Queue, opts.Priority
		}
		c.Opts = s.Opts.Over(mine)
	case Group, Join, After, Settle, Try, Value:
	case MapFunc:
		c.body(func(b *Sig) *Sig { return b.sendWith(opts, first, memo) }, memo)
	default:
		c.Opts = s.Opts.Over(mine)
	}
	c.Kids = make([]*Sig, len(s.Kids))
	for i, k := range s.Kids {
		c.Kids[i] = k.sendWith(opts, first, memo)
	}
	return &c
}

// ForSend returns s under the options of a send.
func (s *Sig) ForSend(opts *Opts) *Sig {
	if opts.Queue != "" || opts.Priority != nil || opts.Every != (Every{}) {
		first := map[*Sig]bool{}
		s.firsts(first)
		s = s.sendWith(opts, first, map[*Sig]*Sig{})
	}
	return s
}
