package agent

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/logctx"
	"muster/internal/tracing"
	"muster/jobs"
	"muster/jobs/pipeline"
)

// keepClosed is how long the end of an assignment is remembered, for calls that are repeated.
const keepClosed = 10 * time.Minute

// keepOpen is how long after its deadline the record of an assignment stays if no process looks after it.
const keepOpen = 24 * time.Hour

// grace is how long after the end of a lease the work goes to others.
const grace = 500 * time.Millisecond

// reserveFor is how long a reservation lasts that is not used.
const reserveFor = 10 * time.Second

// Who extends the lease of an assignment.
const (
	modePull = "pull" // the agent
	modePush = "push" // the process that has a request open
	modeTask = "task" // the process that waits for the Go task
)

// How an assignment ended.
const (
	endCompleted = "completed"
	endFailed    = "failed"
	endReleased  = "released"
	endExpired   = "expired" // its deadline passed
	endLost      = "lost"    // its lease ended, or its job
	endMoved     = "moved"   // its agent is gone
)

var outcomes = []string{endCompleted, endFailed, endReleased, endExpired, endLost, endMoved}

// Assignment is work that an agent has been given.
type Assignment struct {
	ID   string
	Role string // or "task:NAME"
	jobs.Work
	// IdempotencyKey is the same in each attempt of the same item in the same stage, for what the agent calls itself.
	IdempotencyKey string
	DocumentURL    string // of the document of the job; "" if it has none
	ItemsURL       string // of the items of the job, for a stage that takes the job

	now time.Time // when it was given, by the clock of Redis
}

// Body is an assignment as agents get it.
type Body struct {
	ID             string     `json:"id"`
	Fence          int64      `json:"fence"`
	Role           string     `json:"role"`
	Stage          string     `json:"stage"`
	Takes          string     `json:"takes"`
	Attempt        int        `json:"attempt"`
	LeaseUntil     time.Time  `json:"lease_until"`
	Deadline       time.Time  `json:"deadline"`
	IdempotencyKey string     `json:"idempotency_key"`
	Job            BodyJob    `json:"job"`
	Item           *jobs.Item `json:"item,omitempty"`
	RequestID      string     `json:"request_id,omitempty" doc:"id of the request that created the job"`
	Traceparent    string     `json:"traceparent,omitempty" doc:"the trace of the work, by W3C Trace Context, to be continued"`
}

// BodyJob is the job of a Body.
type BodyJob struct {
	ID       string          `json:"id"`
	Prompt   string          `json:"prompt"`
	Context  json.RawMessage `json:"context"`
	Document *BodyDocument   `json:"document,omitempty"`
	// ItemsURL lists the items of the job, for a stage that takes the job.
	ItemsURL string                     `json:"items_url,omitempty" doc:"lists the items of the job; of a stage that takes the job"`
	Results  map[string]json.RawMessage `json:"results,omitempty" doc:"results of earlier stages, by stage. One above 16 KiB is left out: stages[].result of the job has it"`
}

// BodyDocument is the document of a BodyJob.
type BodyDocument struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	Type   string `json:"type,omitempty"`
	URL    string `json:"url"`
}

// Body returns the assignment as agents get it.
func (a Assignment) Body() Body {
	b := Body{
		ID: a.ID, Fence: a.Fence, Role: a.Role, Stage: a.Stage, Takes: a.Takes, Attempt: a.Attempt,
		LeaseUntil: a.Expires, Deadline: a.Deadline, IdempotencyKey: a.IdempotencyKey, Item: a.Item,
		Job: BodyJob{ID: a.JobID, Prompt: a.Prompt, Context: a.Context, Results: a.Results, ItemsURL: a.ItemsURL},
	}
	ctx := a.Span.Context(tracing.Context(context.Background(), a.Headers))
	b.RequestID, b.Traceparent = logctx.Value(ctx, logctx.RequestID), tracing.Parent(ctx)
	if len(b.Job.Context) == 0 {
		b.Job.Context = json.RawMessage("{}")
	}
	if d := a.Document; d != nil {
		b.Job.Document = &BodyDocument{Name: d.Name, Size: d.Size, SHA256: d.Hash, Type: d.Type, URL: a.DocumentURL}
	}
	return b
}

// MarshalJSON returns the Body.
func (a Assignment) MarshalJSON() ([]byte, error) { return json.Marshal(a.Body()) }

