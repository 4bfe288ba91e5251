package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/tasktype"

	"muster/internal/clip"
)

// Caption is the text of a workflow in the index.
type Caption struct {
	Tasks  string // see [Title]
	Name   string // chosen by the sender; empty for none
	Labels map[string]string
	Origin string // id of the workflow that it runs again; empty for none
}

// originLabel is the key under which captions have the origin. No label of a user has it.
const originLabel = "^"

// String returns the stored form: the tasks alone or, separated by tabs, the tasks, the name and the labels. None of them
// contains a tab.
func (c Caption) String() string {
	if c.Name == "" && len(c.Labels) == 0 && c.Origin == "" {
		return c.Tasks
	}
	var b strings.Builder
	b.WriteString(c.Tasks + "\t" + c.Name)
	for _, k := range slices.Sorted(maps.Keys(c.Labels)) {
		b.WriteString("\t" + k + "=" + c.Labels[k])
	}
	if c.Origin != "" {
		b.WriteString("\t" + originLabel + "=" + c.Origin)
	}
	return b.String()
}

func parseCaption(text string) Caption {
	tasks, rest, _ := strings.Cut(text, "\t")
	name, labels, _ := strings.Cut(rest, "\t")
	c := Caption{Tasks: tasks, Name: name}
	for label := range strings.SplitSeq(labels, "\t") {
		if k, v, ok := strings.Cut(label, "="); ok && k == originLabel {
			c.Origin = v
		} else if ok {
			if c.Labels == nil {
				c.Labels = map[string]string{}
			}
			c.Labels[k] = v
		}
	}
	return c
}

// matches reports whether a filter selects a workflow by its caption. The filter's Contains is in lower case.
func (e *Indexed) matches(q *tasktype.WorkflowFilter) bool {
	if q.Origin != "" && q.Origin != e.Origin {
		return false
	}
	if !containsAll(e.Labels, q.Labels) {
		return false
	}
	contains := func(s string) bool { return strings.Contains(strings.ToLower(s), q.Contains) }
	return (q.Name == "" || q.Name == e.Name || titled(e.Tasks, q.Name)) && (q.Contains == "" || contains(e.Name) || contains(e.Tasks))
}

