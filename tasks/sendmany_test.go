package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks"
	"muster/tasks/redistest"
)

func TestSendManyHasAResultForEach(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, rdb redis.UniversalClient) {
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
	}
	redistest.Both(t, test)
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		test(t, redistest.Cluster(t))
	})
}

func TestSendManyReportsErrorsPerSend(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, rdb redis.UniversalClient) {
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
	}
	redistest.Both(t, test)
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		test(t, redistest.Cluster(t))
	})
}
