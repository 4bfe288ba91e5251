package redisd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// traits are what matters about a Redis that is not ours.
type traits struct {
	version    string
	replica    bool
	appendOnly bool
	snapshots  bool
	unknown    bool // it does not tell about persistence
}

// inspect asks a Redis about itself. Managed ones and miniredis leave some
// questions unanswered: that is no error.
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
	if _, one := rdb.(*redis.Client); one { // of a cluster any node may answer
		t.replica = info("replication")["role"] == "slave"
	}

	persistence := info("persistence")
	t.unknown = persistence["aof_enabled"] == ""
	t.appendOnly = persistence["aof_enabled"] == "1"
	// CONFIG is often forbidden; then a snapshot that was ever made tells.
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
		return "what survives its restart is its own affair"
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

// databaseEmpty reports whether no database of the Redis has a key.
func databaseEmpty(ctx context.Context, rdb redis.UniversalClient) (bool, error) {
	text, err := rdb.Info(ctx, "keyspace").Result()
	return err == nil && len(parseInfo(text)) == 0, err
}
