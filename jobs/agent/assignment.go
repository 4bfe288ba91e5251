package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/clip"
	"muster/internal/logctx"
	"muster/internal/tracing"
	"muster/internal/wrap"
	"muster/jobs"
	"muster/jobs/pipeline"
)

// keepEnded is the retention of the outcome of an assignment, for repeated calls.
const keepEnded = 10 * time.Minute

// late is the time between the expiry of a lease and the end of its assignment as lost.
const late = time.Second

// Modes of delivery. The mode determines who extends the lease of an assignment.
const (
	modePull = "pull" // the agent
	modePush = "push" // the process that has sent the request
	modeTask = "task" // the process that waits for the Go task
)

// Outcomes of assignments.
const (
	endCompleted = "completed"
	endFailed    = "failed"
	endReleased  = "released"
	endExpired   = "expired" // its deadline passed
	endLost      = "lost"    // its lease expired, or its job ended
	endMoved     = "moved"   // its agent was removed or is unavailable
)

var outcomes = []string{endCompleted, endFailed, endReleased, endExpired, endLost, endMoved}

// Assignment is a piece of work that is leased to an agent.
type Assignment struct {
	ID string
	jobs.Work
	// IdempotencyKey is the same for all attempts of an item in a stage. Agents pass it to other services.
	IdempotencyKey string
}

// Body is the JSON form of an assignment that agents receive.
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
	ID     string `json:"id"`
	Prompt string `json:"prompt" doc:"empty above 16 KiB: read it at prompt_url"`
	// PromptURL is the URL of the job, for a prompt above 16 KiB.
	PromptURL    string          `json:"prompt_url,omitempty" doc:"of the job, whose field prompt has a prompt above 16 KiB"`
	PromptSHA256 string          `json:"prompt_sha256,omitempty" doc:"of a prompt above 16 KiB"`
	Context      json.RawMessage `json:"context" doc:"{} above 16 KiB: read it at context_url"`
	// ContextURL is the URL of the job, for a context above 16 KiB.
	ContextURL    string        `json:"context_url,omitempty" doc:"of the job, whose field context has a context above 16 KiB"`
	ContextSHA256 string        `json:"context_sha256,omitempty" doc:"of a context above 16 KiB"`
	Document      *BodyDocument `json:"document,omitempty"`
	// ItemsURL is the URL of the items of the job, for a stage that takes the whole job.
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

// Body returns the JSON form of the assignment.
func (a Assignment) Body() Body {
	url := "/v1/jobs/" + a.JobID
	b := Body{
		ID: a.ID, Fence: a.Fence, Role: a.Role, Stage: a.Stage, Takes: a.Takes, Attempt: a.Attempt,
		LeaseUntil: a.Expires, Deadline: a.Deadline, IdempotencyKey: a.IdempotencyKey, Item: a.Item,
		Job: BodyJob{ID: a.JobID, Prompt: a.Prompt, Context: a.Context, Results: a.Results},
	}
	ctx := tracing.Context(context.Background(), a.Headers)
	b.RequestID, b.Traceparent = logctx.Value(ctx, logctx.RequestID), tracing.Parent(ctx)
	if a.Takes == pipeline.TakesJob {
		b.Job.ItemsURL = url + "/items"
	}
	if a.PromptSHA256 != "" {
		b.Job.Prompt, b.Job.PromptURL, b.Job.PromptSHA256 = "", url, a.PromptSHA256
	}
	if a.ContextSHA256 != "" {
		b.Job.Context, b.Job.ContextURL, b.Job.ContextSHA256 = nil, url, a.ContextSHA256
	}
	if len(b.Job.Context) == 0 {
		b.Job.Context = json.RawMessage("{}")
	}
	if d := a.Document; d != nil {
		b.Job.Document = &BodyDocument{Name: d.Name, Size: d.Size, SHA256: d.Hash, Type: d.Type, URL: url + "/document"}
	}
	return b
}

// MarshalJSON encodes the Body.
func (a Assignment) MarshalJSON() ([]byte, error) { return json.Marshal(a.Body()) }

// ref identifies the lease of an assignment. The ID of the assignment encodes it.
type ref struct {
	agent, job, item string // item is the id in the work queue of the job
	fence            int64
	nonce            string // random; the work queue knows it
}

func refOf(w jobs.Work) ref { return ref{w.Agent, w.JobID, w.QueueItem, w.Fence, w.Nonce} }

func (r ref) id() string {
	text := strings.Join([]string{r.agent, r.job, strconv.FormatInt(r.fence, 36), r.nonce, r.item}, "\n")
	return "a" + base64.RawURLEncoding.EncodeToString([]byte(text))
}

