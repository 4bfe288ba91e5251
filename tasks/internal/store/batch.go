package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Script is a script that can be called together with others. One for many items takes
//
//	KEYS  those that all its items share, then those of each item, as many for each
//	ARGV  those that all its items share, number of items, then per item: number of its arguments, and those
//
// and returns a list with what it says of each item, {"error", message} of one that went wrong.
type Script struct {
	src   *redis.Script
	text  string
	order int
	many  bool
	alone bool // its items cannot share a call
}

// The scripts of one round trip run in this order.
const (
	orderStore = iota // what changes workflows
	orderQueue        // what hands over to asynq
)

// NewScript returns a script for many items, called after those that change workflows.
func NewScript(text string) *Script {
	return &Script{src: redis.NewScript(text), text: text, order: orderQueue, many: true}
}

// one returns a script for one item at a time.
func one(text string) *Script {
	return &Script{src: redis.NewScript(text), text: text, order: orderQueue}
}

// Call is one item for a script.
type Call struct {
	Script *Script
	Shared []string // KEYS that items of one call have in common
	Lead   []any    // ARGV likewise; those of the first item count
	Keys   []string // KEYS of this item
	Args   []any
	Failed func(error) // of a posted call: told when it is given up

	// The answer.
	Reply any
	Err   error

	size  int
	group *group    // of the Do that waits
	until time.Time // when a posted call is given up
}

// group are the calls of one Do.
type group struct {
	left atomic.Int32
	done chan struct{} // closed when all have their answers
}

// lane returns what calls must have in common to travel together on a cluster.
func (c *Call) lane() string {
	k := c.Shared[0]
	if i := strings.IndexByte(k, '{'); i >= 0 {
		if j := strings.IndexByte(k[i:], '}'); j > 0 {
			return k[i : i+j]
		}
	}
	return k
}

// Batcher sends script calls of many goroutines together: those that come while a round trip is under
// way go with the next one, and those for one script in one call of it. Each call stands for itself,
// as if it had been made alone.
type Batcher struct {
	rdb     redis.UniversalClient
	cluster bool

	mu    sync.Mutex // guards the fields below, and those of the lanes
	lanes map[string]*lane
}

type lane struct {
	waiting []*Call
	later   []*Call // posted
	senders int     // round trips under way
	armed   bool    // a timer will see to later
	due     bool    // later has waited
}

const (
	batchMost    = 256     // calls in one round trip
	sendersMost  = 2       // round trips under way at once in one lane: one is made ready while Redis is at the other
	batchMany    = 12      // calls that are worth another of them
	batchBytes   = 1 << 20 // about as much in one round trip; a call that has more goes alone
	batchTimeout = 10 * time.Second
	postDelay    = time.Millisecond // that a posted call may wait for others to go with
	postMany     = 32               // that need not wait
	postAgain    = 500 * time.Millisecond
	postFor      = 20 * time.Second // that a posted call is tried
)

// NewBatcher returns a Batcher on rdb.
func NewBatcher(rdb redis.UniversalClient) *Batcher {
	_, cluster := rdb.(*redis.ClusterClient)
	return &Batcher{rdb: rdb, cluster: cluster, lanes: map[string]*lane{}}
}

// laneOf returns the lane that calls travel in, or nil if they cannot do so together; b.mu is held.
func (b *Batcher) laneOf(calls ...*Call) *lane {
	key := ""
	if b.cluster {
		key = calls[0].lane()
		for _, c := range calls[1:] {
			if c.lane() != key {
				return nil
			}
		}
	}
	if calls[0].Script == submitCmd {
		key += "+" // who sends workflows does not wait for a worker in the same process
	}
	l := b.lanes[key]
	if l == nil {
		l = &lane{}
		b.lanes[key] = l
	}
	return l
}

func size(args []any) int {
	n := 0
	for _, a := range args {
		switch a := a.(type) {
		case string:
			n += len(a) + 16
		case []byte:
			n += len(a) + 16
		default:
			n += 24
		}
	}
	return n
}

