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

// presenceTTL is the lifetime of an announcement.
const presenceTTL = 30 * time.Second

// presence has the directories and sinks that a process writes to.
type presence struct {
	Owner string   `json:"owner"`
	Homes []string `json:"homes"` // names of directories
	Sinks []string `json:"sinks"` // hashes of addresses, which may contain keys
}

// covers reports whether the process writes to the directory and to all of the sinks.
func (p presence) covers(home string, sinks []string) bool {
	return slices.Contains(p.Homes, home) && !slices.ContainsFunc(sinks, func(address string) bool {
		return !isLocalSQLite(address) && !slices.Contains(p.Sinks, hashOf(address))
	})
}

func hashOf(address string) string {
	sum := sha256.Sum256([]byte(address))
	return hex.EncodeToString(sum[:8])
}

// announce stores the presence of this process for other processes.
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
		return fmt.Errorf("encode the announcement of this writer: %w", err)
	}
	now := time.Now()
	if string(member) == r.announced && now.Sub(r.announcedAt) < presenceTTL/3 {
		return nil
	}
	_, err = r.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.ZAdd(ctx, store.WritersKey, redis.Z{Score: float64(now.Add(presenceTTL).UnixMilli()), Member: member})
		pipe.ZRemRangeByScore(ctx, store.WritersKey, "-inf", strconv.FormatInt(now.UnixMilli(), 10))
		pipe.Expire(ctx, store.WritersKey, presenceTTL)
		return nil
	})
	if err != nil {
		return fmt.Errorf("announce this writer: %w", err)
	}
	r.announced, r.announcedAt = string(member), now
	return nil
}

// retract removes what announce stored.
func (r *Recorder) retract(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := r.rdb.ZRem(ctx, store.WritersKey, r.announced).Err(); err != nil {
		r.cfg.Logger.DebugContext(ctx, "cannot remove the announcement of this writer, which expires in half a minute", "error", err)
	}
}

// present returns the presences of all processes.
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

// Unwritten returns the reason why no process writes the records of a job, or "".
func (r *Recorder) Unwritten(ctx context.Context, req store.Request) (string, error) {
	all, err := r.present(ctx)
	if err != nil || slices.ContainsFunc(all, func(p presence) bool { return p.covers(req.Home, req.Sinks) }) {
		return "", err
	}
	return fmt.Sprintf("its records wait in Redis: no running process may write to its directory %s and its sinks; run muster scrape %s with the same --out and --sink", req.OutDir, req.Site), nil
}

// WrittenElsewhere reports whether another process writes to a directory and sinks.
func (r *Recorder) WrittenElsewhere(ctx context.Context, dir string, sinks []string) (bool, error) {
	home, err := FolderName(dir)
	if err != nil {
		return false, err
	}
	all, err := r.present(ctx)
	return slices.ContainsFunc(all, func(p presence) bool { return p.Owner != r.owner && p.covers(home, sinks) }), err
}
