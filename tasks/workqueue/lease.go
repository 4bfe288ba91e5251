package workqueue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// maxLease is how many items one call leases: the script unpacks two values for
// each, and Redis unpacks some thousands at most.
const maxLease = 500

// Lease leases up to n ready items, at most 500, to a worker, by priority and then
// oldest first, each for the queue's LeaseTTL. Nothing ready is an empty list, not an
// error. The worker's name need not be unique: no item is handed out twice.
func (q *Queue) Lease(ctx context.Context, worker string, n int) ([]Leased, error) {
	got, err := q.LeaseWithin(ctx, worker, n, Budget{Default: -1})
	return got.Items, err
}

// Budget is how many items may be leased that need a resource.
type Budget struct {
	Default int            // of a resource that Left does not name; below 0: no bound
	Left    map[string]int // by resource key; below 0: no bound

	// MaxInProgress is how many items all workers may work on at once; 0: no bound. While no other worker holds leases, a
	// worker may lease Ahead more to have them at hand; it must work on no more than Batch.Room. Own are the IDs of the
	// items whose leases the worker holds; other calls may end some of them meanwhile.
	MaxInProgress, Ahead int
	Own                  []string
}

// Batch is the result of LeaseWithin.
type Batch struct {
	Items      []Leased
	PassedOver bool          // ready items were left because their resources had no budget
	Paused     bool          // the queue is paused or sealed
	Next       time.Duration // until a delayed item or a lease comes due; below 0: none will
	Room       int           // how many items the worker may work on, with Budget.MaxInProgress
	Exhausted  int           // items that ended in StateError because the lease of their last attempt expired
}

// LeaseWithin is Lease that takes no more items of a resource than the budget
// allows, and takes the next that can run instead.
func (q *Queue) LeaseWithin(ctx context.Context, worker string, n int, b Budget) (Batch, error) {
	if err := checkWorker(worker); err != nil {
		return Batch{Next: -1}, err
	}
	if n <= 0 {
		return Batch{Next: -1}, nil
	}
	n = min(n, maxLease)
	args := make([]any, 0, 8+len(b.Own)+2*len(b.Left))
	args = append(args, worker, n, q.cfg.LeaseTTL.Milliseconds(), q.cfg.MaxAttempts, b.Default, b.MaxInProgress, b.Ahead, len(b.Own))
	args = append(args, anys(b.Own)...)
	for k, left := range b.Left {
		args = append(args, k, left)
	}
	v, err := q.run(ctx, "lease", "lease", args...)
	if err != nil {
		return Batch{Next: -1}, err
	}
	list, _ := v.([]any)
	return Batch{
		Items:      parseLeased(ctx, q, list[5:], worker),
		Paused:     toInt(list[0]) == 1,
		Next:       time.Duration(toInt(list[1])) * time.Millisecond,
		PassedOver: toInt(list[2]) == 1,
		Room:       max(0, b.MaxInProgress-int(toInt(list[3]))),
		Exhausted:  int(toInt(list[4])),
	}, nil
}

// parseLeased decodes the leased items that the scripts return. Items that cannot be decoded fail.
func parseLeased(ctx context.Context, q *Queue, list []any, worker string) []Leased {
	items := make([]Leased, 0, len(list)/6)
	var invalid []Settlement
	for v := range slices.Chunk(list, 6) {
		it, _, err := parseSpec(toString(v[0]), toString(v[5]))
		it.ID = toString(v[0])
		leased := Leased{
			Item: it, Worker: worker,
			Token: toInt(v[1]), Attempts: int(toInt(v[2])), Retried: int(toInt(v[3])),
			Waited: time.Duration(toInt(v[4])) * time.Millisecond,
		}
		if err != nil {
			invalid = append(invalid, Settlement{leased, Failed(err)})
			continue
		}
		items = append(items, leased)
	}
	if len(invalid) > 0 {
		q.cfg.Logger.ErrorContext(ctx, "items cannot be decoded", "queue", q.name, "items", len(invalid), "first", invalid[0].Outcome.Note)
		for _, err := range q.SettleAll(ctx, invalid...) {
			if err != nil {
				q.cfg.Logger.WarnContext(ctx, "cannot settle an item that cannot be decoded; it is leased again when its lease expires", "queue", q.name, "err", err)
			}
		}
	}
	return items
}

// Heartbeat extends leases by the queue's LeaseTTL from now and returns those
// that are lost: their items may run elsewhere by now.
func (q *Queue) Heartbeat(ctx context.Context, leases ...Leased) (lost []Leased, err error) {
	for part := range slices.Chunk(leases, 1000) {
		args := append(make([]any, 0, 1+2*len(part)), q.cfg.LeaseTTL.Milliseconds())
		codes, err := q.ints(ctx, "extend leases", "heartbeat", withTokens(args, part)...)
		if err != nil {
			return lost, err
		}
		lost = append(lost, refusedLeases(part, codes)...)
	}
	return lost, nil
}

// Return returns leases: the items are ready again at once, in their old place,
// and no attempt is counted. A lease that was lost is not an error.
func (q *Queue) Return(ctx context.Context, leases ...Leased) error {
	for part := range slices.Chunk(leases, 1000) {
		if _, err := q.ints(ctx, "return leases", "return", withTokens(nil, part)...); err != nil {
			return err
		}
	}
	return nil
}

// ExpireWorker ends all leases of a worker that is known to be dead, as if
// they had expired, and returns their number: the items are ready at once, and
// each has used up an attempt.
func (q *Queue) ExpireWorker(ctx context.Context, worker string) (int, error) {
	v, err := q.run(ctx, "expire leases", "expireworker", worker, q.cfg.MaxAttempts, workerDied)
	return int(toInt(v)), err
}

// workerDied is the note of an item whose worker is known to have died.
const workerDied = "lease expired: its worker died"

// ReturnStrays returns to the queue the items that are leased to a worker but not in held, because the reply of a
// lease was lost. It returns their number. No attempt is counted. The worker must not lease concurrently.
func (q *Queue) ReturnStrays(ctx context.Context, worker string, held ...Leased) (int, error) {
	args := []any{worker}
	for _, l := range held {
		args = append(args, l.Token)
	}
	v, err := q.run(ctx, "look for strays", "strays", args...)
	return int(toInt(v)), err
}

func withTokens(args []any, leases []Leased) []any {
	for _, l := range leases {
		args = append(args, l.ID, l.Token)
	}
	return args
}

// refusedLeases returns the leases whose code is 0.
func refusedLeases(leases []Leased, codes []int64) []Leased {
	var lost []Leased
	for i, l := range leases {
		if i < len(codes) && codes[i] == 0 {
			lost = append(lost, l)
		}
	}
	return lost
}

func checkWorker(worker string) error {
	if worker == "" || len(worker) > 512 || strings.Contains(worker, "\x1f") {
		return fmt.Errorf("worker name %.80q must have 1 to 512 bytes without U+001F", worker)
	}
	return nil
}
