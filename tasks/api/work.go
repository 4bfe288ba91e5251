package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"muster/internal/httpproblem"
	"muster/tasks"
)

// Work is a task, or a combination of work.
type Work struct {
	Task     string          `json:"task,omitempty" maxLength:"100" doc:"name of a task"`
	Input    json.RawMessage `json:"input,omitempty" doc:"its input, any JSON value; absent for a task that gets a result"`
	External bool            `json:"external,omitempty" doc:"no worker runs the task: it is completed externally"`

	Chain []Work `json:"chain,omitempty" maxItems:"1000" doc:"any work, then tasks that each get the result of the step before"`
	Group []Work `json:"group,omitempty" doc:"work that runs at the same time; the result is the list of results"`
	Chord *Chord `json:"chord,omitempty" doc:"work with a list as its result, then a task that gets the list"`
	Map   *Map   `json:"map,omitempty" doc:"work with a list as its result, then a task for each element; the result is the list of results"`

	AtMost   int  `json:"at_most,omitempty" minimum:"1" doc:"members of a group or map that run at once; defaults to all"`
	FailFast bool `json:"fail_fast,omitempty" doc:"the first failure in a group or map revokes the other members"`

	TaskOptions
}

// Chord is work and the task that gets its list of results.
type Chord struct {
	Header Work `json:"header"`
	Body   Work `json:"body"`
}

// Map is work and the task for each element of its result.
type Map struct {
	List Work `json:"list"`
	Each Work `json:"each"`
}

// TaskOptions are options of a task, or of all tasks of the work that do not have their own.
type TaskOptions struct {
	Queue    string `json:"queue,omitempty" maxLength:"100" doc:"defaults to default"`
	Priority int    `json:"priority,omitempty" minimum:"0" maximum:"255" doc:"above 0: before all others of its queue"`
	MaxRetry int    `json:"max_retry,omitempty" minimum:"0" maximum:"1000" doc:"attempts after the first"`
	Timeout  string `json:"timeout,omitempty" maxLength:"50" doc:"time limit of an attempt" example:"30s"`
}

// over returns the options with defaults.
func (o TaskOptions) over(d TaskOptions) TaskOptions {
	return TaskOptions{cmp.Or(o.Queue, d.Queue), cmp.Or(o.Priority, d.Priority), cmp.Or(o.MaxRetry, d.MaxRetry), cmp.Or(o.Timeout, d.Timeout)}
}

// workDepth bounds the nesting of work.
const workDepth = 100

// usedTask is a task of work.
type usedTask struct{ at, task, queue string }

// workBuilder makes signatures of work.
type workBuilder struct {
	depth int
	used  []usedTask // that workers run
}

type (
	anyTask = tasks.Task[json.RawMessage, json.RawMessage]
	anyWork = tasks.Signature[json.RawMessage]
	anyList = tasks.Signature[[]json.RawMessage]
)

// build returns the signature of work at a path of the request.
func (b *workBuilder) build(w *Work, at string, above TaskOptions) (sig anyWork, err error) {
	if b.depth++; b.depth > workDepth {
		return sig, httpproblem.BadField(at, "nested more than %d deep; use a chain", workDepth)
	}
	defer func() { b.depth-- }()
	if n := w.parts(); n != 1 {
		return sig, httpproblem.BadField(at, "give exactly one of task, chain, group, chord and map, not %d", n)
	}
	if (w.AtMost != 0 || w.FailFast) && len(w.Group) == 0 && w.Map == nil {
		return sig, httpproblem.BadField(at, "at_most and fail_fast are for a group or a map")
	}
	opts := w.over(above)
	switch {
	case w.Task != "":
		if w.Input == nil {
			return sig, httpproblem.BadField(at+".input", "expected the input of task %s: it gets no result of other work; give null for none", w.Task)
		}
		t, err := b.task(w, at, opts)
		return t.S(w.Input), err
	case len(w.Chain) > 0:
		if sig, err = b.build(&w.Chain[0], at+".chain[0]", opts); err != nil {
			return sig, err
		}
		for i := range w.Chain[1:] {
			t, err := b.next(&w.Chain[i+1], fmt.Sprintf("%s.chain[%d]", at, i+1), opts)
			if err != nil {
				return sig, err
			}
			sig = tasks.Chain(sig, t)
		}
		return sig, nil
	case len(w.Group) > 0:
		members := make([]anyWork, len(w.Group))
		for i := range members {
			if members[i], err = b.build(&w.Group[i], fmt.Sprintf("%s.group[%d]", at, i), opts); err != nil {
				return sig, err
			}
		}
		return anyWork(tasks.Group(members...).With(w.group()...)), nil
	case w.Chord != nil:
		header, err := b.build(&w.Chord.Header, at+".chord.header", opts)
		if err != nil {
			return sig, err
		}
		body, err := b.next(&w.Chord.Body, at+".chord.body", opts)
		return tasks.Chain(header, body), err
	}
	list, err := b.build(&w.Map.List, at+".map.list", opts)
	if err != nil {
		return sig, err
	}
	each, err := b.next(&w.Map.Each, at+".map.each", opts)
	return anyWork(tasks.Map(anyList(list), each, w.group()...)), err
}