// assignment returns work under an id.
func (s *assignments) assignment(id, role string, w jobs.Work) Assignment {
	sum := sha256.Sum256([]byte(w.JobID + "\x00" + w.Stage + "\x00" + w.Key))
	a := Assignment{ID: id, Role: role, Work: w, IdempotencyKey: hex.EncodeToString(sum[:16])}
	if w.Takes == pipeline.TakesJob {
		a.ItemsURL = s.cfg.PublicURL + "/v1/jobs/" + w.JobID + "/items"
	}
	if w.Document != nil {
		a.DocumentURL = s.cfg.PublicURL + "/v1/jobs/" + w.JobID + "/document"
	}
	return a
}

// held is an assignment as Redis holds it.
type held struct {
	id, agent, role, mode, outcome string
	digest                         string // hash of the response that completed it
	open                           bool
	fence                          int64
	work                           jobs.Work // while it is open, and of one that was lost
	deadline, until, now           time.Time
	lease                          time.Duration
	usage                          map[string]int64 // so far
}

// assignments are what agents have been given. It changes the records in Redis and the work that is behind them.
type assignments struct {
	*core
	onEnd  func(agent string) // is called when one of an agent has ended
	onMove func(id string)    // is called when one was taken off its agent
}

// caller is who reads an assignment. The zero value is a process of ours.
type caller struct {
	agent string
	fence int64
	usage map[string]int64 // so far; nil for no change
}

// errDamaged means that the record of an assignment cannot be read.
var errDamaged = errors.New("its record is damaged; its work goes to another agent when its lease ends")

// load reads an assignment. It returns ErrNoneSuch, and with errDamaged what could be read.
func (s *assignments) load(ctx context.Context, id string, by caller) (*held, error) {
	if !validID(id) {
		return nil, fmt.Errorf("assignment %.100q: %w", id, ErrNoneSuch)
	}
	usage, err := usageText(id, by.usage)
	if err != nil {
		return nil, err
	}
	v, err := scripts["load"].Run(ctx, s.rdb, []string{s.keys.assignment(id), s.keys.agents(), s.keys.seen()}, by.agent, by.fence, usage).StringSlice()
	if err != nil {
		return nil, fmt.Errorf("read assignment %s: %w", id, err)
	}
	if len(v) == 0 {
		return nil, fmt.Errorf("assignment %s: %w", id, ErrNoneSuch)
	}
	fields := map[string]string{}
	for i := 1; i+1 < len(v); i += 2 {
		fields[v[i]] = v[i+1]
	}
	ms := func(text string) int64 { n, _ := strconv.ParseInt(text, 10, 64); return n }
	h := &held{
		id: id, agent: fields["agent"], role: fields["role"], mode: fields["mode"], outcome: fields["outcome"], digest: fields["digest"],
		open: fields["state"] == "open", fence: ms(fields["fence"]),
		deadline: time.UnixMilli(ms(fields["deadline"])), until: time.UnixMilli(ms(fields["until"])), now: time.UnixMilli(ms(v[0])),
		lease: time.Duration(ms(fields["lease"])) * time.Millisecond,
	}
	if !h.open && fields["work"] == "" {
		return h, nil
	}
	if err := json.Unmarshal([]byte(fields["work"]), &h.work); err != nil {
		return h, fmt.Errorf("read assignment %s: %w: %w", id, errDamaged, err)
	}
	if text := fields["usage"]; text != "" {
		if err := json.Unmarshal([]byte(text), &h.usage); err != nil {
			return h, fmt.Errorf("read the usage of assignment %s: %w: %w", id, errDamaged, err)
		}
	}
	return h, nil
}

// Holder returns the agent that was given an assignment, or ErrNoneSuch.
func (s *assignments) Holder(ctx context.Context, id string) (agent string, err error) {
	if !validID(id) {
		return "", fmt.Errorf("assignment %.100q: %w", id, ErrNoneSuch)
	}
	agent, err = s.rdb.HGet(ctx, s.keys.assignment(id), "agent").Result()
	switch {
	case errors.Is(err, redis.Nil):
		return "", fmt.Errorf("assignment %s: %w", id, ErrNoneSuch)
	case err != nil:
		return "", fmt.Errorf("read assignment %s: %w", id, err)
	}
	return agent, nil
}

