package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
)

// Any call of a client can fail: after a repetition, by the same or another client, it has taken effect once.
func TestClientSurvivesAFaultAtAnyCall(t *testing.T) {
	t.Parallel()
	redistest.EachFault(t, map[redistest.Kind]int{
		redistest.Refused: 100, redistest.ReplyLost: 100, redistest.Repeated: 100, redistest.Frozen: 10,
	}, callWithFault)
}

// visitor is a client that repeats calls that fail.
type visitor struct {
	*tasks.Client
	ctx context.Context
}

// must repeats a call until it returns no error, or an error that means that an earlier call succeeded.
func (v *visitor) must(what string, done []error, call func() error) error {
	for range 5 {
		err := call()
		if err == nil {
			return nil
		}
		for _, is := range done {
			if errors.Is(err, is) {
				return nil
			}
		}
		if !errors.Is(err, redistest.ErrFault) {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return fmt.Errorf("%s: it fails again and again", what)
}

func callWithFault(t *testing.T, f *redistest.Fault) {
	ctx := limited(t)
	url := redistest.URL(t)
	w := newWorld(t, connect(t, url).Redis())
	visit := func(c *tasks.Client) (err error) {
		var asks string // whose id is made up
		v := &visitor{c, ctx}
		step := func(what string, call func() error, done ...error) {
			if err == nil {
				err = v.must(what, done, call)
			}
		}
		step("send", func() error {
			_, err := tasks.Chord(tasks.Each(ints(3), Note), Total).Send(ctx, c, tasks.ID("named"))
			return err
		}, tasks.ErrDuplicate)
		step("send the unique one", func() error {
			run, err := review.S(draft{"a"}).Send(ctx, c, tasks.Unique("one", time.Hour))
			if run != nil {
				asks = run.ID()
			}
			if f.Kind == redistest.Repeated && err != nil {
				return fmt.Errorf("sent twice by its connection: %w", err)
			}
			return err
		}, tasks.ErrDuplicate)
		step("send one to revoke", func() error {
			_, err := ID.S(1, tasks.In(time.Hour)).Send(ctx, c, tasks.ID("late"))
			return err
		}, tasks.ErrDuplicate)
		step("revoke", func() error { return tasks.Attach[int](c, "late").Revoke(ctx) })
		step("answer", func() error { return answerOpen(ctx, c, asks) }, tasks.ErrCompleted)
		step("wait", func() error { _, err := tasks.Attach[opinion](c, asks).Wait(ctx); return err })
		step("send one that waits for signals", func() error {
			_, err := tasks.Chain3(score.S("loan"), nextScore, nextScore).Send(ctx, c, tasks.ID("signalled"))
			return err
		}, tasks.ErrDuplicate)
		for i := range 3 {
			step("signal", func() error { return tasks.Signal(ctx, c, "signalled", score, i+1) }, tasks.ErrEnded)
		}
		return err
	}
	f.Arm()
	c := tasks.NewClient(f.Client(t, url))
	t.Cleanup(func() { f.Release(); _ = c.Close() })
	over := make(chan error, 1)
	go func() { over <- visit(c) }()
	if f.Kind == redistest.Frozen {
		select {
		case <-f.Hit():
			if err := visit(w.client); err != nil {
				t.Error(err)
			}
			f.Release()
		case err := <-over:
			over <- err
		}
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
	wantValue(t, tasks.Attach[int](w.client, "named"), 3)
	// A call that is repeated by the caller is another signal; one that is repeated by its connection is not.
	if got, err := tasks.Attach[int](w.client, "signalled").Wait(ctx); err != nil || got > 3 || f.Kind == redistest.Repeated && got != 3 {
		t.Errorf("value of the third signal: got %d, %v", got, err)
	}
	const unique = "muster:{0}:u:one"
	rdb := w.client.Redis()
	for _, id := range []string{"named", "late", "signalled", strings.TrimSuffix(rdb.Get(ctx, unique).Val(), "~")} {
		ended(t, w, id)
	}
	if ttl := rdb.PTTL(ctx, unique).Val(); ttl <= 0 || ttl > time.Hour {
		t.Errorf("unique key: got time to live %s, want up to an hour", ttl)
	}
	rdb.Del(ctx, unique)
	if members, bodies := len(w.noted("note")), len(w.noted("total")); members != 3 || bodies != 1 {
		t.Errorf("%d members and %d bodies ran, want 3 and 1", members, bodies)
	}
	if err := nothingLeft(ctx, rdb); err != nil {
		t.Error(err)
	}
}

// answerOpen completes the only node of a workflow, once it is open.
func answerOpen(ctx context.Context, c *tasks.Client, id string) (err error) {
	if !testutil.Becomes(func() bool {
		n, gone := c.Nodes(ctx, id)
		err = gone
		return gone != nil || len(n) == 1 && n[0].Waits != "" || n[0].Status.Terminal()
	}) {
		return errors.New("the node is not open")
	}
	if err != nil {
		return err
	}
	token, err := c.NewToken(ctx, id, "0")
	if errors.Is(err, tasks.ErrNotOpen) {
		return tasks.ErrCompleted
	}
	if err != nil {
		return err
	}
	if err := c.Extend(ctx, token, time.Hour); err != nil {
		return err
	}
	return tasks.Complete(ctx, c, review, token, opinion{true})
}
