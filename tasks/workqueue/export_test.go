package workqueue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// errBusy means that a queue kept changing while it was recounted.
var errBusy = errors.New("the queue changes too fast to be recounted")

// Verify recounts all items and compares the result with the counters, those
// of lanes too if the queue has them, and with the indexes. It returns the
// recount, and an error that names every difference.
func (q *Queue) Verify(ctx context.Context) (Stats, error) {
	for range 5 {
		before, sizes, err := readStats(ctx, &q.store)
		if err != nil {
			return Stats{}, err
		}
		lanes, err := q.LaneStats(ctx)
		byLane := !errors.Is(err, ErrLanesNotCounted)
		if err != nil && byLane {
			return Stats{}, err
		}
		n, err := recount(ctx, &q.store, byLane)
		if err != nil {
			return Stats{}, fmt.Errorf("recount queue %s: %w", q.name, err)
		}
		_, after, err := readStats(ctx, &q.store)
		if err != nil {
			return Stats{}, err
		}
		if sizes.moves != after.moves {
			continue
		}
		counted := Stats{
			Queued: n.letters['q'] + n.letters['w'], InProgress: n.letters['i'],
			Done: n.letters['d'], Skipped: n.letters['s'], Error: n.letters['e'],
			Delayed: n.letters['w'], Outputs: before.Outputs, Paused: before.Paused, Sealed: before.Sealed,
		}
		counted.Total = counted.Queued + counted.InProgress + counted.Done + counted.Skipped + counted.Error
		var errs []error
		differ := func(what string, got, want int64) {
			if got != want {
				errs = append(errs, fmt.Errorf("queue %s has %d %s, recounted %d", q.name, got, what, want))
			}
		}
		differ("queued", before.Queued, counted.Queued)
		differ("in_progress", before.InProgress, counted.InProgress)
		differ("done", before.Done, counted.Done)
		differ("skipped", before.Skipped, counted.Skipped)
		differ("error", before.Error, counted.Error)
		differ("delayed", before.Delayed, n.letters['w'])
		differ("ready", sizes.ready, n.letters['q'])
		differ("leased", sizes.leased, n.letters['i'])
		differ("listed as failed", sizes.failed, n.letters['e'])
		if byLane {
			errs = append(errs, differLanes(q.name, lanes, n.lanes)...)
		}
		return counted, errors.Join(errs...)
	}
	return Stats{}, errBusy
}

// differLanes returns an error for each lane whose counters, named as in LaneStats, differ from the recount.
func differLanes(queue string, lanes, recounted map[string]Counts) []error {
	all := maps.Clone(recounted)
	maps.Copy(all, lanes)
	var errs []error
	for _, lane := range slices.Sorted(maps.Keys(all)) {
		if got, want := lanes[lane], recounted[lane]; got != want {
			errs = append(errs, fmt.Errorf("queue %s has %+v in lane %.80q, recounted %+v", queue, got, lane, want))
		}
	}
	return errs
}

// tally is a recount of a queue.
type tally struct {
	letters map[byte]int64    // items by state letter
	lanes   map[string]Counts // by lane as LaneStats names it; nil if not asked for
}

// recount counts the records by state letter, and by lane if it is asked to.
func recount(ctx context.Context, s *store, byLane bool) (tally, error) {
	type place struct {
		letter byte
		lane   string
	}
	// A scan may show a field twice while the hash is being resized.
	seen := make(map[string]place)
	names := make(map[string]string) // one string for all items of a lane
	var cursor uint64
	for {
		kv, next, err := s.rdb.HScan(ctx, s.keys.rec, cursor, "", 1000).Result()
		if err != nil {
			return tally{}, err
		}
		for i := 0; i+1 < len(kv); i += 2 {
			if kv[i+1] == "" {
				continue
			}
			at := place{letter: kv[i+1][0]}
			if byLane {
				name := laneOf(kv[i+1])
				if _, ok := names[name]; !ok {
					name = strings.Clone(name)
					names[name] = name
				}
				at.lane = names[name]
			}
			seen[kv[i]] = at
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	n := tally{letters: make(map[byte]int64)}
	if byLane {
		n.lanes = make(map[string]Counts)
	}
	for _, at := range seen {
		n.letters[at.letter]++
		if byLane {
			counts := n.lanes[at.lane]
			if c := counts.of(stateOf(string(at.letter))); c != nil {
				*c++
			}
			n.lanes[at.lane] = counts
		}
	}
	return n, nil
}

// laneOf returns the lane of a record, named as LaneStats does.
func laneOf(record string) string {
	f := strings.SplitN(record, " ", recordFields)
	lane, _ := cutLane(f[len(f)-1])
	return laneName(lane)
}

// FuzzSpec checks that a valid item survives encoding and decoding, and that damaged data is an error.
func FuzzSpec(f *testing.F) {
	f.Add("a", "http.fetch", "host:a", []byte(`{"id":"a"}`), `{"k":"x"}`+"\n{}", "q 1 0 5 100 1700000000000 3 -")
	f.Add("ä\n", "", "\x1f", []byte("\n\n"), "", "")
	f.Add("a", "k", "r", []byte{0xff}, "null\n", "i 99999999999999999999 0 0 0 0 0 0")
	f.Fuzz(func(t *testing.T, id, kind, key string, payload []byte, spec, record string) {
		it := Item{ID: id, Kind: kind, ResourceKeys: []string{key}, Payload: payload}
		q := New(nil, "q", Config{})
		if q.Check(it) == nil {
			stored, err := it.spec(7)
			if err != nil {
				return // too long
			}
			got, _, err := parseSpec(id, stored)
			if err != nil || got.Kind != kind || len(got.ResourceKeys) != 1 || got.ResourceKeys[0] != key || !bytes.Equal(got.Payload, payload) {
				t.Errorf("stored %+v, read %+v, %v", it, got, err)
			}
		}
		now := time.UnixMilli(1700000000000)
		answer := []any{record, spec, "note", int64(1), "result", int64(5), int64(6)}
		info, err := parseInfo(id, answer, now)
		if err == nil {
			info.setTimes(answer, now.UnixMilli(), time.Minute)
			if info.ID != id || info.State == "" {
				t.Errorf("%q: got %+v", record, info)
			}
		}
	})
}

func TestLeaseWithoutAStoredOutcomeIsNoStray(t *testing.T) {
	t.Parallel()
	h := newHeld(PoolConfig{})
	j := &job{Leased: Leased{Token: 7}}
	h.add(j)
	h.letExpire(j, time.Hour)
	h.remove(j)
	if got := h.known(); len(got) != 1 || got[0].Token != 7 {
		t.Errorf("got %v, want the lease that will expire", got)
	}
	h.letExpire(j, -1)
	if got := h.known(); len(got) != 0 {
		t.Errorf("got %v, want no lease that has expired", got)
	}
}

// AliveChannel returns the channel on which a pool listens.
func (q *Queue) AliveChannel(pool string) string { return q.keys.alive(pool) }
