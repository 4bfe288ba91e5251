package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/internal/store"
)

// A unique key and an id of choice go together, wherever on a cluster they lie.
func TestUniqueWithID(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		for i := range 8 {
			key := tasks.Unique(fmt.Sprint("key", i), time.Hour)
			id := func(name string) tasks.SendOption { return tasks.ID(fmt.Sprintf("%s-%d", name, i)) }
			first := sent(t, w, ID.S(1, tasks.In(time.Hour)), id("first"), key)
			for _, name := range []string{"second", "first"} {
				got, err := ID.S(2).Send(t.Context(), w.client, id(name), key)
				if !errors.Is(err, tasks.ErrDuplicate) || got.ID() != first.ID() {
					t.Fatalf("sent as %s: got %v, %v", name, got, err)
				}
			}
			testutil.Ok(t, first.Revoke(t.Context()))
			third, err := ID.S(3).Send(t.Context(), w.client, id("third"), key)
			if err != nil {
				t.Fatalf("after the first has ended: %v", err)
			}
			wantValue(t, third, 3)
		}
	})
}

// A key of Once stays taken after a success, and is free after any other end.
func TestOnce(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		held := Hold.S("never")
		for name, tc := range map[string]struct {
			first tasks.Signature[int]
			stop  func(*tasks.Workflow, context.Context) error
			taken bool
		}{
			"success":            {first: ID.S(1), taken: true},
			"success of a chain": {first: tasks.Chain(ID.S(0), Inc), taken: true},
			"running":            {first: held, taken: true},
			"window is over":     {first: held},
			"failure":            {first: Fail.S(1)},
			"skipped":            {first: tasks.Chain(Fail.S(1), Inc)},
			"cancelled":          {first: held, stop: (*tasks.Workflow).Cancel},
			"revoked":            {first: held, stop: (*tasks.Workflow).Revoke},
			"deleted":            {first: ID.S(1), stop: (*tasks.Workflow).Delete},
		} {
			window := time.Hour
			if name == "window is over" {
				window = 200 * time.Millisecond
			}
			opts := []tasks.SendOption{tasks.Once(name, window), tasks.Retention(0)}
			first := sent(t, w, tc.first, opts...)
			if tc.first != held {
				ended(t, w, first.ID())
			}
			if tc.stop != nil {
				testutil.Ok(t, tc.stop(&first.Workflow, t.Context()))
			}
			again := func() error {
				out, err := w.client.SendMany(t.Context(), []tasks.Sending{{Work: ID.S(2), Options: opts}})
				if err != nil && (!errors.Is(err, tasks.ErrDuplicate) || out[0].ID != first.ID()) {
					t.Errorf("%s: got %+v, %v, want the first workflow", name, out, err)
				}
				return err
			}
			switch {
			case !tc.taken:
				testutil.Eventually(t, name+": the key is free", func() bool { return again() == nil })
			case again() == nil:
				t.Errorf("%s: sent twice", name)
			case tc.first != held:
				wantValue(t, first, 1)
			}
		}
		for _, o := range []tasks.SendOption{tasks.Unique("k", time.Hour), tasks.Overlap(tasks.OverlapQueue)} {
			if err := refusal(t, w, ID.S(1), tasks.Once("k", time.Hour), o); !errors.Is(err, tasks.ErrInvalid) || !strings.Contains(err.Error(), "Once") {
				t.Errorf("with another option: got %v", err)
			}
		}
	})
}

// A sender that dies between its claim and its workflow holds a unique key for seconds only.
func TestUniqueClaimedInVain(t *testing.T) {
	t.Parallel()
	rdb := redistest.Cluster(t)
	w := newWorld(t, rdb)
	key := tasks.Unique("k", time.Hour)
	sent(t, w, ID.S(1), key)
	var at string
	for _, shard := range shards(t, rdb) {
		if rdb.Exists(t.Context(), shard+"u:k").Val() == 1 {
			at = shard + "u:k"
		}
	}
	for age, free := range map[time.Duration]bool{0: false, time.Minute: true} {
		claim := fmt.Sprint("dead-sender ", time.Now().Add(-age).UnixMilli())
		testutil.Ok(t, rdb.Set(t.Context(), at, claim, time.Hour).Err())
		if _, err := ID.S(1).Send(t.Context(), w.client, key); (err == nil) != free || !free && !errors.Is(err, tasks.ErrDuplicate) {
			t.Fatalf("claimed %s ago: got %v, want no error", age, err)
		}
	}
}