// WorksOn reports whether an agent holds an assignment of a job: one that owner has registered, or one without an owner.
func (s *assignments) WorksOn(ctx context.Context, owner, jobID string) (bool, error) {
	failed := func(err error) (bool, error) {
		return false, fmt.Errorf("read the assignments of job %s: %w", jobID, err)
	}
	owners, err := s.rdb.HGetAll(ctx, s.keys.owners()).Result()
	if err != nil {
		return failed(err)
	}
	agents, err := s.rdb.HKeys(ctx, s.keys.agents()).Result()
	if err != nil {
		return failed(err)
	}
	var lists []*redis.StringSliceCmd
	if _, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, id := range agents {
			if of := owners[id]; of == "" || of == owner {
				lists = append(lists, p.ZRange(ctx, s.keys.held(id), 0, -1))
			}
		}
		return nil
	}); err != nil {
		return failed(err)
	}
	var records []*redis.SliceCmd
	if _, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, list := range lists {
			for _, id := range list.Val() {
				records = append(records, p.HMGet(ctx, s.keys.assignment(id), "state", "job"))
			}
		}
		return nil
	}); err != nil {
		return failed(err)
	}
	return slices.ContainsFunc(records, func(r *redis.SliceCmd) bool {
		v := r.Val()
		return len(v) == 2 && v[0] == "open" && v[1] == jobID
	}), nil
}

// validID reports whether a text has the form of an id of an assignment.
func validID(id string) bool {
	raw, err := hex.DecodeString(id)
	return err == nil && len(raw) == 16
}

// shown returns the assignment as its agent sees it.
func (s *assignments) shown(h *held) Assignment {
	a := s.assignment(h.id, h.role, h.work)
	a.Expires = h.until
	return a
}

// reservation is room that was reserved for an agent.
type reservation struct {
	ids  []string
	held int           // before
	wait time.Duration // with no ids: when to ask again; <0 unknown
}

// reserve reserves room for up to n assignments of an agent.
func (s *assignments) reserve(ctx context.Context, agent string, capacity, n int, registered bool) (reservation, error) {
	args := []any{agent, capacity, flag(registered), reserveFor.Milliseconds()}
	ids := make([]string, n)
	for i := range ids {
		ids[i] = newID()
		args = append(args, ids[i])
	}
	k := s.keys
	v, err := scripts["reserve"].Run(ctx, s.rdb, []string{k.agents(), k.drained(), k.resting(), k.held(agent)}, args...).Int64Slice()
	if err != nil {
		return reservation{}, fmt.Errorf("reserve room of agent %s: %w", agent, err)
	}
	return reservation{ids[:v[0]], int(v[1]), time.Duration(v[2]) * time.Millisecond}, nil
}

// unreserve ends reservations. They would end by themselves, too.
func (s *assignments) unreserve(ctx context.Context, agent string, ids []string) {
	if len(ids) == 0 {
		return
	}
	ctx, cancel := lasting(ctx)
	defer cancel()
	members := make([]any, len(ids))
	for i, id := range ids {
		members[i] = id
	}
	_ = s.rdb.ZRem(ctx, s.keys.held(agent), members...).Err()
}

// assign stores work that was taken for an agent under reserved ids.
func (s *assignments) assign(ctx context.Context, agent, role, mode string, ids []string, work []jobs.Work) ([]Assignment, error) {
	now, err := s.now(ctx)
	if err != nil {
		return nil, fmt.Errorf("store assignments of agent %s: %w", agent, err)
	}
	s.beginSpans(ctx, work)
	k := s.keys
	keys := []string{k.held(agent), k.due(), k.numbers(agent), k.agents()}
	args := []any{agent, keepOpen.Milliseconds()}
	out := make([]Assignment, len(work))
	for i, w := range work {
		raw, err := json.Marshal(w)
		if err != nil {
			return nil, fmt.Errorf("store an assignment of job %s: %w", w.JobID, err)
		}
		lease := leaseOf(w, now)
		keys = append(keys, k.assignment(ids[i]))
		args = append(args, ids[i], role, w.Fence, raw, w.Deadline.UnixMilli(), lease.Milliseconds(), mode, dueAfter(mode, lease).Milliseconds(), w.JobID)
		out[i] = s.assignment(ids[i], role, w)
		out[i].now = now
	}
	if err := scripts["assign"].Run(ctx, s.rdb, keys, args...).Err(); err != nil {
		return nil, fmt.Errorf("store assignments of agent %s: %w", agent, err)
	}
	return out, nil
}

// leaseOf returns how long the lease of work that was just taken lasts.
func leaseOf(w jobs.Work, now time.Time) time.Duration {
	return min(max(w.Expires.Sub(now), 50*time.Millisecond), time.Hour)
}