// Do makes calls, in the order of their scripts if they share a slot, and returns when each has its
// answer. When ctx ends first they may still be made: Do returns the error of ctx, and the calls must
// not be touched any more.
func (b *Batcher) Do(ctx context.Context, calls ...*Call) error {
	g := &group{done: make(chan struct{})}
	g.left.Store(int32(len(calls)))
	for _, c := range calls {
		c.group, c.size = g, size(c.Args)
	}
	b.mu.Lock()
	total := 0
	for _, c := range calls {
		total += c.size
	}
	l := b.laneOf(calls...)
	if l == nil || total > batchBytes {
		b.mu.Unlock()
		b.apart(ctx, calls)
		return nil
	}
	if l.senders == 0 {
		// Nobody else is in the way: no goroutine has to be woken for this. Those that are about to call
		// come along.
		l.senders++
		b.mu.Unlock()
		runtime.Gosched()
		b.mu.Lock()
		alone := len(l.waiting) == 0
		more, posted := l.take(batchMost - len(calls))
		b.mu.Unlock()
		if !alone {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), batchTimeout)
			defer cancel()
		}
		b.send(ctx, append(slices.Clip(calls), more...))
		b.settle(l, posted)
		b.next(l)
		return nil
	}
	l.waiting = append(l.waiting, calls...)
	if l.senders < sendersMost && len(l.waiting) >= batchMany {
		l.senders++
		go b.drain(l)
	}
	b.mu.Unlock()
	select {
	case <-g.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// apart makes calls one after the other, outside of their lanes.
func (b *Batcher) apart(ctx context.Context, calls []*Call) {
	sorted := slices.Clone(calls)
	slices.SortStableFunc(sorted, func(x, y *Call) int { return cmp.Compare(x.Script.order, y.Script.order) })
	for _, c := range sorted {
		b.send(ctx, []*Call{c})
	}
}

// Post makes a call soon. It is tried again for a while, and its answer is not told.
func (b *Batcher) Post(c *Call) {
	c.size, c.until = size(c.Args), time.Now().Add(postFor)
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.laneOf(c)
	l.later = append(l.later, c)
	b.arm(l, postDelay)
}

// arm has what is posted sent after a delay; b.mu is held.
func (b *Batcher) arm(l *lane, d time.Duration) {
	if l.armed {
		return
	}
	l.armed = true
	time.AfterFunc(d, func() {
		b.mu.Lock()
		l.armed, l.due = false, true
		start := l.senders == 0 && len(l.later) > 0
		if start {
			l.senders++
		}
		b.mu.Unlock()
		if start {
			b.drain(l)
		}
	})
}

// Flush returns when what was posted has been sent, or ctx is done.
func (b *Batcher) Flush(ctx context.Context) {
	for {
		b.mu.Lock()
		left := 0
		for _, l := range b.lanes {
			left += len(l.later)
			left += l.senders
		}
		b.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(postDelay):
		}
	}
}

// takeLater returns up to n posted calls, once there are enough of them or they have waited.
func (l *lane) takeLater(n int) []*Call {
	if !l.due && len(l.later) < postMany {
		return nil
	}
	l.due = false
	n = min(n, len(l.later))
	part := l.later[:n:n]
	l.later = l.later[n:]
	return part
}

// take returns up to most calls for the next round trip; b.mu is held.
func (l *lane) take(most int) (part, posted []*Call) {
	n, bytes := 0, 0
	for n < len(l.waiting) && n < most && bytes < batchBytes {
		bytes += l.waiting[n].size
		n++
	}
	part = l.waiting[:n:n]
	l.waiting = l.waiting[n:]
	posted = l.takeLater(max(0, most-n))
	return append(part, posted...), posted
}

// next lets someone else send what has gathered.
func (b *Batcher) next(l *lane) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(l.waiting) > 0 {
		go b.drain(l)
		return
	}
	b.rest(l)
}

// rest ends a sender; b.mu is held.
func (b *Batcher) rest(l *lane) {
	l.senders--
	if len(l.later) > 0 {
		b.arm(l, postDelay)
	}
}

// drain sends until nothing waits, or too little for one of several senders.
func (b *Batcher) drain(l *lane) {
	for {
		// Those that got their answers with the last round trip are about to come with the next call.
		runtime.Gosched()
		b.mu.Lock()
		if l.senders > 1 && len(l.waiting) < batchMany {
			b.rest(l)
			b.mu.Unlock()
			return
		}
		part, posted := l.take(batchMost)
		if len(part) == 0 {
			b.rest(l)
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), batchTimeout)
		b.send(ctx, part)
		cancel()
		if b.settle(l, posted) {
			b.mu.Lock()
			if len(l.waiting) == 0 {
				b.rest(l)
				b.mu.Unlock()
				return
			}
			b.mu.Unlock()
		}
	}
}

// settle keeps those of the posted calls that failed for another try, and reports whether there are.
func (b *Batcher) settle(l *lane, posted []*Call) bool {
	var again []*Call
	for _, c := range posted {
		switch {
		case c.Err == nil:
		case time.Now().Before(c.until):
			again = append(again, c)
		case c.Failed != nil:
			c.Failed(c.Err)
		}
	}
	if len(again) == 0 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	l.later = append(l.later, again...)
	b.arm(l, postAgain)
	return true
}

