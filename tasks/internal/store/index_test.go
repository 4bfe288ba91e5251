package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks/tasktype"
)

// indexOps is a script with index.lua and the parts of lib.lua that it uses.
//
// KEYS[1] prefix of the shard
// ARGV[1] unix ms, then calls: a function's name and its four arguments
var indexOps = redis.NewScript(`
local P, now = KEYS[1], tonumber(ARGV[1])
local function whole(n) return string.format('%d', n) end
` + WithConstants(source("index")) + `
for i = 2, #ARGV, 5 do
  local op, a, b, c, d = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  if op == 'opened' then opened(a, b)
  elseif op == 'ended' then ended(a, b, c, d)
  elseif op == 'count' then count(a, b, c, tonumber(d)) end
end
counted()`)

// indexed is an index that a test fills, on some shards.
type indexed struct {
	t    *testing.T
	s    *Store
	sent int // by single
}

// t0 is a time at which neither an hour nor a day begins.
var t0 = time.Date(2026, 3, 4, 10, 58, 30, 0, time.UTC)

func newIndexed(t *testing.T, rdb redis.UniversalClient, shards int) indexed {
	t.Helper()
	testutil.Ok(t, rdb.Set(t.Context(), testKeys.storeKey(), fmt.Sprint(Schema, " ", shards), 0).Err())
	return indexed{t: t, s: New(rdb, DefaultNamespace)}
}

// at runs calls on a shard at a time.
func (x indexed) at(shard int, now time.Time, calls ...any) {
	x.t.Helper()
	args := append([]any{now.UnixMilli()}, calls...)
	if err := indexOps.Run(x.t.Context(), x.s.rdb, []string{testKeys.Prefix(shard)}, args...).Err(); err != nil && err != redis.Nil {
		x.t.Fatal(err)
	}
}

// open sends a workflow, and end ends it.
func (x indexed) open(shard int, now time.Time, id, name string) {
	x.t.Helper()
	x.at(shard, now, "opened", id, name, "", "")
	testutil.Ok(x.t, x.s.rdb.HSet(x.t.Context(), testKeys.flowKey(shard, id), "n", 1).Err())
}

func (x indexed) end(shard int, now time.Time, id, name, letter string, created time.Time) {
	x.t.Helper()
	x.at(shard, now, "ended", id, name, letter, created.UnixMilli())
}

// captionOf reads the graphs of single: the name, and when it was sent.
func captionOf(_ string, graph []byte) (string, int64) {
	var g struct {
		Created int64  `json:"c"`
		Name    string `json:"t"`
	}
	_ = json.Unmarshal(graph, &g)
	return g.Name, g.Created
}

// single sends a workflow of one node at a time, by the clock of its sender, and returns its reference.
func (x *indexed) single(shard int, sent time.Time, queue, name string) string {
	x.t.Helper()
	x.sent++
	ref := GeneratedReference(NewID(sent, [9]byte{0, byte(x.sent >> 8), byte(x.sent)}))
	graph := fmt.Sprintf(`{"c":%d,"t":%q}`, sent.UnixMilli(), name)
	testutil.Must(x.s.call(x.t.Context(), "submit1", shard, ref, queue, graph, "1", sent.Unix()/3600))(x.t)
	return ref
}

// list returns the references of all pages of a query.
func (x indexed) list(q tasktype.WorkflowFilter) (ids []string) {
	x.t.Helper()
	for {
		page, next, err := x.s.Index.Workflows(x.t.Context(), q, captionOf)
		testutil.Ok(x.t, err)
		if len(page) > q.Limit {
			x.t.Fatalf("got a page of %d, want at most %d", len(page), q.Limit)
		}
		for _, w := range page {
			ids = append(ids, w.Ref)
		}
		if q.Cursor = next; next == "" {
			return ids
		}
	}
}

func (x indexed) want(q tasktype.WorkflowFilter, want ...string) {
	x.t.Helper()
	if got := x.list(q); !slices.Equal(got, want) {
		x.t.Errorf("%+v: got %v, want %v", q, got, want)
	}
}

