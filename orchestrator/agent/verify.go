package agent

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"muster/orchestrator/job"
	"muster/orchestrator/store"
)

// form is what a key must have.
type form struct {
	kind    string                  // its type
	numeric func(field string) bool // which fields, or the string, must be whole numbers; nil: none
}

// forms are those of the keys of agents, by the word behind the prefix.
var forms = map[string]form{
	"agents": {kind: "hash"}, "names": {kind: "hash"}, "seen": {kind: "zset"}, "owners": {kind: "hash"}, "static": {kind: "zset"},
	"drained": {kind: "set"}, "resting": {kind: "zset"}, "checks": {kind: "zset"}, "health": {kind: "hash"}, "version": {"string", all},
	"spans": {kind: "hash"}, "due": {kind: "zset"}, "held": {kind: "zset"}, "broke": {"string", all},
	"numbers": {"hash", func(field string) bool { return field == "done" || field == "failed" || field == "idle" }},
	"usage":   {"hash", all}, "used": {"hash", all}, "stale": {kind: "zset"}, "took": {"hash", all}, "hour": {"hash", all}, "assignment": {kind: "hash"},
}

func all(string) bool { return true }

// Verify looks for keys of agents that have another type than they must have, for records that cannot be read and for
// numbers that are none, and calls report with them. With repair it removes them: an agent without a record registers
// again, and counts begin anew.
func (s *Service) Verify(ctx context.Context, repair bool, report func(job.Finding) error) error {
	err := store.EachKey(ctx, s.rdb, s.keys.prefix+"*", func(key string) error { return s.verify(ctx, key, repair, report) })
	if err != nil {
		return fmt.Errorf("check the agents: %w", err)
	}
	return nil
}

// verify checks a key.
func (s *Service) verify(ctx context.Context, key string, repair bool, report func(job.Finding) error) error {
	name, _, _ := strings.Cut(strings.TrimPrefix(key, s.keys.prefix), ":")
	want, known := forms[name]
	if !known {
		return nil
	}
	found := func(field, value, problem string) error {
		if repair {
			n, err := scripts["mend"].Run(ctx, s.rdb, []string{key}, want.kind, field, value).Int()
			if err != nil || n == 0 { // 0: it has changed meanwhile
				return err
			}
		}
		return report(job.Finding{Key: key, Problem: problem, Repaired: repair})
	}
	is, err := s.rdb.Type(ctx, key).Result()
	if err != nil || is == "none" {
		return err
	}
	if is != want.kind {
		return found("", "", fmt.Sprintf("is a %s, and must be a %s", is, want.kind))
	}
	values := map[string]string{}
	switch {
	case name != "agents" && want.numeric == nil:
		return nil
	case is == "hash":
		values, err = s.rdb.HGetAll(ctx, key).Result()
	default:
		values[""], err = s.rdb.Get(ctx, key).Result()
	}
	if err != nil {
		return err
	}
	for field, value := range values {
		problem := ""
		if name == "agents" {
			if _, err := parseRecord(field, value); err != nil {
				problem = fmt.Sprintf("agent %.100q: %v", field, err)
			}
		} else if _, err := strconv.ParseInt(value, 10, 64); err != nil && want.numeric(field) {
			problem = fmt.Sprintf("counts %.20q %.40q", value, field)
		}
		if problem == "" {
			continue
		}
		if err := found(field, value, problem); err != nil {
			return err
		}
	}
	return nil
}
