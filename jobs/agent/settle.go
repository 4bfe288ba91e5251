package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"

	"muster/internal/clip"
	"muster/jobs"
)

// Limits on the requests of agents.
const (
	maxUsageNames = 20
	maxUsage      = 1_000_000_000_000
	maxNumbers    = 106 // fields of the numbers of an agent: 100 different usage names, and others
	maxMessage    = 2000
	maxRetryAfter = 24 * time.Hour
)

var usageName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,40}$`)

func checkUsage(usage map[string]int64) error {
	if len(usage) > maxUsageNames {
		return bad("usage", "give at most %d numbers", maxUsageNames)
	}
	for name, n := range usage {
		if !usageName.MatchString(name) {
			return bad("usage", "a name has 1 to 40 letters, digits, _ . and -")
		}
		if n < 0 || n > maxUsage {
			return bad("usage."+name, "give a number from 0 to 1e12")
		}
	}
	return nil
}

// loadOwned reads an assignment of the calling agent. It returns ErrNoneSuch, ErrNotYours, or jobs.ErrLeaseLost for a
// fence of another lease and for a lost lease. An ended assignment is returned. usage is its usage so far, nil
// for the stored one.
func (s *Service) loadOwned(ctx context.Context, id, agent string, fence int64, usage map[string]int64) (*assigned, error) {
	r, err := parseID(id)
	switch {
	case err != nil:
		return nil, err
	case r.agent != agent:
		return nil, fmt.Errorf("assignment %s: %w", id, ErrNotYours)
	case r.fence != fence:
		return nil, fmt.Errorf("assignment %s has another fence: %w", id, jobs.ErrLeaseLost)
	}
	h, err := s.load(ctx, id, agent, usage)
	if err != nil {
		return nil, err
	}
	if !h.Done && !h.Deadline.IsZero() && !h.now.Before(h.Deadline) { // the lease lasts a little longer
		if err := s.cfg.Jobs.Fail(ctx, h.Work, errDeadline, 0, true); err != nil {
			return nil, s.endIfLost(ctx, h, err)
		}
		s.warn(ctx, "end an assignment", s.end(ctx, h, endExpired, errDeadline.Error(), ""), "assignment", h.ID)
		return nil, fmt.Errorf("assignment %s: %w: %w", h.ID, errDeadline, jobs.ErrLeaseLost)
	}
	return h, nil
}

// endedError returns the result of a call that would end an assignment with outcome, although it has already ended.
func endedError(h *assigned, outcome string) error {
	if h.outcome == outcome {
		return nil // the response to the first call was lost
	}
	return fmt.Errorf("assignment %s has ended as %s: %w", h.ID, cmp.Or(h.outcome, endCompleted), jobs.ErrLeaseLost)
}

// Beat extends the lease of an assignment. usage is the total usage of the assignment so far; nil means no change. The
// error is ErrNoneSuch, ErrNotYours, a *jobs.FieldError, or jobs.ErrLeaseLost: the agent must stop its work.
func (s *Service) Beat(ctx context.Context, assignment, agent string, fence int64, usage map[string]int64) (Assignment, error) {
	if err := checkUsage(usage); err != nil {
		return Assignment{}, err
	}
	h, err := s.loadOwned(ctx, assignment, agent, fence, nil)
	if err != nil {
		return Assignment{}, err
	}
	if !h.open() {
		return Assignment{}, endedError(h, "")
	}
	for name, n := range usage {
		if n > h.usage[name] {
			s.cfg.Jobs.Progressed(ctx, h.JobID)
			break
		}
	}
	if err := s.beat(ctx, h, usage); err != nil {
		return Assignment{}, err
	}
	return h.Assignment, nil
}

// AddItems adds up to jobs.MaxItems items to the job of an assignment and returns the number of added items. Items whose
// keys exist are ignored. It returns the same errors as Beat.
func (s *Service) AddItems(ctx context.Context, assignment, agent string, fence int64, items []jobs.NewItem) (int, error) {
	h, err := s.loadOwned(ctx, assignment, agent, fence, nil)
	if err != nil {
		return 0, err
	}
	if !h.open() {
		return 0, endedError(h, "")
	}
	n, err := s.cfg.Jobs.Add(ctx, h.Work, items)
	if err != nil {
		return n, s.endIfLost(ctx, h, err)
	}
	return n, nil
}

// Complete completes an assignment with its result. A repeated call succeeds and changes nothing. It returns the same
// errors as Beat; after a *jobs.FieldError the assignment is still open.
func (s *Service) Complete(ctx context.Context, assignment, agent string, fence int64, a jobs.Answer) error {
	if err := checkUsage(a.Usage); err != nil {
		return err
	}
	h, err := s.loadOwned(ctx, assignment, agent, fence, a.Usage)
	if err != nil {
		return err
	}
	return s.complete(ctx, h, a)
}

func (s *Service) complete(ctx context.Context, h *assigned, a jobs.Answer) error {
	digest, err := digestOf(a)
	if err != nil {
		return err
	}
	if h.outcome != "" && h.outcome != endLost {
		return completedError(h, digest)
	}
	a.Usage = nil // it is counted at the end of the assignment
	if !h.Done {  // otherwise a process died after completing the work and before ending the assignment
		if err := s.cfg.Jobs.Complete(ctx, h.Work, a); err != nil {
			return s.endIfLost(ctx, h, err)
		}
	}
	if err := s.end(ctx, h, endCompleted, "", digest); err != nil {
		s.warn(ctx, "end an assignment", err, "assignment", h.ID)
		return nil // its work is completed
	}
	return completedError(h, digest) // another call may have been first
}

// digestOf returns a hash of a result without its usage.
func digestOf(a jobs.Answer) (string, error) {
	a.Usage = nil
	raw, err := json.Marshal(a)
	if err != nil {
		return "", fmt.Errorf("encode a result: %w", err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16]), nil
}

// completedError returns the result of Complete for an assignment that has ended. It is nil if the first call had the same
// digest.
func completedError(h *assigned, digest string) error {
	if h.outcome == endCompleted && h.digest != digest {
		return fmt.Errorf("assignment %s was completed with another response, which counts: %w", h.ID, jobs.ErrLeaseLost)
	}
	return endedError(h, endCompleted)
}

// A failure is the error that an agent reported for its work. It is the cause passed to Jobs.Fail.
type failure struct {
	message   string
	permanent bool
}

func (f *failure) Error() string { return f.message }

// Permanent reports whether a retry would be useless.
func (f *failure) Permanent() bool { return f.permanent }

// Fail ends an assignment whose work has failed. The work is retried after retryAfter, or after the back-off of the stage
// if retryAfter is nil, unless permanent is true or no attempts are left. A repeated call succeeds and changes nothing. It
// returns the same errors as Beat.
func (s *Service) Fail(ctx context.Context, assignment, agent string, fence int64, message string, retryAfter *time.Duration, permanent bool, usage map[string]int64) error {
	if err := checkUsage(usage); err != nil {
		return err
	}
	message = clip.Clean(message, maxMessage)
	if message == "" {
		return bad("error", "give the reason of the failure")
	}
	after := time.Duration(-1)
	if retryAfter != nil {
		if after = *retryAfter; after < 0 || after > maxRetryAfter {
			return bad("retry_after_seconds", "give a number from 0 to %.0f", maxRetryAfter.Seconds())
		}
	}
	h, err := s.loadOwned(ctx, assignment, agent, fence, usage)
	if err != nil {
		return err
	}
	return s.fail(ctx, h, &failure{message, permanent}, after, true, endFailed)
}

// fail ends an assignment whose work has failed. counts reports whether the failure counts as an attempt.
func (s *Service) fail(ctx context.Context, h *assigned, cause error, after time.Duration, counts bool, outcome string) error {
	if !h.open() {
		return endedError(h, outcome)
	}
	if err := s.cfg.Jobs.Fail(ctx, h.Work, cause, after, counts); err != nil {
		return s.endIfLost(ctx, h, err)
	}
	s.warn(ctx, "end an assignment", s.end(ctx, h, outcome, cause.Error(), ""), "assignment", h.ID)
	return nil
}

// Release returns the work of an assignment to the queue without counting an attempt. A repeated call succeeds. It returns
// the same errors as Beat.
func (s *Service) Release(ctx context.Context, assignment, agent string, fence int64) error {
	h, err := s.loadOwned(ctx, assignment, agent, fence, nil)
	if err != nil {
		return err
	}
	return s.release(ctx, h)
}

func (s *Service) release(ctx context.Context, h *assigned) error {
	if !h.open() {
		return endedError(h, endReleased)
	}
	if err := s.cfg.Jobs.Release(ctx, h.Work); err != nil {
		return s.endIfLost(ctx, h, err)
	}
	s.warn(ctx, "end an assignment", s.end(ctx, h, endReleased, "", ""), "assignment", h.ID)
	return nil
}

// maxBroke is the number of agents that may disappear while they work on an item without a counted attempt. After that
// each one counts, because an item that crashes its agents must fail eventually.
const maxBroke = 2

// endBroken ends an assignment whose agent disappeared during the work.
func (s *Service) endBroken(ctx context.Context, h *assigned, cause error) error {
	if !h.open() {
		return endedError(h, endMoved)
	}
	n, err := scripts["broke"].Run(ctx, s.rdb, []string{s.keys.broke(h.IdempotencyKey)}).Int()
	if err != nil {
		return fmt.Errorf("count the agents that assignment %s has lost: %w", h.ID, err)
	}
	if n <= maxBroke {
		return s.fail(ctx, h, cause, 0, false, endMoved)
	}
	return s.fail(ctx, h, fmt.Errorf("%w; it is the agent number %d that has gone while it worked on this", cause, n), -1, true, endMoved)
}

// abandon ends all assignments of an agent, so that the work is assigned again immediately. died reports whether the agent
// disappeared during the work; see endBroken.
func (s *Service) abandon(ctx context.Context, agent string, cause error, died bool) error {
	ids, err := s.heldBy(ctx, []string{agent}, "+inf")
	if err != nil {
		return fmt.Errorf("list the assignments of agent %s: %w", agent, err)
	}
	for _, z := range ids {
		id, _ := z.Member.(string)
		h, err := s.load(ctx, id, "", nil)
		switch {
		case err == nil && died:
			err = s.endBroken(ctx, h, cause)
		case err == nil:
			err = s.fail(ctx, h, cause, 0, false, endMoved)
		}
		if err != nil && !errors.Is(err, jobs.ErrLeaseLost) && !errors.Is(err, ErrNoneSuch) {
			return err
		}
	}
	return nil
}