func TestWorkflowsAreListedByStateNameAndTime(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		x := newIndexed(t, rdb, 3)
		s := func(n int) time.Time { return t0.Add(time.Duration(n) * time.Second) }
		odd := "a name: \"S\" 1 2 |\n\x00é" // not to be taken for the other parts
		x.open(0, s(0), "a", "scrape")
		x.open(1, s(1), "b", odd)
		x.open(2, s(2), "c", "scrape")
		x.open(0, s(3), "d", "d")
		x.open(1, s(4), "forgotten", "scrape")
		x.end(1, s(6), "b", odd, "F", s(1))
		x.end(0, s(7), "d", "d", "S", s(3))
		x.end(2, s(8), "c", "scrape", "X", s(2))
		rdb.Del(t.Context(), testKeys.flowKey(1, "forgotten"))

		x.want(tasktype.WorkflowFilter{Limit: 100}, "c", "d", "b", "a")
		x.want(tasktype.WorkflowFilter{Limit: 1}, "c", "d", "b", "a")
		x.want(tasktype.WorkflowFilter{Limit: 3, Name: "scrape"}, "c", "a")
		x.want(tasktype.WorkflowFilter{Limit: 3, Name: odd}, "b")
		x.want(tasktype.WorkflowFilter{Limit: 3, State: tasktype.WorkflowRunning}, "a")
		x.want(tasktype.WorkflowFilter{Limit: 3, State: tasktype.WorkflowSucceeded}, "d")
		x.want(tasktype.WorkflowFilter{Limit: 3, State: tasktype.WorkflowFailed}, "b")
		x.want(tasktype.WorkflowFilter{Limit: 3, State: tasktype.WorkflowRevoked, Name: "other"})
		x.want(tasktype.WorkflowFilter{Limit: 3, After: s(6), Before: s(8)}, "d", "b")
		x.want(tasktype.WorkflowFilter{Limit: 1, After: s(6), Before: s(8)}, "d", "b")

		page, _, err := x.s.Index.Workflows(t.Context(), tasktype.WorkflowFilter{Limit: 9, Name: odd}, captionOf)
		if err != nil || len(page) != 1 {
			t.Fatalf("got %v, %v, want one workflow", page, err)
		}
		w := page[0]
		if w.Tasks != odd || w.State != tasktype.WorkflowFailed || !w.Created.Equal(s(1)) || !w.Ended.Equal(s(6)) {
			t.Errorf("got %+v, want %q failed, from %s to %s", w, odd, s(1), s(6))
		}
		page, _, err = x.s.Index.Workflows(t.Context(), tasktype.WorkflowFilter{Limit: 9, State: tasktype.WorkflowRunning}, captionOf)
		if err != nil || len(page) != 1 || page[0].State != tasktype.WorkflowRunning || !page[0].Created.Equal(s(0)) || !page[0].Ended.IsZero() {
			t.Errorf("got %+v, %v, want one live since %s", page, err, s(0))
		}
	})
}

func TestWorkflowsOfManyShardsAndOneMomentComeOnceEach(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		const shards, each = 3, 150
		x := newIndexed(t, rdb, shards)
		want := map[string]bool{}
		for shard := range shards {
			var opens, ends []any
			pipe := rdb.Pipeline()
			for i := range each {
				id := fmt.Sprintf("w%d-%d", shard, i)
				want[id] = true
				opens = append(opens, "opened", id, "n", "", "")
				if i%2 == 1 {
					ends = append(ends, "ended", id, "n", string("SFX"[i%3]), t0.UnixMilli())
				}
				pipe.HSet(t.Context(), testKeys.flowKey(shard, id), "n", 1)
			}
			if _, err := pipe.Exec(t.Context()); err != nil {
				t.Fatal(err)
			}
			x.at(shard, t0, opens...) // at one time: their order is the order of their ids
			x.at(shard, t0, ends...)
		}
		for _, limit := range []int{20, 250, 1000} {
			got := x.list(tasktype.WorkflowFilter{Limit: limit})
			unique := map[string]bool{}
			for _, id := range got {
				unique[id] = true
			}
			if len(got) != len(want) || len(unique) != len(want) {
				t.Errorf("pages of %d: got %d workflows, %d different ones, want %d", limit, len(got), len(unique), len(want))
			}
			if !slices.IsSortedFunc(got, func(a, b string) int { return strings.Compare(b, a) }) {
				t.Errorf("pages of %d: got %v…, want workflows of one time by descending ids", limit, got[:min(9, len(got))])
			}
		}
	})
}

func TestWorkflowsThatEndBetweenPagesAreNotMissed(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		x := newIndexed(t, rdb, 1)
		var want []string
		for i := range 10 {
			id := strconv.Itoa(i)
			x.open(0, t0, id, "n")
			x.end(0, t0.Add(time.Duration(i)*time.Second), id, "n", "S", t0)
			want = append(want, id)
		}
		slices.Reverse(want)
		first, next, err := x.s.Index.Workflows(t.Context(), tasktype.WorkflowFilter{Limit: 4}, captionOf)
		if err != nil || len(first) != 4 {
			t.Fatalf("got %v, %v, want four workflows", first, err)
		}
		for i := range 300 { // they push the list on
			x.open(0, t0.Add(time.Minute), fmt.Sprint("new", i), "n")
			x.end(0, t0.Add(time.Minute), fmt.Sprint("new", i), "n", "S", t0)
		}
		x.want(tasktype.WorkflowFilter{Limit: 4, Cursor: next}, want[4:]...)
	})
}

