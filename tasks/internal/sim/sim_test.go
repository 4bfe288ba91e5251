package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/goleak"

	"muster/internal/redistest"
	"muster/tasks/internal/canvas"
	"muster/tasks/internal/engine"
)

func TestMain(m *testing.M) { redistest.Main(m, func() error { return goleak.Find() }) }

const (
	seedVar      = "MUSTER_SIM_SEED"      // the seed of the only history to run
	firstVar     = "MUSTER_SIM_FIRST"     // the seed of the first history
	historiesVar = "MUSTER_SIM_HISTORIES" // how many histories TestSimulation runs
	histories    = 40
	mostReports  = 3 // failed histories that are shown; of the others, only the seeds
)

// eventWidth is how much of an argument events show: more when one history is looked at.
func eventWidth() int {
	if os.Getenv(seedVar) != "" {
		return 400
	}
	return 60
}

// newLane returns a connection for histories with scripts that Redis knows.
func newLane(t *testing.T, all ...*scripts) *link {
	t.Helper()
	l := newLink(t)
	for _, s := range all {
		s.load(t, l)
	}
	return l
}

// simulate runs the history of a seed. It is called outside of bubbles.
func simulate(t *testing.T, l *link, s *scripts, seed uint64) *history {
	h := newHistory(l, s, seed)
	hangs := time.AfterFunc(5*time.Minute, func() {
		panic(fmt.Sprintf("seed %d: the history hangs: does something wait for a mutex that is held during a call to Redis?", seed))
	})
	defer hangs.Stop()
	synctest.Test(t, func(*testing.T) { h.run() })
	if len(h.problem) == 0 {
		h.check(context.Background())
	}
	return h
}

func newHistory(l *link, s *scripts, seed uint64) *history {
	h := &history{seed: seed, width: eventWidth(), rng: rand.New(rand.NewPCG(seed, 0)), link: l, scripts: s, fleet: &fleet{}, shards: 1}
	if seed%3 == 0 {
		h.shards = clusterShards
	}
	return h
}

// report describes the failures of a history, and how to reproduce it.
func (h *history) report(most int) string {
	var events []string
	for _, e := range h.events[max(0, len(h.events)-most):] {
		events = append(events, e.String())
	}
	return fmt.Sprintf("seed %d: %s\n%s\nsee it again: %s=%d go test ./tasks/internal/sim -run '^TestSimulation$'",
		h.seed, strings.Join(h.problem, "\n\t"), strings.Join(events, "\n"), seedVar, h.seed)
}

func number(t *testing.T, name string, otherwise uint64) (n uint64, given bool) {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return otherwise, false
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n, true
}

// In any order of steps, with calls that are lost or repeated, and processes that die: every workflow ends with the right
// result, every node becomes terminal, no continuation is missing, none runs twice in a history without faults, no node
// runs on two workers at once, and no keys are left.
func TestSimulation(t *testing.T) {
	t.Parallel()
	first, only := number(t, seedVar, 0)
	if !only {
		first, _ = number(t, firstVar, 1)
	}
	n, _ := number(t, historiesVar, histories)
	shown := keptEvents
	if only {
		n, shown = 1, mostSteps
	}
	sc := allScripts(nil)
	began := time.Now()
	var next, steps, retried, most atomic.Uint64
	var mu sync.Mutex // guards failed
	var failed []uint64
	var lanes sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) { // a lane waits for its Redis half of the time
		l := newLane(t, sc...)
		lanes.Go(func() {
			for i := next.Add(1) - 1; i < n; i = next.Add(1) - 1 {
				seed := first + i
				h := simulate(t, l, sc[seed%uint64(len(sc))], seed)
				steps.Add(uint64(h.steps))
				for m := most.Load(); uint64(h.steps) > m && !most.CompareAndSwap(m, uint64(h.steps)); m = most.Load() {
				}
				for _, f := range h.flows {
					if f.retried == "retried" {
						retried.Add(1)
					}
				}
				if len(h.problem) == 0 {
					continue
				}
				mu.Lock()
				if failed = append(failed, seed); len(failed) <= mostReports {
					t.Error(h.report(shown))
				}
				mu.Unlock()
			}
		})
	}
	lanes.Wait()
	if len(failed) > 0 {
		t.Errorf("%d of %d histories have failed; their seeds are %v", len(failed), n, failed)
	}
	t.Logf("%d histories from seed %d, %d steps (at most %d in one), %d retried workflows, %.0f histories/s", n, first, steps.Load(), most.Load(), retried.Load(), float64(n)/time.Since(began).Seconds())
}

// link is the connection to Redis that the histories of one goroutine of a test use, one after the other. It
// belongs to no bubble: its deadlines and its pool go by the machine's clock.
type link struct {
	rdb  *redis.Client
	conn *redis.Conn        // of rdb
	todo chan []redis.Cmder // closed with the test
	done chan struct{}
}