// dueAfter returns when a process looks after an assignment whose lease was extended: when it is over or, if a process
// should have extended it, a while before, so that another one can continue.
func dueAfter(mode string, lease time.Duration) time.Duration {
	if mode == modePull {
		return lease + grace
	}
	return lease * 2 / 3
}

// beat extends the lease of an open assignment. It closes one that is lost, and returns job.ErrLeaseLost then.
func (s *assignments) beat(ctx context.Context, h *held, usage map[string]int64, mode string) error {
	if err := s.cfg.Jobs.Beat(ctx, h.work); err != nil {
		return s.lost(ctx, h, err)
	}
	text, err := usageText(h.id, usage)
	if err != nil {
		return err
	}
	if mode != "" {
		h.mode = mode
	}
	till, err := scripts["extend"].Run(ctx, s.rdb, []string{s.keys.assignment(h.id), s.keys.due()},
		h.id, h.lease.Milliseconds(), dueAfter(h.mode, h.lease).Milliseconds(), text, mode).Int64()
	if err != nil {
		return fmt.Errorf("extend assignment %s: %w", h.id, err)
	}
	if till == 0 {
		return fmt.Errorf("assignment %s: %w", h.id, jobs.ErrLeaseLost)
	}
	h.until = time.UnixMilli(till)
	return nil
}

// usageText is usage as it is stored, "" for nil.
func usageText(id string, usage map[string]int64) (string, error) {
	if usage == nil {
		return "", nil
	}
	raw, err := json.Marshal(usage)
	if err != nil {
		return "", fmt.Errorf("store the usage of assignment %s: %w", id, err)
	}
	return string(raw), nil
}

// lost closes an assignment if err says that its lease is lost or its job has ended or is gone, and returns
// job.ErrLeaseLost then. It returns other errors.
func (s *assignments) lost(ctx context.Context, h *held, err error) error {
	for _, gone := range []error{jobs.ErrNotFound, jobs.ErrNoItem, jobs.ErrTerminal} {
		if errors.Is(err, gone) {
			err = fmt.Errorf("%w (%w)", jobs.ErrLeaseLost, err)
			break
		}
	}
	if errors.Is(err, jobs.ErrLeaseLost) {
		if h.usage == nil { // the agent may have reported some since h was read
			if fresh, err := s.load(ctx, h.id, caller{}); err == nil {
				h.usage = fresh.usage
			}
		}
		s.close(ctx, h, endLost, h.usage, "", "")
	}
	return fmt.Errorf("assignment %s: %w", h.id, err)
}

// close ends an assignment whose work was settled, and counts it and its usage once. Errors are logged: the work is
// settled already, and what is left ends by itself.
// digest is the hash of the response that completed the assignment. The result reports whether this call ended it.
func (s *assignments) close(ctx context.Context, h *held, outcome string, usage map[string]int64, message, digest string) bool {
	ctx, cancel := lasting(ctx)
	defer cancel()
	k, jobID := s.keys, h.work.JobID
	args := []any{
		h.id, h.agent, outcome, keepClosed.Milliseconds(), cleanLine(message, 500), maxAgentUsage, newID(), jobID, maxJobUsage, tookBounds.Text(), digest,
	}
	for name, n := range usage {
		args = append(args, name, n)
	}
	v, err := scripts["close"].Run(ctx, s.rdb, []string{
		k.assignment(h.id), k.due(), k.held(h.agent), k.agents(), k.numbers(h.agent), k.usage(h.agent), k.used(jobID), k.stale(), k.took(), k.hour(h.now),
	}, args...).Slice()
	s.warn(ctx, "close an assignment", err, "assignment", h.id)
	s.onEnd(h.agent)
	if err != nil || len(v) == 0 {
		return err != nil
	}
	if v[0] == int64(1) {
		s.endSpan(h, outcome, message)
	}
	ours := v[0] != int64(0)
	if len(v) == 1 {
		return ours
	}
	changed := map[string]string{}
	for pair := range slices.Chunk(v[1:], 2) {
		field, _ := pair[0].(string)
		changed[field], _ = pair[1].(string)
	}
	s.warn(ctx, "add the usage of an assignment to its job", s.cfg.Jobs.SetUsage(ctx, jobID, totalsOf(changed)), "assignment", h.id, "job", jobID)
	return ours
}

// newID returns 128 random bits as text.
func newID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}
