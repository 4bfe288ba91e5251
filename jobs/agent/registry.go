package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/limit"
	"muster/internal/webhook"
	"muster/jobs"
)

// missed is the number of consecutive heartbeats that an agent may miss.
const missed = 3

// Register registers an agent, or replaces the agent with the same name and keeps its ID. For an agent with a URL it also
// returns a new secret, which cannot be read later. The error is ErrTooMany, ErrNotAllowed, ErrNotOwner or a
// *jobs.FieldError.
func (s *Service) Register(ctx context.Context, r Registration) (Agent, string, error) {
	rec, err := r.check()
	if err != nil {
		return Agent{}, "", err
	}
	if s.policy.Load().fixed(rec.Name) {
		return Agent{}, "", bad("name", "agent %q is in the configuration; use another name", rec.Name)
	}
	if rec.URL != "" && !s.policy.Load().allows(rec.URL) {
		return Agent{}, "", fmt.Errorf("register agent %q: %w; allow it there, or let the agent pull", rec.Name, ErrNotAllowed)
	}
	if rec.URL != "" {
		rec.Secret = webhook.NewSecret()
	}
	id, err := s.store(ctx, &rec, r.Owner, false)
	if err != nil {
		return Agent{}, "", err
	}
	a := rec.agent(id)
	a.State, a.LastSeen = StateHealthy, rec.Registered
	s.cfg.Changed(ctx, "agent.registered", a)
	return a, rec.Secret, nil
}

// Owner returns the owner of an agent, the only agent key that may act for it. It returns "" if the agent does not exist or has
// no owner: then only operators act for it.
func (s *Service) Owner(ctx context.Context, id string) (string, error) {
	owner, err := s.rdb.HGet(ctx, s.keys.owners(), id).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", fmt.Errorf("read the owner of agent %s: %w", id, err)
	}
	return owner, nil
}

// store stores rec, sets its time of registration and returns the id of the agent. An empty owner keeps the
// owner of the agent, unless the agent is of the configuration.
func (s *Service) store(ctx context.Context, rec *record, owner string, static bool) (string, error) {
	now, err := s.now(ctx)
	if err != nil {
		return "", fmt.Errorf("register agent %q: %w", rec.Name, err)
	}
	rec.Registered = now.UTC().Truncate(time.Millisecond)
	raw, err := json.Marshal(rec)
	if err != nil {
		return "", fmt.Errorf("register agent %q: %w", rec.Name, err)
	}
	k, id := s.keys, idOf(rec.Name)
	code, err := scripts["register"].Run(ctx, s.rdb,
		[]string{k.agents(), k.seen(), k.checks(), k.health(), k.version(), k.owners(), k.free(), k.numbers(id), k.held(id)},
		id, raw, s.cfg.Max, static, rec.URL != "", owner, s.cfg.MaxOwned).Int()
	if err != nil {
		return "", fmt.Errorf("register agent %q: %w", rec.Name, err)
	}
	switch code {
	case 0:
		return "", fmt.Errorf("register agent %q: %d agents: %w", rec.Name, s.cfg.Max, ErrTooMany)
	case 3:
		return "", fmt.Errorf("register agent %q: %w", rec.Name, ErrNotOwner)
	case 4:
		return "", fmt.Errorf("register agent %q: the key has registered %d agents: %w", rec.Name, s.cfg.MaxOwned, ErrTooMany)
	}
	return id, nil
}

// Heartbeat records a heartbeat of an agent, with one call of Redis. It returns the agent without its totals, or ErrNoAgent.
func (s *Service) Heartbeat(ctx context.Context, id string) (Agent, error) {
	t, err := s.touch(ctx, id)
	return t.Agent, err
}

// snapshot returns all agents without their totals, sorted by name.
func (s *Service) snapshot(ctx context.Context) ([]Agent, error) {
	k := s.keys
	var clock *redis.TimeCmd
	var agents, health *redis.MapStringStringCmd
	var seen *redis.ZSliceCmd
	var atRest *redis.StringSliceCmd
	var owners *redis.MapStringStringCmd
	if _, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		agents, health = p.HGetAll(ctx, k.agents()), p.HGetAll(ctx, k.health())
		seen = p.ZRangeWithScores(ctx, k.seen(), 0, -1)
		atRest, owners = p.ZRangeByScore(ctx, k.free(), &redis.ZRangeBy{Min: strconv.Itoa(drained), Max: "+inf"}), p.HGetAll(ctx, k.owners())
		clock = p.Time(ctx)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the agents: %w", err)
	}
	at := map[string]time.Time{}
	for _, z := range seen.Val() {
		id, _ := z.Member.(string)
		at[id] = time.UnixMilli(int64(z.Score))
	}
	drain := map[string]bool{}
	for _, id := range atRest.Val() {
		drain[id] = true
	}
	out := make([]Agent, 0, len(agents.Val()))
	for id, text := range agents.Val() {
		rec, damaged := parseRecord(id, text)
		l := rec.agent(id)
		l.LastSeen, l.Static = at[id], s.policy.Load().fixed(rec.Name)
		var check struct {
			At      int64
			Message string
		}
		if json.Unmarshal([]byte(health.Val()[id]), &check) == nil {
			l.Checked, l.Health = time.UnixMilli(check.At), check.Message
		}
		l.State, l.Health = s.state(l, drain[id], clock.Val())
		if damaged != nil {
			l.State, l.Health = StateUnavailable, damaged.Error()
		}
		switch err := s.mayPush(ctx, rec, owners.Val()[id]); {
		case errors.Is(err, errNoPush):
			l.State, l.Health = StateUnavailable, err.Error()
		case err != nil:
			return nil, err
		}
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b Agent) int { return strings.Compare(a.Name+"\x00"+a.ID, b.Name+"\x00"+b.ID) })
	return out, nil
}

