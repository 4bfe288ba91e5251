package jobs_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/jobs"
)

// Processes that were about to end a job, or to stop its work, do not end or stop the job that was reopened meanwhile.
func TestReopenedJobIsNotEndedByLateProcesses(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		j := w.endedWithFailures()
		for range 10 {
			stop := make(chan struct{})
			var late sync.WaitGroup
			for range 4 {
				late.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						if err := w.client.Redis().ZAdd(w.ctx, "muster:{jobs}:todo", redis.Z{Score: 1, Member: j.ID}).Err(); err != nil {
							t.Error(err)
							return
						}
						_ = w.Sweep(w.ctx)
					}
				})
			}
			if n, err := w.Retry(w.ctx, j.ID); n != 2 || err != nil {
				t.Fatalf("retry: got %d, %v, want 2", n, err)
			}
			for failed := 0; failed < 2; {
				work := w.take("validator", "v")
				err := w.Fail(w.ctx, work, permanent{errors.New("again")}, 0, true)
				switch {
				case err == nil:
					failed++
				case !errors.Is(err, jobs.ErrLeaseLost): // a late process may have sealed the queue for a moment
					t.Fatal(err)
				}
			}
			done := w.until(j.ID, jobs.Completed)
			close(stop)
			late.Wait()
			if want := (jobs.Counts{Total: 3, Integrated: 1, Failed: 2}); done.Items != want {
				t.Fatalf("items: got %+v, want %+v", done.Items, want)
			}
		}
	})
}