// parseID decodes the ID of an assignment, or returns ErrNoneSuch.
func parseID(id string) (ref, error) {
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(id, "a"))
	f := strings.SplitN(string(raw), "\n", 5)
	if err != nil || len(f) != 5 || !strings.HasPrefix(id, "a") {
		return ref{}, fmt.Errorf("assignment %.100q: %w", id, ErrNoneSuch)
	}
	fence, err := strconv.ParseInt(f[2], 36, 64)
	if err != nil {
		return ref{}, fmt.Errorf("assignment %.100q: %w", id, ErrNoneSuch)
	}
	return ref{f[0], f[1], f[4], fence, f[3]}, nil
}

// assignment returns the assignment of leased work.
func (s *Service) assignment(w jobs.Work) Assignment {
	sum := sha256.Sum256([]byte(w.JobID + "\x00" + w.Stage + "\x00" + w.Key))
	return Assignment{ID: refOf(w).id(), Work: w, IdempotencyKey: hex.EncodeToString(sum[:16])}
}

// assigned is an assignment with its record in Redis: its work is in the work queue of the job, and its outcome
// is in a record that expires.
type assigned struct {
	Assignment
	outcome string           // "" while it is open
	digest  string           // hash of the response that completed it
	usage   map[string]int64 // so far
	now     time.Time        // time of reading
}

func (h *assigned) open() bool { return h.outcome == "" && !h.Done }

// load reads an assignment. caller is the calling agent, or "" for a server process. usage is the usage of the assignment
// so far; nil means the stored one. The error is ErrNoneSuch, or jobs.ErrLeaseLost of an assignment that load has ended.
func (s *Service) load(ctx context.Context, id, caller string, usage map[string]int64) (*assigned, error) {
	r, err := parseID(id)
	if err != nil {
		return nil, err
	}
	k := s.keys
	v, err := scripts["load"].Run(ctx, s.rdb, []string{k.assignment(id), k.seen(), k.held(r.agent)}, id, caller).StringSlice()
	if err != nil {
		return nil, fmt.Errorf("read assignment %s: %w", id, err)
	}
	ms, _ := strconv.ParseInt(v[0], 10, 64)
	f := strings.SplitN(v[1]+"  ", " ", 3)
	h := &assigned{outcome: f[0], digest: f[1], usage: usage, now: time.UnixMilli(ms)}
	h.ID = id
	h.Work = jobs.Work{JobID: r.job, Agent: r.agent, QueueItem: r.item, Fence: r.fence, Nonce: r.nonce}
	if used := strings.TrimSpace(f[2]); used != "" && usage == nil {
		if err := json.Unmarshal([]byte(used), &h.usage); err != nil {
			return nil, fmt.Errorf("read the usage of assignment %s: %w", id, err)
		}
	}
	if h.outcome != "" && h.outcome != endLost {
		return h, nil
	}
	w, err := s.cfg.Jobs.Find(ctx, r.job, r.item, r.fence)
	switch err = asLost(err); {
	case err == nil && (w.Done || w.Agent == r.agent && w.Nonce == r.nonce):
		w.Agent, w.Nonce = r.agent, r.nonce
		h.Assignment = s.assignment(w)
		h.ID = id
		return h, nil
	case err == nil, errors.Is(err, jobs.ErrLeaseLost) && h.outcome == "" && v[2] == "": // it never was, or ended long ago
		return nil, fmt.Errorf("assignment %.100q: %w", id, ErrNoneSuch)
	}
	return nil, s.endIfLost(ctx, h, err)
}

// asLost returns err, or jobs.ErrLeaseLost if err means that the job has ended or is gone.
func asLost(err error) error {
	for _, gone := range []error{jobs.ErrNotFound, jobs.ErrNoItem, jobs.ErrTerminal} {
		if errors.Is(err, gone) {
			return fmt.Errorf("%w (%w)", jobs.ErrLeaseLost, err)
		}
	}
	return err
}

// Holder returns the agent of an assignment ID, or ErrNoneSuch if the ID is invalid. It does not read Redis.
func (s *Service) Holder(_ context.Context, id string) (agent string, err error) {
	r, err := parseID(id)
	return r.agent, err
}

// WorksOn reports whether an agent of an owner has an assignment of a job. It reads only the assignments of these agents.
func (s *Service) WorksOn(ctx context.Context, owner, jobID string) (bool, error) {
	owners, err := s.rdb.HGetAll(ctx, s.keys.owners()).Result()
	if err != nil {
		return false, fmt.Errorf("read the assignments of job %s: %w", jobID, err)
	}
	var agents []string
	for id, of := range owners {
		if of == owner {
			agents = append(agents, id)
		}
	}
	if len(agents) == 0 {
		return false, nil
	}
	ids, err := s.heldBy(ctx, agents, "+inf")
	if err != nil {
		return false, fmt.Errorf("read the assignments of job %s: %w", jobID, err)
	}
	now, err := s.now(ctx)
	if err != nil {
		return false, fmt.Errorf("read the assignments of job %s: %w", jobID, err)
	}
	return slices.ContainsFunc(ids, func(z redis.Z) bool {
		id, _ := z.Member.(string)
		r, err := parseID(id)
		return err == nil && r.job == jobID && int64(z.Score) > now.UnixMilli()
	}), nil
}