// errNoPush means that work may not be pushed to an agent.
var errNoPush = errors.New("no work is pushed to the agent")

// mayPush returns errNoPush if work must not be pushed to the URL of a registered agent: the URL is no longer in
// Allow, or the owner may no longer act for the agent.
func (s *Service) mayPush(ctx context.Context, rec record, owner string) error {
	policy := s.policy.Load()
	if rec.URL == "" || policy.fixed(rec.Name) {
		return nil
	}
	if !policy.allows(rec.URL) {
		return fmt.Errorf("%w: %w", errNoPush, ErrNotAllowed)
	}
	if owner == "" {
		return nil
	}
	active, err := s.cfg.OwnerActive(ctx, owner)
	if err != nil {
		return fmt.Errorf("read the owner of an agent: %w", err)
	}
	if !active {
		return fmt.Errorf("%w: the key that registered it was revoked or has expired", errNoPush)
	}
	return nil
}

// checkPush is mayPush for the agent with an id.
func (s *Service) checkPush(ctx context.Context, id string, rec record) error {
	owner, err := s.Owner(ctx, id)
	if err != nil {
		return err
	}
	return s.mayPush(ctx, rec, owner)
}

// state returns the state of an agent and, if it is unavailable, the cause. A health check that failed counts until the
// agent calls again.
func (s *Service) state(a Agent, drained bool, now time.Time) (state, cause string) {
	silent := now.Sub(a.LastSeen)
	switch {
	case drained:
		return StateDraining, ""
	case !a.Checked.IsZero() && a.Health == "":
		return StateHealthy, ""
	case a.Health != "" && !a.LastSeen.After(a.Checked):
		return StateUnavailable, a.Health
	case !a.LastSeen.IsZero() && silent <= missed*s.cfg.Heartbeat:
		return StateHealthy, ""
	case a.LastSeen.IsZero() && a.Static:
		return StateNew, ""
	case a.LastSeen.IsZero():
		return StateUnavailable, "no call yet"
	}
	return StateUnavailable, fmt.Sprintf("no call for %s", silent.Round(time.Second))
}

// List returns all agents by name.
func (s *Service) List(ctx context.Context) ([]Agent, error) {
	all, err := s.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return s.withNumbers(ctx, all)
}

// Get returns an agent, or ErrNoAgent.
func (s *Service) Get(ctx context.Context, id string) (Agent, error) {
	all, err := s.snapshot(ctx)
	if err != nil {
		return Agent{}, err
	}
	i := slices.IndexFunc(all, func(a Agent) bool { return a.ID == id })
	if i < 0 {
		return Agent{}, fmt.Errorf("agent %.100q: %w", id, ErrNoAgent)
	}
	if all, err = s.withNumbers(ctx, all[i:i+1]); err != nil {
		return Agent{}, err
	}
	return all[0], nil
}

// withNumbers adds the numbers of agents.
func (s *Service) withNumbers(ctx context.Context, all []Agent) ([]Agent, error) {
	ids := make([]string, len(all))
	for i, a := range all {
		ids[i] = a.ID
	}
	numbers := make([]*redis.MapStringStringCmd, len(all))
	if _, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			numbers[i] = p.HGetAll(ctx, s.keys.numbers(id))
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the numbers of agents: %w", err)
	}
	held, err := s.countHeld(ctx, ids)
	if err != nil {
		return nil, err
	}
	broken, err := s.breaker.States(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		a, n := &all[i], numbers[i].Val()
		a.Held = held[i]
		a.Done, _ = strconv.ParseInt(n["done"], 10, 64)
		a.Failed, _ = strconv.ParseInt(n["failed"], 10, 64)
		a.LastError, a.Activity, a.CurrentJob = n["last_error"], n["activity"], n["current_job"]
		for field, total := range n {
			name, ok := strings.CutPrefix(field, "usage ")
			if ok && a.Usage == nil {
				a.Usage = map[string]int64{}
			}
			if ok {
				a.Usage[name], _ = strconv.ParseInt(total, 10, 64)
			}
		}
		if a.URL != "" {
			a.Breaker = "closed"
		}
		for _, b := range broken {
			if b.Key == breakerKey(a.ID) {
				a.Breaker = b.State
			}
		}
	}
	return all, nil
}