// parts returns how many kinds of work w is.
func (w *Work) parts() (n int) {
	for _, is := range []bool{w.Task != "", len(w.Chain) > 0, len(w.Group) > 0, w.Chord != nil, w.Map != nil} {
		if is {
			n++
		}
	}
	return n
}

// group returns the options of a group or map.
func (w *Work) group() (opts []tasks.GroupOption) {
	if w.AtMost > 0 {
		opts = append(opts, tasks.AtMost(w.AtMost))
	}
	if w.FailFast {
		opts = append(opts, tasks.FailFast())
	}
	return opts
}

// next returns the task of work that gets the result of other work.
func (b *workBuilder) next(w *Work, at string, above TaskOptions) (t anyTask, err error) {
	switch {
	case w.Task == "" || w.parts() > 1 || w.AtMost != 0 || w.FailFast:
		return t, httpproblem.BadField(at, "expected a task, which gets the result of the work before it")
	case w.Input != nil:
		return t, httpproblem.BadField(at+".input", "leave it out: task %s gets the result of the work before it", w.Task)
	}
	return b.task(w, at, w.over(above))
}

// task returns the task of work.
func (b *workBuilder) task(w *Work, at string, o TaskOptions) (t anyTask, err error) {
	timeout, err := durationOf(at+".timeout", o.Timeout)
	if err != nil {
		return t, err
	}
	opts := []tasks.TaskOption{tasks.Priority(o.Priority), tasks.MaxRetry(o.MaxRetry)}
	if o.Queue != "" {
		opts = append(opts, tasks.Queue(o.Queue))
	}
	if o.Timeout != "" {
		opts = append(opts, tasks.Timeout(timeout))
	}
	if w.External {
		opts = append(opts, tasks.External())
	} else {
		b.used = append(b.used, usedTask{at + ".task", w.Task, cmp.Or(o.Queue, "default")})
	}
	return tasks.New[json.RawMessage, json.RawMessage](w.Task, opts...), nil
}

// signature returns the work of a new workflow at a path of the request, and the options of its send.
func (s *service) signature(ctx context.Context, n *NewWorkflow, at string) (sig anyWork, opts []tasks.SendOption, err error) {
	opts, err = n.options(at)
	if err != nil {
		return sig, nil, err
	}
	own := Work{Task: n.Task, Input: n.Input, External: n.External}
	var b workBuilder
	switch {
	case n.Work == nil && n.Task == "":
		err = httpproblem.BadField(at+".task", "expected the name of a task, or work")
	case n.Work == nil:
		sig, err = b.build(&own, at, TaskOptions{Queue: n.Queue})
	case own.parts() > 0 || n.Input != nil || n.External || n.Queue != "" || n.Priority != 0 || n.MaxRetry != 0 || n.Timeout != "":
		err = httpproblem.BadField(at+".work", "task, input, external, queue, priority, max_retry and timeout exclude it; give them in work")
	default:
		sig, err = b.build(n.Work, at+".work", TaskOptions{})
	}
	if err != nil || !n.RequireHandlers {
		return sig, opts, err
	}
	workers, err := s.Client.Inspect().Workers(ctx)
	if err != nil {
		return sig, nil, err
	}
	handled := map[usedTask]bool{}
	for _, w := range workers {
		for q := range w.Queues {
			for _, t := range w.Tasks {
				handled[usedTask{"", t, q}] = true
			}
		}
	}
	if i := slices.IndexFunc(b.used, func(u usedTask) bool { return !handled[usedTask{"", u.task, u.queue}] }); i >= 0 {
		u := b.used[i]
		err = httpproblem.BadField(u.at, "no live worker of queue %s has a handler for task %s: start it, correct the name, or leave out require_handlers", u.queue, u.task)
	}
	return sig, opts, err
}