// heldBy returns the assignments of agents whose leases expire before a time in unix ms. The scores are the expiry times.
func (s *Service) heldBy(ctx context.Context, agents []string, before string) (all []redis.Z, err error) {
	for part := range slices.Chunk(agents, 500) {
		lists := make([]*redis.ZSliceCmd, len(part))
		if _, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, id := range part {
				lists[i] = p.ZRangeByScoreWithScores(ctx, s.keys.held(id), &redis.ZRangeBy{Min: "-inf", Max: before})
			}
			return nil
		}); err != nil {
			return nil, err
		}
		for _, list := range lists {
			all = append(all, list.Val()...)
		}
	}
	return all, nil
}

// room is the load of an agent after hold.
type room struct {
	got, held int
	rest      time.Duration // time until it takes work again; <0 if unknown
}

// hold assigns leased work of a role to an agent, up to its capacity and the limit of the role, and releases the remaining
// work.
func (s *Service) hold(ctx context.Context, agent, role, mode string, capacity int, work []jobs.Work) ([]Assignment, room, error) {
	ctx, cancel := cleanupContext(ctx) // the work is ours: it is given to the agent, or released
	defer cancel()
	if mode == modeTask {
		capacity = 1 << 30 // slots of processes bound it
	}
	args := []any{agent, capacity, mode != modeTask, s.limits.Load().Concurrency[role], work[0].Begun.UnixMilli(), drained}
	all := make([]Assignment, len(work))
	for i, w := range work {
		all[i] = s.assignment(w)
		args = append(args, all[i].ID, w.Expires.UnixMilli())
	}
	k := s.keys
	v, err := scripts["hold"].Run(ctx, s.rdb, []string{k.free(), k.held(agent), k.role(role)}, args...).Int64Slice()
	var now room
	if err != nil {
		err = fmt.Errorf("give work to agent %s: %w", agent, err)
		for _, a := range all { // the response may be lost
			_ = s.rdb.ZRem(ctx, k.held(agent), a.ID).Err()
			_ = s.rdb.ZRem(ctx, k.role(role), a.ID).Err()
		}
	} else {
		now = room{int(v[0]), int(v[1]), time.Duration(v[2]) * time.Millisecond}
	}
	for _, w := range work[now.got:] {
		s.warn(ctx, "release work", s.cfg.Jobs.Release(ctx, w), "job", w.JobID)
	}
	return all[:now.got], now, err
}

// beat extends the lease of an open assignment and stores its usage so far. If the lease is lost, it ends the assignment and
// returns jobs.ErrLeaseLost.
func (s *Service) beat(ctx context.Context, h *assigned, usage map[string]int64) error {
	until, err := s.cfg.Jobs.Beat(ctx, h.Work)
	if err != nil {
		return s.endIfLost(ctx, h, err)
	}
	h.Expires = until
	open, err := s.report(ctx, h, until, usage)
	if err == nil && !open {
		err = fmt.Errorf("assignment %s: %w", h.ID, jobs.ErrLeaseLost)
	}
	return err
}

// usageText encodes usage for Redis; nil becomes "".
func usageText(id string, usage map[string]int64) (string, error) {
	if usage == nil {
		return "", nil
	}
	raw, err := json.Marshal(usage)
	return string(raw), wrap.Err(err, "store the usage of assignment %s", id)
}

// report stores the expiry of the lease of an assignment and its usage so far; nil means no change. It reports whether the
// assignment is open.
func (s *Service) report(ctx context.Context, h *assigned, until time.Time, usage map[string]int64) (bool, error) {
	text, err := usageText(h.ID, usage)
	if err != nil {
		return false, err
	}
	n, err := scripts["report"].Run(ctx, s.rdb, []string{s.keys.assignment(h.ID), s.keys.held(h.Agent)}, h.ID, until.UnixMilli(), text).Int()
	if err != nil {
		return false, fmt.Errorf("extend assignment %s: %w", h.ID, err)
	}
	if n == 1 && s.limits.Load().Concurrency[h.Role] > 0 {
		err = s.rdb.ZAddXX(ctx, s.keys.role(h.Role), redis.Z{Score: float64(until.UnixMilli()), Member: h.ID}).Err()
	}
	return n == 1, err
}

