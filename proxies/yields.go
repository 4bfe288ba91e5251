package proxies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/wrap"
	"muster/proxies/source"
)

// A Yield counts the candidates of a source.
type Yield struct {
	Candidates int `json:"candidates"`
	Unique     int `json:"unique"` // in no other source
	Alive      int `json:"alive"`
	Usable     int `json:"usable"`
	Elite      int `json:"elite"`
}

func (y *Yield) add(o Yield) {
	y.Candidates += o.Candidates
	y.Unique += o.Unique
	y.Alive += o.Alive
	y.Usable += o.Usable
	y.Elite += o.Elite
}

// A SourceYield is the result of the last refresh from a source.
type SourceYield struct {
	Last    Yield                 `json:"last"`
	LastAt  time.Time             `json:"last_at,omitzero"`
	DryFor  int                   `json:"dry_for"`           // consecutive refreshes without a usable proxy or without a list
	Rejects map[source.Reject]int `json:"rejects,omitempty"` // rejected entries of the last list, by reason
	Error   string                `json:"error,omitempty"`   // of the last attempt to read the source
	Run     string                `json:"run,omitempty"`     // ID of the refresh
}

// dryAfter is the number of refreshes without a usable proxy after which a source is dry.
const dryAfter = 3

// State returns a short description of the state of a source.
func (y SourceYield) State() string {
	switch {
	case y.LastAt.IsZero():
		return "not read yet"
	case y.DryFor >= dryAfter:
		return fmt.Sprintf("DRY for %d", y.DryFor)
	case y.Error != "":
		return "unreadable"
	case y.Last.Usable == 0:
		return "nothing usable"
	}
	return "yields"
}

// Yields returns the yields of all sources by name.
func (p *Pool) Yields(ctx context.Context) (map[string]SourceYield, error) {
	texts, err := p.rdb.HGetAll(ctx, yieldsKey(p.name)).Result()
	if err != nil {
		return nil, fmt.Errorf("read yields of sources: %w", err)
	}
	out := map[string]SourceYield{}
	for name, text := range texts {
		var y SourceYield
		if json.Unmarshal([]byte(text), &y) == nil {
			out[name] = y
		}
	}
	return out, nil
}

// recordRead records the result of reading a source in a refresh. recordYields adds the yield of its candidates.
func (p *Pool) recordRead(ctx context.Context, run string, list source.List, failure error) error {
	var y SourceYield
	text, err := p.rdb.HGet(ctx, yieldsKey(p.name), list.Source).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("read yield of %s: %w", list.Source, err)
	}
	_ = json.Unmarshal([]byte(text), &y) // a damaged record is replaced
	y.Rejects, y.Error = list.Rejects, ""
	if failure != nil {
		y.Error = failure.Error()
		y.Last, y.LastAt = Yield{}, time.Now().UTC()
		if y.Run != run { // a retry belongs to the same refresh
			y.Run = run
			p.countDry(list.Source, &y)
		}
	}
	return p.writeYields(ctx, map[string]SourceYield{list.Source: y})
}

// recordYields records the yield of each source in a refresh.
func (p *Pool) recordYields(ctx context.Context, run string, sources map[string]Yield) error {
	if len(sources) == 0 {
		return nil
	}
	known, err := p.Yields(ctx)
	if err != nil {
		return err
	}
	changed := map[string]SourceYield{}
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		last, y := sources[name], known[name]
		if y.Run == run { // the task ran twice
			continue
		}
		y.Last, y.LastAt, y.Run = last, time.Now().UTC(), run
		if last.Usable > 0 {
			y.DryFor = 0
		} else {
			p.countDry(name, &y)
		}
		changed[name] = y
	}
	return p.writeYields(ctx, changed)
}

// countDry counts a refresh without a usable proxy and logs when the source becomes dry.
func (p *Pool) countDry(name string, y *SourceYield) {
	if y.DryFor++; y.DryFor == dryAfter {
		p.cfg.Logger.Warn("no usable proxies from a source in three refreshes; see muster proxies list --sources", "source", name)
	}
}

func (p *Pool) writeYields(ctx context.Context, all map[string]SourceYield) error {
	values := map[string]any{}
	for name, y := range all {
		text, err := json.Marshal(y)
		if err != nil {
			return fmt.Errorf("encode yield of %s: %w", name, err)
		}
		values[name] = text
	}
	if len(values) == 0 {
		return nil
	}
	return wrap.Err(p.rdb.HSet(ctx, yieldsKey(p.name), values).Err(), "record yields of sources")
}
