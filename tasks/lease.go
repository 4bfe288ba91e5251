package tasks

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"muster/tasks/internal/engine"
	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// defaultLease is how long a lease lasts by default.
const defaultLease = 30 * time.Second

// Lease takes tasks for a program that is not a [Worker], such as one in another language, and waits until there is one. It returns
// between one and Max tasks that are ready, or none after Wait. The program ends each task with [Client.Complete] or [Client.Fail] and
// the token of the lease, until then it calls [Client.Beat]. A lease that is not extended expires: the attempt has failed with
// [tasktype.CodeTimeout], and if [MaxRetry] allows another one, the task is leased again with another token, and the old one is
// stale. A lease survives the end of the process that called Lease.
//
// The tasks need a queue without workers that have no handler for them, as tasks of different programs do. Their options count,
// except for limits, which workers apply. A client waits for 1,000 calls at once, with 100 different lists of tasks.
func (c *Client) Lease(ctx context.Context, req tasktype.LeaseRequest) ([]tasktype.LeasedTask, error) {
	req.Queue, req.Max, req.For = cmp.Or(req.Queue, "default"), cmp.Or(req.Max, 1), cmp.Or(req.For, defaultLease)
	var err error
	switch {
	case !validQueue(req.Queue):
		err = badLease("queue %.110q: a name has 1 to 100 bytes, and no brace, colon, bar or white space", req.Queue)
	case len(req.Tasks) == 0 || len(req.Tasks) > tasktype.MaxLeases:
		err = badLease("%d names of tasks: give 1 to %d", len(req.Tasks), tasktype.MaxLeases)
	case req.Max < 1 || req.Max > tasktype.MaxLeases:
		err = badLease("max %d: give 1 to %d", req.Max, tasktype.MaxLeases)
	case req.For < time.Second || req.For > longest || req.Wait < 0:
		err = badLease("lease for %s, wait %s: a lease lasts for a second or longer, and a wait is not negative", req.For, req.Wait)
	}
	for _, name := range req.Tasks {
		if bad := graph.CheckTask(name); bad != nil {
			err = badLease("%v", bad)
		}
	}
	if err != nil {
		return nil, wrap(err, "lease tasks")
	}
	out, err := c.eng.Leaser.Lease(ctx, &req)
	return out, wrap(err, "lease tasks")
}

// badLease returns an ErrInvalid.
func badLease(format string, args ...any) error {
	return store.Kind(ErrInvalid, fmt.Sprintf(format, args...))
}

// Beat extends the lease of a task to d from now, but not beyond the [Timeout] of the attempt. It returns the errors of
// [Client.Extend]: after any of them except an error of Redis, the program should stop its work on the task.
func (c *Client) Beat(ctx context.Context, token string, d time.Duration) error {
	if d < time.Second || d > longest {
		return badLease("extend a lease by %s: it must be a second or longer", d)
	}
	return wrap(c.eng.Completer.Extend(ctx, engine.ByToken(token, ""), d, true), "extend the lease of a task")
}