// The index keeps 10,000 successes and what a reader has not read, and counts for it what it has to drop.
func TestEndedWorkflowsAreBounded(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	x := newIndexed(t, rdb, 1)
	x.s.scripts = NewScripts(func(_, text string) string { return strings.Replace(text, "UNREAD = 1000000", "UNREAD = 12000", 1) })
	sent := 0
	end := func(n int) {
		for part := range slices.Chunk(make([]redis.Z, n), 1000) {
			for i := range part {
				part[i] = redis.Z{Score: float64(t0.UnixMilli() + int64(sent)), Member: fmt.Sprintf("%d %d n", sent, t0.UnixMilli())}
				sent++
			}
			testutil.Ok(t, rdb.ZAdd(t.Context(), testKeys.doneKey(0, 'S'), part...).Err())
		}
		testutil.Ok(t, x.s.Queues.Look(t.Context(), []string{"q"}))
	}
	check := func(kept int, from string, missed int64, gap bool) {
		t.Helper()
		list, _, lost, err := x.s.Index.Ended(t.Context(), from, 5)
		_, n, readErr := x.s.Index.Reader(t.Context(), "r", "$")
		if size := rdb.ZCard(t.Context(), testKeys.doneKey(0, 'S')).Val(); size != int64(kept) || n != missed || lost != gap || err != nil || readErr != nil || len(list) == 0 {
			t.Errorf("got %d entries, %d missed, gap %t, %v, %v, %v, want %d, %d, %t", size, n, lost, list, err, readErr, kept, missed, gap)
		}
	}
	at := func(i int) string { return strconv.FormatInt(t0.UnixMilli()+int64(i), 10) }
	end(10_201)
	for _, id := range []int{sent - 1, sent - 10_000} { // expired ones do not hide the last one
		rdb.HSet(t.Context(), testKeys.flowKey(0, strconv.Itoa(id)), "n", 1)
	}
	x.want(tasktype.WorkflowFilter{Limit: 1}, strconv.Itoa(sent-1), strconv.Itoa(sent-10_000))
	testutil.Ok(t, x.s.Index.SetReader(t.Context(), "r", at(300), true))
	check(10_000, at(200), 0, true)
	check(10_000, at(201), 0, false)
	end(1_000)
	check(sent-300, at(300), 0, false)
	end(2_000)
	check(12_000, at(300), int64(sent-12_000-300), true)
	testutil.Ok(t, x.s.Index.SetReader(t.Context(), "r", at(sent-100), true))
	end(1)
	check(10_000, at(sent-100), 0, false)
}

func TestPageReadsABoundedPartOfTheIndex(t *testing.T) {
	t.Parallel()
	x := newIndexed(t, redistest.New(t), 1)
	members := make([]redis.Z, indexPage+5000)
	for i := range members {
		members[i] = redis.Z{Score: float64(t0.UnixMilli() + int64(i)), Member: fmt.Sprint("w", i, " n")}
	}
	members[7].Member = "rare one"
	for part := range slices.Chunk(members, 5000) {
		testutil.Ok(t, x.s.rdb.ZAdd(t.Context(), testKeys.liveKey(0), part...).Err())
	}
	x.s.rdb.HSet(t.Context(), testKeys.flowKey(0, "rare"), "n", 1)
	q := tasktype.WorkflowFilter{Limit: 10, Name: "one"}
	page, next, err := x.s.Index.Workflows(t.Context(), q, captionOf)
	if err != nil || len(page) != 0 || next == "" {
		t.Errorf("got %v, cursor %q, %v, want an empty page and a cursor", page, next, err)
	}
	x.want(q, "rare")
}

func TestInvalidCursorsOfTheIndex(t *testing.T) {
	t.Parallel()
	x := newIndexed(t, redistest.New(t), 1)
	for _, cursor := range []string{"x", "1", "1.", "x.a", ".a"} {
		if _, _, err := x.s.Index.Workflows(t.Context(), tasktype.WorkflowFilter{Limit: 1, Cursor: cursor}, captionOf); err == nil {
			t.Errorf("cursor %q: got no error, want one", cursor)
		}
	}
}

func TestTitles(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 59) + "é"
	for _, c := range []struct{ first, last, want string }{
		{"", "", "(empty)"}, {"a", "a", "a"}, {"a", "b", "a → b"}, {long, "b", strings.Repeat("a", 59) + "… → b"},
		{"a", strings.Repeat("b", 60), "a → " + strings.Repeat("b", 60)}, {strings.Repeat("\x80", 70), "b", "… → b"},
	} {
		got := Title(c.first, c.last)
		if got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
		for _, name := range []string{c.first, c.last, got} {
			if name != "" && !titled(got, name) {
				t.Errorf("%q is not found by %q", got, name)
			}
		}
		if titled(got, "c") || titled(got, "→") {
			t.Errorf("%q is found by the names of other tasks", got)
		}
	}
}