// part is one call of a script.
type part struct {
	script *Script
	items  []*Call
	cmd    *redis.Cmd
}

func (p *part) make(ctx context.Context, how string) {
	s := p.script
	shared := p.items[0].Shared
	keys, args := len(shared), 1+len(p.items[0].Lead)
	for _, c := range p.items {
		keys += len(c.Keys)
		args += len(c.Args) + 1
	}
	all := make([]any, 0, 3+keys+args)
	if how == "evalsha" {
		all = append(all, how, s.src.Hash(), keys)
	} else {
		all = append(all, how, s.text, keys)
	}
	for _, k := range shared {
		all = append(all, k)
	}
	for _, c := range p.items {
		for _, k := range c.Keys {
			all = append(all, k)
		}
	}
	all = append(all, p.items[0].Lead...)
	if s.many {
		all = append(all, len(p.items))
	}
	for _, c := range p.items {
		if s.many {
			all = append(all, len(c.Args))
		}
		all = append(all, c.Args...)
	}
	p.cmd = redis.NewCmd(ctx, all...)
	// All keys have one slot; the first tells it.
	p.cmd.SetFirstKeyPos(3)
}

// send makes calls in one round trip and gives each its answer.
func (b *Batcher) send(ctx context.Context, calls []*Call) {
	b.exec(ctx, parts(calls))
	for _, c := range calls {
		if c.group != nil && c.group.left.Add(-1) == 0 {
			close(c.group.done)
		}
	}
}

func parts(calls []*Call) []*part {
	var ps []*part
	for _, c := range calls {
		if c.Script.many && !c.Script.alone {
			if i := slices.IndexFunc(ps, func(p *part) bool {
				return p.script == c.Script && slices.Equal(p.items[0].Shared, c.Shared)
			}); i >= 0 {
				ps[i].items = append(ps[i].items, c)
				continue
			}
		}
		ps = append(ps, &part{script: c.Script, items: []*Call{c}})
	}
	slices.SortStableFunc(ps, func(x, y *part) int { return cmp.Compare(x.script.order, y.script.order) })
	return ps
}

func (b *Batcher) exec(ctx context.Context, ps []*part) {
	b.round(ctx, ps, "evalsha")
	var missing, alone []*part
	for _, p := range ps {
		if redis.HasErrorPrefix(p.cmd.Err(), "NOSCRIPT") {
			missing = append(missing, p)
		}
	}
	if len(missing) > 0 {
		b.round(ctx, missing, "eval")
	}
	for _, p := range ps {
		if !p.answer() {
			for _, c := range p.items {
				alone = append(alone, &part{script: p.script, items: []*Call{c}})
			}
		}
	}
	if len(alone) > 0 {
		// One of them went wrong: the others must not.
		b.round(ctx, alone, "eval")
		for _, p := range alone {
			p.answer()
		}
	}
}

func (b *Batcher) round(ctx context.Context, ps []*part, how string) {
	for _, p := range ps {
		p.make(ctx, how)
	}
	if len(ps) == 1 {
		_ = b.rdb.Process(ctx, ps[0].cmd)
		return
	}
	pipe := b.rdb.Pipeline()
	for _, p := range ps {
		_ = pipe.Process(ctx, p.cmd)
	}
	_, _ = pipe.Exec(ctx) // each call has its own error
}

// answer gives the items their answers. It returns false if they must be asked for one by one.
func (p *part) answer() bool {
	err := p.cmd.Err()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	if err != nil && len(p.items) > 1 && ofOne(err) {
		return false
	}
	for i, c := range p.items {
		c.Reply, c.Err = nil, err
		if err != nil {
			continue
		}
		c.Reply = p.cmd.Val()
		if !p.script.many {
			continue
		}
		list, _ := c.Reply.([]any)
		if len(list) != len(p.items) {
			c.Err = fmt.Errorf("script answered %d of %d items", len(list), len(p.items))
			continue
		}
		c.Reply = list[i]
		if said, ok := list[i].([]any); ok && len(said) == 2 && said[0] == "error" {
			c.Err = fmt.Errorf("script: %v", said[1])
		}
	}
	return true
}

// ofOne reports whether an error may be that of one item, rather than of Redis.
func ofOne(err error) bool {
	var said redis.Error
	if !errors.As(err, &said) {
		return false
	}
	for _, p := range []string{"READONLY", "OOM", "LOADING", "CLUSTERDOWN", "MASTERDOWN", "MOVED", "ASK", "TRYAGAIN", "MISCONF", "NOREPLICAS", "BUSY", "NOAUTH", "NOPERM"} {
		if redis.HasErrorPrefix(err, p) {
			return false
		}
	}
	return true
}
