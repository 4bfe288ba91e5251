package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
)

var (
	score     = tasks.New[string, int]("signal.score", tasks.External())
	nextScore = tasks.New[int, int]("signal.score", tasks.External())
	askTwice  = tasks.New[string, int]("signal.ask_twice", tasks.Queue("signal.plans"))
)

// signals sends the numbers 1 to n as signals.
func signals(t *testing.T, c *tasks.Client, id string, n int) {
	t.Helper()
	for i := range n {
		testutil.Ok(t, tasks.Signal(t.Context(), c, id, score, i+1))
	}
}

func TestEarlySignalsAreReceivedInOrder(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		run := started(t, d.client, tasks.Chain3(score.S("loan", tasks.In(100*time.Millisecond)), nextScore, nextScore))
		signals(t, d.client, run.ID(), 3)
		if got, err := run.Wait(limited(t)); got != 3 || err != nil {
			t.Errorf("value of the third task: got %d, %v, want the third signal", got, err)
		}
	})
}

func TestEachSignalIsReceivedOnce(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		const n = 30
		run := started(t, d.client, tasks.Each(make([]string, n), score))
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				if err := tasks.Signal(t.Context(), d.client, run.ID(), score, i); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		got, err := run.Wait(limited(t))
		testutil.Ok(t, err)
		slices.Sort(got)
		for i := range n {
			if got[i] != i {
				t.Fatalf("got %v, want each signal once", got)
			}
		}
	})
}

func TestSignalsReachNodesOfPlans(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		mux := tasks.NewMux()
		tasks.HandlePlan(mux, askTwice, func(context.Context, string) (tasks.Signature[int], error) {
			return tasks.Chain(score.S("loan"), nextScore), nil
		})
		worker, err := tasks.StartWorker(t.Context(), d.client, mux, tasks.WorkerConfig{Queues: map[string]int{"signal.plans": 1}})
		testutil.Ok(t, err)
		t.Cleanup(worker.Kill)
		run := started(t, d.client, askTwice.S("loan"))
		signals(t, d.client, run.ID(), 2)
		if got, err := run.Wait(limited(t)); got != 2 || err != nil {
			t.Errorf("got %d, %v, want 2", got, err)
		}
	})
}

func TestSignalErrors(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		ctx := limited(t)
		wantError(t, "unknown workflow", tasks.Signal(ctx, d.client, "none", score, 1), tasks.ErrUnknown)
		run := started(t, d.client, score.S("loan", tasks.In(time.Hour)))
		for want, err := range map[string]error{
			"not JSON":          d.client.Signal(ctx, run.ID(), score.Name(), []byte("{")),
			"16777216":          d.client.Signal(ctx, run.ID(), score.Name(), fmt.Appendf(nil, "%q", strings.Repeat("x", 16<<20))),
			"control character": d.client.Signal(ctx, run.ID(), "a\nb", []byte("1")),
			"tasks.External":    tasks.Signal(ctx, d.client, started(t, d.client, publish.S(opinion{}, tasks.In(time.Hour))).ID(), publish, ""),
		} {
			if !errors.Is(err, tasks.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want ErrInvalid with %q", err, want)
			}
		}
		testutil.Ok(t, run.Revoke(ctx))
		wantError(t, "revoked workflow", tasks.Signal(ctx, d.client, run.ID(), score, 1), tasks.ErrEnded)
	})
}

func TestSignalsOfATaskAreLimited(t *testing.T) {
	t.Parallel()
	d := newDesk(t, redistest.New(t))
	run := started(t, d.client, score.S("loan", tasks.In(time.Hour)))
	signals(t, d.client, run.ID(), 1000)
	wantError(t, "signal 1001", tasks.Signal(t.Context(), d.client, run.ID(), score, 1), tasks.ErrSignals)
}
