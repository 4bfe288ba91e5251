package tasks

import (
	"context"
	"fmt"

	"muster/tasks/internal/engine"
	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
)

// Sending is a workflow for [Client.SendMany].
type Sending struct {
	Work    Work
	Options []SendOption
}

// Sent is the result of a [Sending].
type Sent struct {
	ID  string // with ErrDuplicate, of the workflow that has the ID or unique key; empty with other errors
	Err error
}

// SendMany sends many workflows, as [Signature.Send] does, in few round trips. It returns a result for each of sends, in their
// order. A workflow that cannot be sent does not affect the others; err is nil if all were sent. The workflows are not sent as
// a whole: if the program is killed, some of them may have been sent. [Attach] returns the handle of a workflow.
func (c *Client) SendMany(ctx context.Context, sends []Sending) (results []Sent, err error) {
	list := make([]engine.Sending, len(sends))
	for i, s := range sends {
		list[i].Opts = collect(s.Options, SendOption.forSend)
		if s.Work != nil {
			list[i].Sig = s.Work.work()
		} else {
			list[i].Sig = &graph.Sig{Shape: graph.Value, Err: fmt.Errorf("send %d has no work", i)}
		}
	}
	results = make([]Sent, len(sends))
	failed := 0
	for i, r := range c.eng.Sender.SendMany(ctx, list) {
		if r.Ref != "" {
			results[i].ID = store.IDOf(r.Ref)
		}
		if r.Err == nil {
			continue
		}
		results[i].Err = fmt.Errorf("send workflow: %w", r.Err)
		if failed++; failed == 1 {
			err = results[i].Err
		}
	}
	if failed > 0 {
		err = fmt.Errorf("%d of %d workflows were not sent; the first: %w", failed, len(sends), err)
	}
	return results, err
}