// newLink connects to a redis-server that only tb uses. On miniredis a history takes a second, which is too slow.
func newLink(tb testing.TB) *link {
	tb.Helper()
	server := redistest.Server(tb, "unixsocket", "socket")
	rdb := redis.NewClient(&redis.Options{
		Network: "unix", Addr: filepath.Join(server.Dir, "socket"), ReadTimeout: -2, WriteTimeout: -2, // no deadlines
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	conn := rdb.Conn() // has no pool, which would look at it before each call
	tb.Cleanup(func() { _, _ = conn.Close(), rdb.Close() })
	l := &link{rdb: rdb, conn: conn, todo: make(chan []redis.Cmder), done: make(chan struct{})}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for cmds := range l.todo {
			l.run(context.Background(), cmds)
			l.done <- struct{}{}
		}
	}()
	tb.Cleanup(func() {
		close(l.todo)
		<-stopped
	})
	return l
}

// do runs commands in one round trip. Each has its own reply and error then.
func (l *link) do(cmds ...redis.Cmder) {
	l.todo <- cmds
	<-l.done
}

func (l *link) run(ctx context.Context, cmds []redis.Cmder) {
	if len(cmds) == 1 {
		_ = l.conn.Process(ctx, cmds[0])
		return
	}
	pipe := l.conn.Pipeline()
	if cmds[0].Name() == "multi" { // the pipeline puts MULTI and EXEC around it again
		pipe, cmds = l.conn.TxPipeline(), cmds[1:len(cmds)-1]
	}
	for _, c := range cmds {
		_ = pipe.Process(ctx, c)
	}
	_, _ = pipe.Exec(ctx) // each has its own error
}

// fairBatches is how many batches of others may be taken before the first one of a workflow that is ready.
const fairBatches = 4

// A workflow that is sent while the nodes of a large one are ready has its turn after a few batches, whatever
// order things happen in.
func TestLargeWorkflowKeepsNoOtherWaiting(t *testing.T) {
	t.Parallel()
	sc := newScripts(nil)
	l := newLane(t, sc)
	for seed := range uint64(20) {
		h := newHistory(l, sc, seed)
		h.shards = 1 // shards share a worker by time
		synctest.Test(t, func(*testing.T) { h.crowd() })
		if len(h.problem) > 0 {
			t.Fatal(h.report(keptEvents))
		}
	}
}

// crowd sends a group of a thousand and, while it runs, one of three.
func (h *history) crowd() {
	h.begin()
	defer h.end()
	h.plan, h.calm = plan{workers: h.among(1, 2), programs: 1}, true
	h.addSenders()
	h.recover()
	h.add(group(1000))
	h.send()
	for len(h.batches) < h.among(3, 12) {
		h.goOnQuietly()
	}
	h.add(group(3))
	h.send()
	for h.flows[1].state != "sent" {
		h.goOnQuietly()
	}
	before, small := len(h.batches), h.flows[1].id+"~"
	for !slices.ContainsFunc(h.batches[before:], func(b batch) bool { return b.has(small) }) {
		h.goOnQuietly()
		if len(h.batches) > before+fairBatches {
			h.fail("%d batches were taken, and none of them of the small workflow: %v", len(h.batches)-before, h.batches[before:])
			return
		}
	}
}

// goOnQuietly takes the next step, or lets time pass if there is none.
func (h *history) goOnQuietly() {
	if !h.quietStep() {
		h.sleep(time.Millisecond)
	}
}

// has reports whether b has nodes of the workflow whose elements have a prefix.
func (b *batch) has(prefix string) bool {
	return slices.ContainsFunc(b.elements, func(e string) bool { return strings.HasPrefix(e, prefix) })
}

// group returns a canvas of n tasks that run at once.
func group(n int) *canvas.Scope {
	ints := make([]int, n)
	return &canvas.Scope{Defs: []canvas.Def{{Kind: "each", Ints: ints}, {Kind: "sum", Kids: []int{0}}}}
}

// ring is the ring of a queue in a shard.
type ring struct {
	shard int
	queue string
}

func (r ring) key() string { return shardPrefix(r.shard) + "ring:" + r.queue }

func (h *history) deliverable() bool { return len(h.served()) > 0 }

// served returns the rings that have entries, and a free worker.
func (h *history) served() []ring {
	if len(h.freeWorkers()) == 0 {
		return nil
	}
	return h.rings()
}

// rings returns the rings that have entries, of queues that are not paused.
func (h *history) rings() (out []ring) {
	var all []ring
	for shard := range h.shards {
		for _, q := range queues {
			all = append(all, ring{shard, q})
		}
	}
	args := []any{"eval", ringsScript, 2 * len(all)}
	for _, r := range all {
		args = append(args, r.key(), shardPrefix(r.shard)+"queue:"+r.queue)
	}
	c := redis.NewIntSliceCmd(context.Background(), args...)
	h.link.do(c)
	for _, i := range c.Val() {
		out = append(out, all[i])
	}
	return out
}

// ringsScript returns the positions of the rings that have entries and whose queues are not paused.
const ringsScript = `
local out = {}
for i = 1, #KEYS, 2 do
  if redis.call('EXISTS', KEYS[i]) == 1 and redis.call('HEXISTS', KEYS[i + 1], 'paused') == 0 then out[#out + 1] = (i - 1) / 2 end
end
return out`

// move takes an entry from a ring for a worker.
func (h *history) move(r ring, w *worker) string {
	c := redis.NewStringCmd(context.Background(), "lmove", r.key(), shardPrefix(r.shard)+"taken:"+r.queue+":"+w.name, "LEFT", "RIGHT")
	h.link.do(c)
	return c.Val()
}

// deliver gives an entry to a worker. The reply with it can be lost.
func (h *history) deliver() {
	rings, free := h.served(), h.freeWorkers()
	r, w := rings[h.rng.IntN(len(rings))], free[h.rng.IntN(len(free))]
	entry := h.move(r, w)
	h.noteEntry(w.process, entry)
	if !h.calm && h.chance(10*h.plan.replyFaults) {
		h.event("%s DOES NOT HEAR OF %d %s %s", w.name, r.shard, r.queue, repeatable(entry))
		return
	}
	h.serveOn(w, engine.RingEntry{Shard: r.shard, Queue: r.queue, Text: entry})
}

// resumeQueues ends the pauses of queues, as a tool of asynq does.
func (h *history) resumeQueues() {
	for _, q := range queues {
		h.link.do(redis.NewIntCmd(context.Background(), "del", "asynq:{"+q+"}:paused"))
	}
}

// saved is a key of Redis.
type saved struct {
	key, dump string
	ttl       time.Duration // 0 for none
}

// save returns all keys.
func (h *history) save() []saved {
	ctx := context.Background()
	keys := redis.NewStringSliceCmd(ctx, "keys", "*")
	h.link.do(keys)
	var out []saved
	for _, key := range keys.Val() {
		if key == clockKey {
			continue
		}
		dump, ttl := redis.NewStringCmd(ctx, "dump", key), redis.NewIntCmd(ctx, "pttl", key)
		h.link.do(dump, ttl)
		out = append(out, saved{key, dump.Val(), time.Duration(max(0, ttl.Val())) * time.Millisecond})
	}
	return out
}

// limitedNodes reports whether nodes wait for a limit.
func (h *history) limitedNodes() bool {
	ctx := context.Background()
	keys := redis.NewStringSliceCmd(ctx, "keys", "muster:{*}:w:*~*")
	h.link.do(keys)
	for _, key := range keys.Val() {
		if strings.Count(key[strings.LastIndexByte(key, '~'):], ":") > 0 {
			continue // of places or of a pause
		}
		values := redis.NewStringSliceCmd(ctx, "hvals", key)
		h.link.do(values)
		if slices.ContainsFunc(values.Val(), func(v string) bool { return strings.HasPrefix(v, "L|") }) {
			return true
		}
	}
	return false
}

// forget makes Redis lose the limits per key of a shard, as a failover in one slot of a Cluster can.
func (h *history) forget() {
	ctx := context.Background()
	h.event("REDIS LOSES THE LIMITS OF A SHARD")
	h.lostLimits = true
	prefix := shardPrefix(h.rng.IntN(h.shards))
	keys := redis.NewStringSliceCmd(ctx, "keys", prefix+"limit:*")
	agenda := redis.NewStringSliceCmd(ctx, "zrange", prefix+"agenda", 0, -1)
	h.link.do(keys, agenda)
	for _, key := range keys.Val() {
		h.link.do(redis.NewIntCmd(ctx, "del", key))
	}
	for _, entry := range agenda.Val() {
		if strings.HasPrefix(entry, "!limit/") {
			h.link.do(redis.NewIntCmd(ctx, "zrem", prefix+"agenda", entry))
		}
	}
}

// restore makes Redis lose all writes since keys were saved, as a failover can. They are the writes of one call,
// which stored a plan.
func (h *history) restore(keys []saved) {
	ctx := context.Background()
	h.event("REDIS LOSES A PLAN")
	h.lostPlan = true
	now := redis.NewStringSliceCmd(ctx, "keys", "*")
	h.link.do(now)
	for _, key := range now.Val() {
		if key != clockKey {
			h.link.do(redis.NewIntCmd(ctx, "del", key))
		}
	}
	for _, k := range keys {
		h.link.do(redis.NewStatusCmd(ctx, "restore", k.key, k.ttl.Milliseconds(), k.dump))
	}
}