// containsAll reports whether labels has all of want.
func containsAll(labels, want map[string]string) bool {
	for k, v := range want {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// Title returns the tasks of a workflow: "first → last", or one of both if they are equal.
func Title(first, last string) string {
	if first == last {
		return cmp.Or(clip.Ellipsis(first, maxTitle), "(empty)")
	}
	return clip.Ellipsis(first, maxTitle) + arrow + clip.Ellipsis(last, maxTitle)
}

// arrow separates the names of two tasks in a title.
const arrow = " → "

// titled reports whether a title is the one asked for, or has a task with that name.
func titled(title, name string) bool {
	first, last, _ := strings.Cut(title, arrow)
	return name == title || clip.Ellipsis(name, maxTitle) == first || clip.Ellipsis(name, maxTitle) == last
}

// maxTitle is the maximum length of the name of a task in a title, in bytes, without an ellipsis.
const maxTitle = 60

// WorkflowStates are the states that the index has workflows by.
var WorkflowStates = []tasktype.WorkflowState{tasktype.WorkflowRunning, tasktype.WorkflowSucceeded, tasktype.WorkflowFailed, tasktype.WorkflowRevoked}

// indexKey returns the key of the index with the workflows in a state.
func (k Keys) indexKey(shard int, state tasktype.WorkflowState) string {
	for letter, of := range eventLetters {
		if of == state && letter != eventStuck {
			return k.doneKey(shard, letter)
		}
	}
	return k.liveKey(shard)
}

// Indexed is a workflow as the index has it.
type Indexed struct {
	tasktype.Workflow
	Ref   string
	Tasks string // see [Title]; empty until it is read from its graph, of a workflow of one node

	shard int
	at    int64 // unix ms: when it ended or, while it is live, when it was sent
}

// caption sets the caption.
func (e *Indexed) caption(text string) {
	c := parseCaption(text)
	e.Name, e.Tasks, e.Labels, e.Origin = cmp.Or(c.Name, c.Tasks), c.Tasks, c.Labels, c.Origin
}

// position is a place in the order of the index: the latest first, and within one ms the largest reference first.
type position struct {
	at  int64
	ref string
}

// afterAll is larger than every reference.
const afterAll = "~"

func (p position) compare(o position) int {
	return cmp.Or(cmp.Compare(o.at, p.at), strings.Compare(o.ref, p.ref))
}

func (p position) String() string { return strconv.FormatInt(p.at, 10) + "." + p.ref }

// ErrCursor means that a cursor belongs to another listing.
var ErrCursor = errors.New("not a cursor of this listing")

func parsePosition(s string) (position, error) {
	ms, id, ok := strings.Cut(s, ".")
	at, err := strconv.ParseInt(ms, 10, 64)
	if !ok || err != nil || id == "" {
		return position{}, fmt.Errorf("%w: %.100q", ErrCursor, s)
	}
	return position{at, id}, nil
}

// The index is read in pieces.
const (
	indexLeast = 100    // entries of one key in the first round trip; twice as many in each that follows
	indexFew   = 10     // minimum number of workflows looked up together
	indexMost  = 1000   // likewise, in every round trip
	indexPage  = 50_000 // entries of all keys for one page, about
)

// ringSome is how many entries that were put on a ring before an entry are read for its place in the listing: the latest time of all these references.
// The reference of a sender that was held up has an earlier time than the entries before it, and the places have to be in the order of the ring.
const ringSome = 100

// Captions returns the caption of a workflow and when it was sent (unix ms), from its reference and its graph.
type Captions func(ref string, graph []byte) (caption string, created int64)

// Workflows returns a page of the workflows that q asks for and that still exist, the latest first, and the
// cursor of the next page, which is empty after the last one. A page can be short or empty although others follow,
// because a call reads a bounded part of the index. A workflow is listed once in a page.
func (s Index) Workflows(ctx context.Context, q tasktype.WorkflowFilter, captions Captions) (page []Indexed, next string, err error) {
	r, err := newIndexReader(ctx, s.db, q, captions)
	if err != nil {
		return nil, "", err
	}
	for {
		if err := r.read(ctx); err != nil {
			return nil, "", fmt.Errorf("read the index of workflows: %w", err)
		}
		if page, next, err = r.fill(ctx, page); err != nil || next != "" {
			return page, next, err
		}
		if r.over() {
			return page, "", nil
		}
		if at := r.horizon(); r.reads >= indexPage && at < r.from.at {
			return page, position{at, afterAll}.String(), nil
		}
	}
}

// indexReader merges the keys of the index.
type indexReader struct {
	*db
	q        tasktype.WorkflowFilter
	captions Captions
	from     position // the page begins after it
	after    int64    // unix ms
	newest   string   // a text after the references of workflows that the page may have
	sources  []*indexSource
	chunk    int
	reads    int             // entries so far
	pool     []Indexed       // entries that may match and are not in the page yet
	seen     map[string]bool // references of entries that left the pool
}

// indexSource is a key of the index, which holds entries of one state from the latest to the earliest, or a ring, whose entries without a slash are
// workflows of one node in about this order.
type indexSource struct {
	shard int
	state tasktype.WorkflowState
	queue string // of a ring
	skip  int64  // entries with the time last that were read; of a ring, all
	last  int64  // the time of the last entry that was read
	over  bool   // all entries were read
}

func newIndexReader(ctx context.Context, d *db, q tasktype.WorkflowFilter, captions Captions) (*indexReader, error) {
	r := &indexReader{db: d, q: q, captions: captions, from: position{math.MaxInt64, afterAll}, chunk: indexLeast, seen: map[string]bool{}}
	if q.Cursor != "" {
		from, err := parsePosition(q.Cursor)
		if err != nil {
			return nil, err
		}
		r.from = from
	}
	if before := (position{q.Before.UnixMilli() - 1, afterAll}); !q.Before.IsZero() && before.at < r.from.at {
		r.from = before
	}
	r.newest = afterAll
	if r.from.at < math.MaxInt64 {
		r.newest = NewID(time.UnixMilli(r.from.at+1), [9]byte{})
	}
	if !q.After.IsZero() {
		r.after = q.After.UnixMilli()
	}
	r.q.Contains, r.q.Limit = strings.ToLower(q.Contains), max(1, q.Limit)
	shards, err := d.shardCount(ctx)
	if err != nil {
		return nil, err
	}
	if q.State == "" || q.State == tasktype.WorkflowRunning { // first, because workflows leave rings for the other keys
		if err := r.addRings(ctx); err != nil {
			return nil, err
		}
	}
	for shard := range shards {
		for _, state := range WorkflowStates {
			if q.State == "" || q.State == state {
				r.sources = append(r.sources, &indexSource{shard: shard, state: state, last: r.from.at})
			}
		}
	}
	return r, nil
}

// addRings adds the rings to the sources, and the entries that workers have taken from them to the pool.
func (r *indexReader) addRings(ctx context.Context) error {
	found, err := r.callEach(ctx, "waiting", r.newest)
	if err != nil {
		return fmt.Errorf("read the index of workflows: %w", err)
	}
	for shard, res := range found {
		src := &indexSource{shard: shard, state: tasktype.WorkflowRunning}
		for _, entry := range asList(res[1]) {
			r.takeSingle(src, text(entry), SentAt(text(entry)).UnixMilli())
		}
		for i := 2; i+1 < len(res); i += 2 {
			r.sources = append(r.sources, &indexSource{shard: shard, state: tasktype.WorkflowRunning, queue: text(res[i]), skip: toInt(res[i+1]), last: r.from.at})
		}
	}
	return nil
}

// read reads the next piece of every source into the pool.
func (r *indexReader) read(ctx context.Context) error {
	pipe := r.rdb.Pipeline()
	cmds, rings := make([]*redis.ZSliceCmd, len(r.sources)), make([]*redis.StringSliceCmd, len(r.sources))
	for i, src := range r.sources {
		switch {
		case src.over:
		case src.queue != "":
			rings[i] = pipe.LRange(ctx, r.ringKey(src.shard, src.queue), -src.skip-int64(r.chunk+ringSome), -src.skip-1)
		default:
			cmds[i] = pipe.ZRevRangeByScoreWithScores(ctx, r.indexKey(src.shard, src.state), &redis.ZRangeBy{
				Max: strconv.FormatInt(src.last, 10), Min: strconv.FormatInt(r.after, 10), Offset: src.skip, Count: int64(r.chunk)})
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	for i, src := range r.sources {
		if cmds[i] != nil {
			r.add(src, cmds[i].Val())
		} else if rings[i] != nil {
			r.addRing(src, rings[i].Val())
		}
	}
	r.chunk = min(indexMost, 2*r.chunk)
	return nil
}

// add adds the entries of a source to the pool.
func (r *indexReader) add(src *indexSource, members []redis.Z) {
	for _, z := range members {
		at := int64(z.Score)
		if at < src.last {
			src.last, src.skip = at, 0
		}
		src.skip++
		member, _ := z.Member.(string)
		if e, ok := parseIndexed(member, src.state, at); ok {
			r.take(src, e)
		}
	}
	src.over = len(members) < r.chunk
	r.reads += len(members)
}

// addRing adds entries of a ring to the pool, except for the first ringSome of them, which have to be read for the places of the others.
func (r *indexReader) addRing(src *indexSource, entries []string) {
	first := ringSome
	if len(entries) < r.chunk+ringSome {
		src.over, first = true, 0
	}
	at := int64(0)
	for i, entry := range entries {
		sent := SentAt(entry)
		if !IsSingle(entry) || sent.IsZero() {
			continue
		}
		if entry > r.newest { // and so are those after it
			break
		}
		if at = max(at, sent.UnixMilli()); i < first {
			continue
		}
		src.last = min(src.last, at)
		r.takeSingle(src, entry, at)
	}
	src.over = src.over || src.last < r.after
	src.skip += int64(len(entries) - first)
	r.reads += len(entries)
}

// takeSingle puts a workflow of one node, which a ring has or had, into the pool.
func (r *indexReader) takeSingle(src *indexSource, entry string, at int64) {
	ref, _, _ := strings.Cut(entry, "@")
	e := Indexed{Ref: ref, at: at}
	e.ID, e.State, e.Created = IDOf(ref), src.state, SentAt(ref)
	r.take(src, e)
}

// parseIndexed reads an entry of the index.
func parseIndexed(member string, state tasktype.WorkflowState, at int64) (e Indexed, ok bool) {
	ref, text, ok := strings.Cut(member, " ")
	e = Indexed{Ref: ref, at: at}
	e.ID, e.State, e.Created = IDOf(ref), state, time.UnixMilli(at)
	if state != tasktype.WorkflowRunning {
		var ms string
		ms, text, ok = strings.Cut(text, " ")
		created, err := strconv.ParseInt(ms, 10, 64)
		if err != nil {
			return e, false
		}
		e.Created, e.Ended = time.UnixMilli(created), time.UnixMilli(at)
	}
	e.caption(text)
	return e, ok
}

// take puts an entry into the pool if the query asks for it, as far as it is known.
func (r *indexReader) take(src *indexSource, e Indexed) {
	e.shard = src.shard
	if (e.Tasks == "" || e.matches(&r.q)) && r.from.compare(position{e.at, e.Ref}) < 0 && e.at >= r.after {
		r.pool = append(r.pool, e)
	}
}

// horizon returns the latest time that an unread entry can have.
func (r *indexReader) horizon() int64 {
	at := int64(math.MinInt64)
	for _, src := range r.sources {
		if !src.over {
			at = max(at, src.last)
		}
	}
	return at
}

// over reports whether all entries were read.
func (r *indexReader) over() bool { return r.horizon() == math.MinInt64 }

// ready takes the entries out of the pool, in order, that are later than all unread ones. An entry that was read twice,
// because other workflows were sent or ended in the meantime, comes once.
func (r *indexReader) ready() []Indexed {
	slices.SortFunc(r.pool, func(a, b Indexed) int { return position{a.at, a.Ref}.compare(position{b.at, b.Ref}) })
	horizon := r.horizon()
	n, _ := slices.BinarySearchFunc(r.pool, horizon, func(e Indexed, at int64) int {
		if e.at > at {
			return -1
		}
		return 1
	})
	var out []Indexed
	for _, e := range r.pool[:n] {
		if !r.seen[e.Ref] {
			r.seen[e.Ref] = true
			out = append(out, e)
		}
	}
	r.pool = r.pool[n:]
	return out
}

// fill adds the ready entries whose workflows still exist to a page, and returns a cursor if the page is full.
func (r *indexReader) fill(ctx context.Context, page []Indexed) (full []Indexed, next string, err error) {
	ready := r.ready()
	few := indexFew
	if q := &r.q; q.Name+q.Contains+q.Origin != "" || len(q.Labels) > 0 {
		few = indexMost // some of which may not match
	}
	for i := 0; i < len(ready); {
		part := ready[i:min(len(ready), i+max(few, r.q.Limit-len(page)))]
		there, err := r.exist(ctx, part)
		if err != nil {
			return nil, "", err
		}
		for j, e := range part {
			i++
			if there[j] {
				page = append(page, e)
			}
			if len(page) == r.q.Limit && (i < len(ready) || !r.over()) {
				return page, position{e.at, e.Ref}.String(), nil
			}
		}
	}
	return page, "", nil
}

// exist reports which workflows of a list still exist and match, and completes their entries.
func (r *indexReader) exist(ctx context.Context, list []Indexed) ([]bool, error) {
	cmds, err := onEach(ctx, r.db, "look up workflows", list, func(pipe redis.Pipeliner, e Indexed) *redis.SliceCmd {
		fields := []string{FieldTasks, FieldStopped}
		if e.Tasks == "" {
			fields = append(fields, "0", FieldGraph)
		}
		return pipe.HMGet(ctx, r.flowKey(e.shard, e.Ref), fields...)
	})
	if err != nil {
		return nil, err
	}
	there := make([]bool, len(list))
	for i := range list {
		e, have := &list[i], cmds[i].Val()
		there[i] = have[0] != nil
		stop := text(have[1])
		e.Paused, e.Queued = stop == StoppedByPause, stop == StoppedByOrder
		if len(have) > 2 && there[i] {
			caption, created := r.captions(e.Ref, []byte(text(have[3])))
			e.caption(caption)
			e.Created = time.UnixMilli(created)
			rec := ParseRecord(raw(have[2]), created)
			there[i] = !rec.Terminal() && e.matches(&r.q) // one that has ended has another entry
		}
	}
	return there, nil
}

// Counts returns the number of workflows of the index in each state. It includes finished workflows that have
// expired.
func (s Index) Counts(ctx context.Context) (map[tasktype.WorkflowState]int64, error) {
	shards, err := onShards(ctx, s.db, "count workflows", func(pipe redis.Pipeliner, shard int) (counts []*redis.IntCmd) {
		for _, state := range WorkflowStates {
			counts = append(counts, pipe.ZCard(ctx, s.indexKey(shard, state)))
		}
		return counts
	})
	if err != nil {
		return nil, err
	}
	out := map[tasktype.WorkflowState]int64{}
	for _, counts := range shards {
		for i, state := range WorkflowStates {
			out[state] += counts[i].Val()
		}
	}
	waiting, err := s.callEach(ctx, "waiting", "")
	if err != nil {
		return nil, fmt.Errorf("count workflows: %w", err)
	}
	for _, res := range waiting {
		out[tasktype.WorkflowRunning] += toInt(res[0])
	}
	return out, nil
}