// Workflows of one node are listed and counted while they are on a ring, taken from it, leased, and once they have ended: each once.
func TestWorkflowsOfOneNodeAreListedOnTheirWay(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		x := newIndexed(t, rdb, 2)
		at := func(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }
		running := tasktype.WorkflowFilter{State: tasktype.WorkflowRunning, Limit: 7}
		var refs []string // the latest first
		for i := range 300 {
			refs = append([]string{x.single(i%2, at(100*i), []string{"a", "b"}[i/2%2], fmt.Sprint("n", i%3))}, refs...)
		}
		late := x.single(0, at(28_050), "a", "late") // its sender was held up

		refs = slices.Insert(refs, 4, late) // after the one that its ring had before it
		x.open(1, at(15_001), "other", "n")
		refs = slices.Insert(refs, slices.Index(refs, refs[len(refs)-151]), "other")
		check := func(q tasktype.WorkflowFilter, want ...string) {
			t.Helper()
			x.want(q, want...)
			counts := testutil.Must(x.s.Index.Counts(t.Context()))(t)
			if q.State == tasktype.WorkflowRunning && q.Name == "" && counts[q.State] != int64(len(want)) {
				t.Errorf("counted %d running, want %d", counts[q.State], len(want))
			}
		}
		check(running, refs...)
		x.want(tasktype.WorkflowFilter{Limit: 100, Name: "late"}, late)
		x.want(tasktype.WorkflowFilter{Limit: 100, After: at(29_800)}, refs[0], refs[1])
		x.want(tasktype.WorkflowFilter{Limit: 1000, Before: at(201)}, refs[len(refs)-3:]...)
		x.want(tasktype.WorkflowFilter{Limit: 100, State: tasktype.WorkflowSucceeded})
		x.want(tasktype.WorkflowFilter{Limit: 100, Labels: map[string]string{"no": "label"}})

		// Entries that no script wrote change no page.
		foreign := []any{"", "x y", "@", "zzz~", "~", "none~@3", "=", "+", "a/b"}
		ring := testKeys.ringKey(0, "a")
		testutil.Ok(t, rdb.LPush(t.Context(), ring, foreign...).Err())
		testutil.Ok(t, rdb.LInsertAfter(t.Context(), ring, refs[len(refs)-41], "zzzz~").Err())
		testutil.Ok(t, rdb.RPush(t.Context(), ring, foreign...).Err())
		x.want(running, refs...)
		for _, entry := range append(foreign, "zzzz~") {
			testutil.Ok(t, rdb.LRem(t.Context(), ring, 0, entry).Err())
		}

		// The first one of queue a is taken, given back after a death, and taken again; that of b gets a lease.
		take := func(queue string) *RingEntry {
			t.Helper()
			for _, e := range testutil.Must(x.s.Queues.Take(t.Context(), "w", queue))(t) {
				if e.Shard == 0 {
					return &e
				}
				testutil.Ok(t, x.s.Queues.PutBack(t.Context(), "w", &e))
			}
			t.Fatal("nothing was taken")
			return nil
		}
		take("a")
		check(running, refs...)
		testutil.Must(x.s.call(t.Context(), "reap", 0, "w", "1", "a"))(t)
		check(running, refs...)
		first, leased := take("a"), take("b")
		if first.Text != refs[len(refs)-1]+"@1" {
			t.Fatalf("took %q, want the first workflow after a death", first.Text)
		}
		lease := leased.Lease("w")
		testutil.Ok(t, x.s.Leases.Adopt(t.Context(), leased, &lease))
		check(running, refs...)
		flow := Flow{Ref: refs[len(refs)-1], Caption: "n0", Created: t0.UnixMilli(), Retention: 60_000}
		state, _, err := x.s.Turns.Finish(t.Context(), "w", &Single{Entry: first, Flow: flow, Record: []byte("S|")})
		if err != nil || state != FinishOK {
			t.Fatal(state, err)
		}
		check(running, refs[:len(refs)-1]...)
		x.want(tasktype.WorkflowFilter{Limit: 100, State: tasktype.WorkflowSucceeded}, flow.Ref)
		x.end(0, at(90_000), lease.Flow.Ref, "n1", "F", at(0))
		check(running, slices.DeleteFunc(refs[:len(refs)-1], func(ref string) bool { return ref == lease.Flow.Ref })...)
		x.want(tasktype.WorkflowFilter{Limit: 100, State: tasktype.WorkflowFailed}, lease.Flow.Ref)
	})
}
