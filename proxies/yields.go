package proxies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/proxies/source"
)

// Yield is what one source has yielded.
type Yield struct {
	Candidates int `json:"candidates"`
	Unique     int `json:"unique"` // that no other source had
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

// SourceYield is what a source has yielded over time.
type SourceYield struct {
	Last      Yield                 `json:"last"`
	LastAt    time.Time             `json:"last_at,omitzero"`
	Total     Yield                 `json:"total"`
	Refreshes int                   `json:"refreshes"`
	DryFor    int                   `json:"dry_for"`           // refreshes in a row without a usable proxy, or without an answer
	Rejects   map[source.Reject]int `json:"rejects,omitempty"` // entries left out of the last list, by reason
	Error     string                `json:"error,omitempty"`   // why it could not be read the last time
	Run       string                `json:"run,omitempty"`     // the last refresh that is counted
}

// ErrNoSources means that a refresh has nothing to read.
var ErrNoSources = errors.New("there are no sources; name lists of proxies in proxies.sources")

// dryAfter is how many refreshes without a usable proxy make a source dry.
const dryAfter = 3

// State describes a source in a word or two.
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

// Yields returns what each source has yielded, by name.
func (p *Pool) Yields(ctx context.Context) (map[string]SourceYield, error) {
	return p.yields.all(ctx)
}

// yields are what sources have yielded, as Redis holds it.
type yields struct {
	*store
	logger *slog.Logger
}

func (ys yields) all(ctx context.Context) (map[string]SourceYield, error) {
	texts, err := ys.rdb.HGetAll(ctx, yieldsKey(ys.name)).Result()
	if err != nil {
		return nil, fmt.Errorf("read the yields of sources: %w", err)
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

// recordRead records how the reading of a source ended in a refresh. record adds the yield of its candidates.
func (ys yields) recordRead(ctx context.Context, run string, list source.List, failure error) error {
	var y SourceYield
	text, err := ys.rdb.HGet(ctx, yieldsKey(ys.name), list.Source).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("read the yield of %s: %w", list.Source, err)
	}
	_ = json.Unmarshal([]byte(text), &y) // a broken record is replaced
	y.Rejects, y.Error = list.Rejects, ""
	if failure != nil {
		y.Error = failure.Error()
		y.Last, y.LastAt = Yield{}, time.Now().UTC()
		if y.Run != run { // a second try is the same refresh
			y.Run = run
			y.Refreshes++
			ys.dry(list.Source, &y)
		}
	}
	return ys.write(ctx, map[string]SourceYield{list.Source: y})
}

// record records the yield of each source in a refresh.
func (ys yields) record(ctx context.Context, run string, sources map[string]Yield) error {
	if len(sources) == 0 {
		return nil
	}
	known, err := ys.all(ctx)
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
		y.Refreshes++
		y.Total.add(last)
		if last.Usable > 0 {
			y.DryFor = 0
		} else {
			ys.dry(name, &y)
		}
		changed[name] = y
	}
	return ys.write(ctx, changed)
}

// dry counts a refresh without a usable proxy, and logs when there have been too many.
func (ys yields) dry(name string, y *SourceYield) {
	if y.DryFor++; y.DryFor == dryAfter {
		ys.logger.Warn("a source of proxies has yielded nothing usable for three refreshes; see muster proxies sources", "source", name)
	}
}

func (ys yields) write(ctx context.Context, all map[string]SourceYield) error {
	values := map[string]any{}
	for name, y := range all {
		text, err := json.Marshal(y)
		if err != nil {
			return fmt.Errorf("encode the yield of %s: %w", name, err)
		}
		values[name] = text
	}
	if len(values) == 0 {
		return nil
	}
	if err := ys.rdb.HSet(ctx, yieldsKey(ys.name), values).Err(); err != nil {
		return fmt.Errorf("record the yields of sources: %w", err)
	}
	return nil
}