// A send whose storage failed after its claim of the unique key can be repeated with the same ID. It waits until the first call
// cannot store a workflow any more.
func TestRepeatedSendHasItsClaimOfAUniqueKey(t *testing.T) {
	t.Parallel()
	rdb := redistest.Cluster(t)
	newWorld(t, rdb)
	opts := []tasks.SendOption{tasks.ID("again"), tasks.Unique("again", time.Hour), tasks.Overlap(tasks.OverlapQueue)}
	lost := redistest.NewFault(redistest.Refused, 1)
	lost.Match = func(cmd redis.Cmder) bool {
		return len(cmd.Args()) > 1 && store.ScriptName(fmt.Sprint(cmd.Args()[1])) == "submit"
	}
	lost.Arm()
	faulty := redis.NewClusterClient(rdb.(*redis.ClusterClient).Options())
	t.Cleanup(func() { _ = faulty.Close() })
	faulty.AddHook(lost)
	c := newClient(t, faulty)
	for i, want := range []error{redistest.ErrFault, nil, tasks.ErrDuplicate} {
		out, err := c.SendMany(t.Context(), []tasks.Sending{{Work: ID.S(1), Options: opts}})
		if !errors.Is(err, want) || (err == nil) != (want == nil) || i > 0 && out[0].ID != "again" {
			t.Fatalf("call %d: got %+v, %v, want %v", i+1, out, err, want)
		}
		if i == 1 {
			wantValue(t, tasks.Attach[int](c, "again"), 1)
		}
	}
}

func TestSendManyHasAResultForEach(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		client, count := countRuns(t, rdb)
		const n = 1200 // more than one round trip
		var sends []tasks.Sending
		for i := range n {
			sends = append(sends, tasks.Sending{Work: scheduled.S(fmt.Sprint(i)), Options: []tasks.SendOption{tasks.ID(fmt.Sprint("many-", i))}})
		}
		for range 3 { // scripts are lost when Redis restarts
			rdb.ScriptFlush(t.Context())
			results, err := client.SendMany(t.Context(), sends)
			for i, r := range results {
				if r.ID != fmt.Sprint("many-", i) || r.Err != nil && !errors.Is(r.Err, tasks.ErrDuplicate) {
					t.Fatalf("send %d: got %+v", i, r)
				}
				wantValue(t, tasks.Attach[string](client, r.ID), fmt.Sprint(i))
			}
			if len(results) != n {
				t.Fatalf("got %d results, want %d", len(results), n)
			}
			if err != nil && !errors.Is(err, tasks.ErrDuplicate) {
				t.Fatal(err)
			}
		}
		if len(count.seen()) != n {
			t.Errorf("%d workflows ran, want %d", len(count.seen()), n)
		}
		count.once(t)
	})
}

func TestSendManyReportsErrorsPerSend(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		client, _ := countRuns(t, rdb)
		unserved := []tasks.SendOption{tasks.Queue("unserved"), tasks.Unique("one", time.Hour)}
		results, err := client.SendMany(t.Context(), []tasks.Sending{
			{Work: scheduled.S("first"), Options: unserved},
			{Work: scheduled.S("second"), Options: unserved},
			{},
			{Work: tasks.Signature[int]{}},
			{Work: scheduled.S("bad"), Options: []tasks.SendOption{tasks.Queue("{}")}},
			{Work: tasks.Each([]string{strings.Repeat("a", 1<<20), strings.Repeat("b", 1<<20)}, scheduled)}, // stored in parts
			{Work: scheduled.S("last")},
		})
		if !errors.Is(err, tasks.ErrDuplicate) || !strings.Contains(err.Error(), "4 of 7") {
			t.Errorf("got %v, want ErrDuplicate for the first of 4 of 7", err)
		}
		if results[0].Err != nil || !errors.Is(results[1].Err, tasks.ErrDuplicate) || results[1].ID != results[0].ID {
			t.Errorf("sends with one unique key: got %+v", results[:2])
		}
		for i := 2; i < 5; i++ {
			if results[i].ID != "" || !errors.Is(results[i].Err, tasks.ErrInvalid) {
				t.Errorf("send %d: got %+v, want ErrInvalid", i, results[i])
			}
		}
		if list, err := tasks.Attach[[]string](client, results[5].ID).Wait(t.Context()); err != nil || len(list) != 2 {
			t.Errorf("large send: got %d values, %v", len(list), err)
		}
		if last, err := tasks.Attach[string](client, results[6].ID).Wait(t.Context()); err != nil || last != "last" {
			t.Errorf("last send: got %q, %v", last, err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if results, err := client.SendMany(ended, []tasks.Sending{{Work: scheduled.S("x")}}); !errors.Is(err, context.Canceled) || results[0].Err == nil {
			t.Errorf("cancelled context: got %+v, %v", results, err)
		}
		if results, err := client.SendMany(t.Context(), nil); len(results) != 0 || err != nil {
			t.Errorf("no sends: got %v, %v", results, err)
		}
	})
}