// endIfLost returns err. If err means that the lease is lost, or that the job has ended or was deleted, it ends the assignment
// and returns jobs.ErrLeaseLost.
func (s *Service) endIfLost(ctx context.Context, h *assigned, err error) error {
	if err = asLost(err); errors.Is(err, jobs.ErrLeaseLost) {
		s.warn(ctx, "end an assignment", s.end(ctx, h, endLost, jobs.ErrLeaseLost.Error(), ""), "assignment", h.ID)
	}
	return fmt.Errorf("assignment %s: %w", h.ID, err)
}

// end ends an assignment whose work is settled, and counts it and its usage once. digest is the hash of its result. If the
// assignment had ended before, h receives the stored outcome and digest.
func (s *Service) end(ctx context.Context, h *assigned, outcome, message, digest string) error {
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	used, err := usageText(h.ID, h.usage)
	if err == nil && h.now.Equal(h.Begun) { // it was not read since
		h.now, err = s.now(ctx)
	}
	if err != nil {
		return fmt.Errorf("end assignment %s: %w", h.ID, err)
	}
	took := time.Duration(0)
	if !h.Begun.IsZero() {
		took = max(0, h.now.Sub(h.Begun))
	}
	k := s.keys
	v, err := scripts["end"].Run(ctx, s.rdb, []string{k.assignment(h.ID), k.held(h.Agent), k.numbers(h.Agent), k.hour(h.now)},
		h.ID, h.Agent, outcome, digest, int(keepEnded.Seconds()), clip.Clean(message, 500), h.now.UnixMilli(), took.Milliseconds(), used, maxNumbers).Slice()
	s.waiters.noteEnd(h.Agent)
	s.freeRoles(ctx, h)
	if err != nil {
		return fmt.Errorf("end assignment %s: %w", h.ID, err)
	}
	h.outcome, _ = v[1].(string)
	h.digest, _ = v[2].(string)
	if v[0] == int64(0) {
		return nil
	}
	if v[0] == int64(1) {
		s.recordSpan(ctx, h, outcome, message)
		if !h.Begun.IsZero() {
			s.counts.took.WithLabelValues(outcome).Observe(took.Seconds())
		}
	}
	usage := map[string]int64{}
	if text, _ := v[3].(string); text != "" {
		if err := json.Unmarshal([]byte(text), &usage); err != nil {
			return fmt.Errorf("read the usage of assignment %s: %w", h.ID, err)
		}
	}
	if outcome == endCompleted {
		usage["assignments"]++
	}
	if len(usage) > 0 { // a process that dies here loses it
		s.warn(ctx, "add the usage of an assignment to its job", s.cfg.Jobs.AddUsage(ctx, h.JobID, h.Agent, usage, h.now), "assignment", h.ID, "job", h.JobID)
	}
	return nil
}

// recordSpan records the span of an assignment that has ended, below the span of its job.
func (s *Service) recordSpan(ctx context.Context, h *assigned, outcome, message string) {
	if s.cfg.Tracing == nil {
		return
	}
	if h.Headers == nil {
		var err error
		if h.Headers, err = s.cfg.Jobs.Headers(ctx, h.JobID); err != nil {
			s.warn(ctx, "record the span of an assignment", err, "assignment", h.ID)
			return
		}
	}
	failure := ""
	switch outcome {
	case endFailed, endExpired, endLost, endMoved:
		failure = cmp.Or(message, outcome)
	}
	s.cfg.Tracing.Record(h.Headers, cmp.Or(h.Begun, time.Now()), strings.TrimSpace("assignment "+h.Stage), failure,
		"muster.assignment", h.ID, "muster.stage", h.Stage, "muster.role", h.Role, "muster.agent", h.Agent, "muster.item", h.QueueItem,
		"muster.attempt", strconv.Itoa(h.Attempt), "muster.outcome", outcome)
}

// endLapsed ends the assignments whose leases have expired.
func (s *Service) endLapsed(ctx context.Context) error {
	now, err := s.now(ctx)
	if err != nil {
		return err
	}
	agents, err := s.rdb.HKeys(ctx, s.keys.agents()).Result()
	if err != nil {
		return err
	}
	ids, err := s.heldBy(ctx, agents, strconv.FormatInt(now.Add(-late).UnixMilli(), 10))
	for _, z := range ids {
		id, _ := z.Member.(string)
		h, found := s.load(ctx, id, "", nil)
		switch {
		case errors.Is(found, jobs.ErrLeaseLost): // it has ended
		case found != nil:
			err = errors.Join(err, found)
			if errors.Is(found, ErrNoneSuch) {
				r, _ := parseID(id)
				err = errors.Join(err, s.rdb.ZRem(ctx, s.keys.held(r.agent), id).Err())
			}
		case h.open() && h.now.Before(h.Expires): // it was extended by a process that died then
			_, failed := s.report(ctx, h, h.Expires, nil)
			err = errors.Join(err, failed)
		default:
			err = errors.Join(err, s.end(ctx, h, endLost, jobs.ErrLeaseLost.Error(), ""))
		}
	}
	return err
}
