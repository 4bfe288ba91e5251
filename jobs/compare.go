package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"time"
)

// Differences between the items of two jobs.
const (
	ChangeNew     = "new"
	ChangeGone    = "gone"
	ChangeChanged = "changed"
	ChangeSame    = "same"
)

// Compare calls yield with how each item differs between two jobs, by key. It holds few items at a time.
func (s *Service) Compare(ctx context.Context, a, b string, yield func(Difference) error) error {
	for _, id := range []string{a, b} {
		if _, err := s.read(ctx, id); err != nil {
			return err
		}
	}
	err := s.against(ctx, a, b, func(it Item, other *Item) error {
		switch {
		case other == nil:
			return yield(Difference{Key: it.Key, Change: ChangeGone, A: &it})
		case equalContent(it, *other):
			return yield(Difference{Key: it.Key, Change: ChangeSame, A: &it, B: other})
		}
		return yield(Difference{Key: it.Key, Change: ChangeChanged, A: &it, B: other})
	})
	if err != nil {
		return err
	}
	return s.against(ctx, b, a, func(it Item, other *Item) error {
		if other != nil {
			return nil
		}
		return yield(Difference{Key: it.Key, Change: ChangeNew, B: &it})
	})
}

// against calls fn with each item of a job, and the one with the same key of another job, nil if it has none.
func (s *Service) against(ctx context.Context, id, other string, fn func(Item, *Item) error) error {
	p, err := s.planOf(ctx, other)
	if err != nil {
		return err
	}
	return s.eachPage(ctx, id, func(items []Item) error {
		var ids []string
		for _, it := range items {
			ids = append(ids, itemID(it.Key))
		}
		infos, err := s.queue(other).Get(ctx, ids...)
		if err != nil {
			return err
		}
		found := map[string]*Item{}
		for _, info := range infos {
			it := itemOf(other, p, info)
			found[it.Key] = &it
		}
		for _, it := range items {
			if err := fn(it, found[it.Key]); err != nil {
				return err
			}
		}
		return nil
	})
}

// equalContent reports whether two items have the same content and state.
func equalContent(a, b Item) bool {
	return bytes.Equal(content(a), content(b))
}

func content(it Item) []byte {
	it.ID, it.JobID, it.Stage, it.Agent, it.ReviewedBy, it.LastError = "", "", "", "", "", ""
	it.RetryCount, it.CreatedAt, it.UpdatedAt = 0, time.Time{}, time.Time{}
	raw, err := json.Marshal(it)
	if err != nil {
		return nil
	}
	return raw
}