// countHeld counts the assignments of agents.
func (s *Service) countHeld(ctx context.Context, ids []string) ([]int, error) {
	var out []int
	for part := range slices.Chunk(ids, 500) {
		keys := make([]string, len(part))
		for i, id := range part {
			keys[i] = s.keys.held(id)
		}
		n, err := scripts["held"].Run(ctx, s.rdb, keys).Int64Slice()
		if err != nil {
			return nil, fmt.Errorf("count the assignments of agents: %w", err)
		}
		for _, v := range n {
			out = append(out, int(v))
		}
	}
	return out, nil
}

// Drain stops or resumes the assignment of new work to an agent. Its current work continues. It returns ErrNoAgent.
func (s *Service) Drain(ctx context.Context, id string, on bool) error {
	until := 0
	if on {
		until = drained
	}
	n, err := scripts["drain"].Run(ctx, s.rdb, []string{s.keys.free(), s.keys.version()}, id, until).Int()
	if err != nil {
		return fmt.Errorf("drain agent %s: %w", id, err)
	}
	if n == 0 {
		return fmt.Errorf("agent %.100q: %w", id, ErrNoAgent)
	}
	return nil
}

// Remove removes an agent and returns its work to the queues. It returns
// ErrNoAgent, and a *job.FieldError for an agent of the configuration.
func (s *Service) Remove(ctx context.Context, id string) error {
	a, err := s.Get(ctx, id)
	if err != nil {
		return err
	}
	if a.Static {
		return bad("id", "agent %q is in the configuration and would return; drain it, or remove it there", a.Name)
	}
	if _, err := s.remove(ctx, a, ""); err != nil {
		return err
	}
	return s.abandon(ctx, id, errors.New("the agent was removed"), false)
}

// remove removes the record of an agent. With a time in unix ms it does so only if the agent has not called since.
func (s *Service) remove(ctx context.Context, a Agent, cutoff string) (bool, error) {
	k := s.keys
	n, err := scripts["remove"].Run(ctx, s.rdb, []string{
		k.agents(), k.seen(), k.free(), k.checks(), k.health(), k.version(),
		k.numbers(a.ID), k.owners(), k.held(a.ID),
	}, a.ID, cutoff).Int()
	if err != nil {
		return false, fmt.Errorf("remove agent %s: %w", a.ID, err)
	}
	if n == 1 {
		s.cfg.Changed(ctx, "agent.removed", a)
	}
	return n == 1, s.breaker.Reset(ctx, breakerKey(a.ID))
}

// Roles returns the number of healthy agents of each role that an agent has, and the number
// of workers of each Go task, as "task:NAME".
func (s *Service) Roles(ctx context.Context) (map[string]int, error) {
	all, err := s.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for _, a := range all {
		for _, role := range a.Roles {
			out[role] += 0 // listed, even if no agent is healthy
			if a.State == StateHealthy {
				out[role]++
			}
		}
	}
	live, err := s.liveTasks(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range live {
		out[taskPrefix+t.name] = t.workers
	}
	return out, nil
}

// announceEvery is how often silent agents are forgotten.
const announceEvery = time.Minute

// keepRoster stores the agents of each configuration in Redis, and forgets silent ones, until ctx is done.
func (s *Service) keepRoster(ctx context.Context) {
	tick := time.NewTicker(min(announceEvery, max(s.cfg.ForgetAfter/4, 10*time.Millisecond)))
	defer tick.Stop()
	for stored := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-s.announceNow: // New has filled it
			stored = false
		case <-tick.C:
		}
		if !stored {
			err := s.announce(ctx)
			s.warn(ctx, "store the agents of the configuration", err)
			stored = err == nil
		}
		s.warn(ctx, "forget agents", s.forget(ctx))
	}
}

// announce stores the agents of the configuration.
func (s *Service) announce(ctx context.Context) error {
	for _, rec := range s.policy.Load().static {
		if _, err := s.store(ctx, &rec, rec.Owner, true); err != nil {
			return err
		}
	}
	return nil
}

// forget removes agents that have not called for long, except those of the configuration.
func (s *Service) forget(ctx context.Context) error {
	now, err := s.now(ctx)
	if err != nil {
		return err
	}
	all, err := s.snapshot(ctx)
	if err != nil {
		return err
	}
	cutoff := strconv.FormatInt(now.Add(-s.cfg.ForgetAfter).UnixMilli(), 10)
	for _, a := range all {
		if a.Static || now.Sub(a.LastSeen) < s.cfg.ForgetAfter {
			continue
		}
		gone, err := s.remove(ctx, a, cutoff)
		if err == nil && gone {
			s.log.InfoContext(ctx, "an agent is forgotten", "agent", a.ID, "last_seen", a.LastSeen)
			err = s.abandon(ctx, a.ID, jobs.ErrLeaseLost, true)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func breakerKey(id string) string { return breakerPrefix + id }

// breakerPrefix begins the keys of the breakers of agents.
const breakerPrefix = "agent:"

// IsBreaker reports whether a key is of the breaker of an agent.
func IsBreaker(key string) bool { return strings.HasPrefix(key, breakerPrefix) }

// Breaker returns the breaker of all agents with a URL, with one key per agent.
func (s *Service) Breaker() *limit.Breaker { return s.breaker }
