package record

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/sites/internal/store"
)

// presenceTTL is how long an announcement is valid.
const presenceTTL = 30 * time.Second

// presence says where a process writes records.
type presence struct {
	Owner string   `json:"owner"`
	Homes []string `json:"homes"` // names of folders
	Sinks []string `json:"sinks"` // hashes of addresses: those may contain keys
}

// covers reports whether the process writes to the folder and to the sinks.
func (p presence) covers(home string, sinks []string) bool {
	return slices.Contains(p.Homes, home) && !slices.ContainsFunc(sinks, func(address string) bool {
		return !isLocalSQLite(address) && !slices.Contains(p.Sinks, hashOf(address))
	})
}

func hashOf(address string) string {
	sum := sha256.Sum256([]byte(address))
	return hex.EncodeToString(sum[:8])
}

// announce stores for other processes where this one writes.
func (r *Recorder) announce(ctx context.Context) error {
	p := presence{Owner: r.owner}
	dirs, sinks := r.permits.list()
	for _, dir := range dirs {
		if home := r.sees(dir); home != "" {
			p.Homes = append(p.Homes, home)
		}
	}
	for _, address := range sinks {
		p.Sinks = append(p.Sinks, hashOf(address))
	}
	member, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode where this process writes: %w", err)
	}
	now := time.Now()
	r.announced = string(member)
	_, err = r.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.ZAdd(ctx, store.WritersKey, redis.Z{Score: float64(now.Add(presenceTTL).UnixMilli()), Member: member})
		pipe.ZRemRangeByScore(ctx, store.WritersKey, "-inf", strconv.FormatInt(now.UnixMilli(), 10))
		pipe.Expire(ctx, store.WritersKey, presenceTTL)
		return nil
	})
	if err != nil {
		return fmt.Errorf("announce where this process writes: %w", err)
	}
	return nil
}

// retract removes what announce stored.
func (r *Recorder) retract(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := r.rdb.ZRem(ctx, store.WritersKey, r.announced).Err(); err != nil {
		r.cfg.Logger.DebugContext(ctx, "this process is listed as a writer for another half a minute", "error", err)
	}
}

// present lists where processes write.
func (r *Recorder) present(ctx context.Context) ([]presence, error) {
	members, err := r.rdb.ZRangeByScore(ctx, store.WritersKey, &redis.ZRangeBy{Min: strconv.FormatInt(time.Now().UnixMilli(), 10), Max: "+inf"}).Result()
	if err != nil {
		return nil, fmt.Errorf("list the processes that write records: %w", err)
	}
	var all []presence
	for _, member := range members {
		var p presence
		if json.Unmarshal([]byte(member), &p) == nil {
			all = append(all, p)
		}
	}
	return all, nil
}

// Unwritten returns why no process writes the records of a job, or "".
func (r *Recorder) Unwritten(ctx context.Context, req store.Request) (string, error) {
	all, err := r.present(ctx)
	if err != nil || slices.ContainsFunc(all, func(p presence) bool { return p.covers(req.Home, req.Sinks) }) {
		return "", err
	}
	return fmt.Sprintf("its records wait in Redis: no running process may write to its folder, %s, and its sinks; muster scrape %s with the same --out and --sink does", req.OutDir, req.Site), nil
}

// WrittenElsewhere reports whether a process other than this one writes to a
// folder and sinks.
func (r *Recorder) WrittenElsewhere(ctx context.Context, dir string, sinks []string) (bool, error) {
	home, err := FolderName(dir)
	if err != nil {
		return false, err
	}
	all, err := r.present(ctx)
	return slices.ContainsFunc(all, func(p presence) bool { return p.Owner != r.owner && p.covers(home, sinks) }), err
}
