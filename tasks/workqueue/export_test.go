package workqueue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"
)

// errBusy means that a queue kept changing while it was recounted.
var errBusy = errors.New("the queue changes too fast to be recounted")

// Verify recounts all items, as Scan reads them, and compares the result with the counters, those
// of lanes too if the queue has them, and with the indexes. It returns the
// recount, and an error that has every difference.
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
		seen := make(map[string]Info) // a scan may show an item twice
		for cursor, more := "", true; more; more = cursor != "" {
			var page []Info
			if page, cursor, err = q.Scan(ctx, cursor, maxScan); err != nil {
				return Stats{}, err
			}
			for _, it := range page {
				seen[it.ID] = it
			}
		}
		_, after, err := readStats(ctx, &q.store)
		if err != nil {
			return Stats{}, err
		}
		if sizes.moves != after.moves {
			continue
		}
		var all Counts
		var delayed int64
		recounted := make(map[string]Counts)
		for _, it := range seen {
			lane := strings.Join(it.ResourceKeys, "\x1f")
			of := recounted[lane]
			*of.of(it.State)++
			*all.of(it.State)++
			recounted[lane] = of
			if !it.Available.IsZero() {
				delayed++
			}
		}
		type tally struct {
			Counts
			delayed, ready, leased, failed int64
		}
		got := tally{Counts{before.Queued, before.InProgress, before.Done, before.Skipped, before.Error}, before.Delayed, sizes.ready, sizes.leased, sizes.failed}
		if want := (tally{all, delayed, all.Queued - delayed, all.InProgress, all.Error}); got != want {
			err = fmt.Errorf("queue %s has %+v, recounted %+v", q.name, got, want)
		}
		if byLane && !maps.Equal(lanes, recounted) {
			err = errors.Join(err, fmt.Errorf("queue %s has the lanes %+v, recounted %+v", q.name, lanes, recounted))
		}
		return Stats{
			Queued: all.Queued, InProgress: all.InProgress, Done: all.Done, Skipped: all.Skipped, Error: all.Error, Total: int64(len(seen)),
			Delayed: delayed, Outputs: before.Outputs, Paused: before.Paused, Sealed: before.Sealed,
		}, err
	}
	return Stats{}, errBusy
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
