package redisd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// useExternal uses the Redis at url, which is never stopped.
func (s *Server) useExternal(ctx context.Context, url string) error {
	if err := s.cfg.await(ctx, url, nil); err != nil {
		return err
	}
	t, err := inspect(ctx, url, s.cfg.PingTimeout)
	if err != nil {
		return err
	}
	if t.replica {
		return fmt.Errorf("use the Redis at %s: %w; give the address of its master", Redact(url), ErrReplica)
	}
	s.mode, s.url, s.warnings = External, url, t.warnings()
	s.guarantee = fmt.Sprintf("A Redis that was running already, at %s; it is never stopped, and %s.", Redact(url), t.guarantee())
	return nil
}

// traits are what matters about a Redis that is not ours.
type traits struct {
	version    string
	replica    bool
	appendOnly bool
	snapshots  bool
	unknown    bool // it does not say how it keeps its data
}

// inspect reads the traits of a Redis. Managed ones and miniredis do not report
// all of them: that is no error.
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
	if _, one := rdb.(*redis.Client); one { // the nodes of a cluster differ
		t.replica = info("replication")["role"] == "slave"
	}

	persistence := info("persistence")
	t.unknown = persistence["aof_enabled"] == ""
	t.appendOnly = persistence["aof_enabled"] == "1"
	// CONFIG is often forbidden; then a snapshot that was ever made shows it.
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

// warnings are what an operator should change.
func (t traits) warnings() []string {
	var out []string
	switch {
	case t.unknown:
	case !t.appendOnly && !t.snapshots:
		out = append(out, "this Redis keeps nothing on disk: when it restarts, all jobs are lost; set appendonly yes")
	case !t.appendOnly:
		out = append(out, "this Redis only makes snapshots: when it crashes, the last minutes are lost; set appendonly yes")
	}
	if old(t.version) {
		out = append(out, "this Redis is version "+t.version+"; Muster needs 6.2 or later")
	}
	return out
}

// guarantee says in half a sentence what a crash of it costs.
func (t traits) guarantee() string {
	switch {
	case t.unknown:
		return "it does not say what survives its restart"
	case t.appendOnly:
		return "its append-only file survives its restart"
	case t.snapshots:
		return "its restart may lose what came after its last snapshot"
	}
	return "its restart loses everything: it keeps nothing on disk"
}

func old(version string) bool {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major < 6 || major == 6 && minor < 2
}
