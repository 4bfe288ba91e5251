package redisd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// useExternal uses the Redis at url. It is never stopped.
func (s *Server) useExternal(ctx context.Context, url string) error {
	if err := s.cfg.await(ctx, url, nil); err != nil {
		return err
	}
	t, err := inspect(ctx, url, s.cfg.PingTimeout)
	if err != nil {
		return err
	}
	if t.replica {
		return fmt.Errorf("use the Redis at %s: %w; use the address of its master", Redact(url), ErrReplica)
	}
	s.mode, s.url, s.warnings = External, url, t.warnings()
	s.guarantee = fmt.Sprintf("External Redis at %s; Muster never stops it, and %s.", Redact(url), t.guarantee())
	return nil
}

// traits are the relevant properties of an external Redis.
type traits struct {
	version    string
	replica    bool
	appendOnly bool
	snapshots  bool
	unknown    bool // persistence is not reported
}

// inspect reads the traits of a Redis. Managed services and miniredis do not report all of them; this is not an error.
func inspect(ctx context.Context, url string, limit time.Duration) (traits, error) {
	rdb, err := connect(url, limit)
	if err != nil {
		return traits{}, err
	}
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	info := func(section string) map[string]string {
		text, err := rdb.Info(ctx, section).Result()
		if err != nil {
			return nil
		}
		return parseInfo(text)
	}
	var t traits
	t.version = info("server")["redis_version"]
	if _, one := rdb.(*redis.Client); one { // nodes of a cluster have different roles
		t.replica = info("replication")["role"] == "slave"
	}

	persistence := info("persistence")
	t.unknown = persistence["aof_enabled"] == ""
	t.appendOnly = persistence["aof_enabled"] == "1"
	// CONFIG is often forbidden. In that case, existing snapshots show that snapshots are enabled.
	if save, err := rdb.ConfigGet(ctx, "save").Result(); err == nil {
		t.snapshots = save["save"] != ""
	} else {
		t.snapshots = persistence["rdb_saves"] != "" && persistence["rdb_saves"] != "0"
	}
	return t, nil
}

func parseInfo(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			out[name] = value
		}
	}
	return out
}

// warnings returns recommendations for the operator.
func (t traits) warnings() []string {
	var out []string
	switch {
	case t.unknown:
	case !t.appendOnly && !t.snapshots:
		out = append(out, "this Redis has no persistence: a restart loses all jobs; set appendonly yes")
	case !t.appendOnly:
		out = append(out, "this Redis uses only snapshots: a crash loses the last minutes; set appendonly yes")
	}
	if old(t.version) {
		out = append(out, "this Redis has version "+t.version+"; Muster requires 6.2 or later")
	}
	return out
}

// guarantee describes the durability of the Redis in half a sentence.
func (t traits) guarantee() string {
	switch {
	case t.unknown:
		return "its persistence is unknown"
	case t.appendOnly:
		return "its append-only file survives a restart"
	case t.snapshots:
		return "a restart may lose the writes since its last snapshot"
	}
	return "a restart loses all data, because persistence is off"
}

func old(version string) bool {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major < 6 || major == 6 && minor < 2
}
