package sites

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

// announced is how long a process counts as one that writes after it said so.
const announced = 30 * time.Second

// announcement says where a process writes records.
type announcement struct {
	Owner string   `json:"owner"`
	Homes []string `json:"homes"` // names of folders
	Sinks []string `json:"sinks"` // hashes of addresses: those may hold keys
}

// covers reports whether the process writes to the folder and to the sinks.
func (a announcement) covers(home string, sinks []string) bool {
	return slices.Contains(a.Homes, home) && !slices.ContainsFunc(sinks, func(address string) bool {
		return !isLocalSQLite(address) && !slices.Contains(a.Sinks, hashOf(address))
	})
}

func hashOf(address string) string {
	sum := sha256.Sum256([]byte(address))
	return hex.EncodeToString(sum[:8])
}

// announce lets others know where this process writes.
func (s *Service) announce(ctx context.Context) error {
	a := announcement{Owner: s.owner}
	dirs, sinks := s.permits.list()
	for _, dir := range dirs {
		if home := s.sees(dir); home != "" {
			a.Homes = append(a.Homes, home)
		}
	}
	for _, address := range sinks {
		a.Sinks = append(a.Sinks, hashOf(address))
	}
	member, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode where this process writes: %w", err)
	}
	now := time.Now()
	s.announced = string(member)
	_, err = s.cfg.Client.Redis().Pipelined(ctx, func(p redis.Pipeliner) error {
		p.ZAdd(ctx, store.WritersKey, redis.Z{Score: float64(now.Add(announced).UnixMilli()), Member: member})
		p.ZRemRangeByScore(ctx, store.WritersKey, "-inf", strconv.FormatInt(now.UnixMilli(), 10))
		p.Expire(ctx, store.WritersKey, announced)
		return nil
	})
	if err != nil {
		return fmt.Errorf("say where this process writes: %w", err)
	}
	return nil
}

// retract takes back what announce said.
func (s *Service) retract(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := s.cfg.Client.Redis().ZRem(ctx, store.WritersKey, s.announced).Err(); err != nil {
		s.cfg.Logger.Debug("this process counts as one that writes for a while yet", "error", err)
	}
}

// announcements lists where processes write.
func (s *Service) announcements(ctx context.Context) ([]announcement, error) {
	members, err := s.cfg.Client.Redis().ZRangeByScore(ctx, store.WritersKey, &redis.ZRangeBy{Min: strconv.FormatInt(time.Now().UnixMilli(), 10), Max: "+inf"}).Result()
	if err != nil {
		return nil, fmt.Errorf("look who writes records: %w", err)
	}
	var all []announcement
	for _, member := range members {
		var a announcement
		if json.Unmarshal([]byte(member), &a) == nil {
			all = append(all, a)
		}
	}
	return all, nil
}

// unwritten returns why nobody writes the records of a job, or "".
func (s *Service) unwritten(ctx context.Context, req store.Request) (string, error) {
	all, err := s.announcements(ctx)
	if err != nil || slices.ContainsFunc(all, func(a announcement) bool { return a.covers(req.Home, req.Sinks) }) {
		return "", err
	}
	return fmt.Sprintf("its records wait in Redis, for no process that runs may write to its folder, %s, and its sinks: muster scrape %s with the same --out and --sink does", req.OutDir, req.Site), nil
}

// WrittenElsewhere reports whether a process other than this one writes what
// a scrape with these options yields. When none does, this one has to stay.
func (s *Service) WrittenElsewhere(ctx context.Context, o ScrapeOptions) (bool, error) {
	dir, to, err := s.destination(o)
	if err != nil {
		return false, err
	}
	home, err := homeOf(dir)
	if err != nil {
		return false, err
	}
	all, err := s.announcements(ctx)
	return slices.ContainsFunc(all, func(a announcement) bool { return a.Owner != s.owner && a.covers(home, to) }), err
}
