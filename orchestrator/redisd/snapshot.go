package redisd

import (
	"bufio"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/atomicfile"
)

// A snapshot file is gzip over a gob stream: a snapshotHead, then one
// snapshotKey for each key. gzip's own checksum tells a whole file from a
// damaged one, and gob lets later versions add fields: older ones skip what
// they do not know, and what an older one did not write is zero.

const (
	snapshotFormat  = "muster redis snapshot"
	snapshotVersion = 1   // raised only when an older program would misread the file
	databases       = 16  // as many as a redis-server has by default
	batch           = 500 // commands in a pipeline and values in a command
)

type snapshotHead struct {
	Format  string
	Version int
	Saved   time.Time
	Keys    int
}

type snapshotKey struct {
	DB      int
	Key     string
	Type    string
	Expires time.Time // zero: never
	Values  []string  // see lua/dump.lua
	Fields  []fieldExpiry
	Entries []streamEntry
	Groups  []streamGroup
}

type fieldExpiry struct {
	Field   string
	Expires time.Time
}

type streamEntry struct {
	ID     string
	Values []string
}

type streamGroup struct {
	Name, LastID string
	Consumers    []string
	Pending      []streamPending
}

type streamPending struct {
	ID, Consumer string
	Delivered    time.Time
	Deliveries   int64
}

//go:embed lua/dump.lua
var dumpLua string

var dumpCmd = redis.NewScript(dumpLua)

// dump reads everything a miniredis holds.
func dump(ctx context.Context, rdb redis.Scripter) ([]snapshotKey, error) {
	now := time.Now()
	rows, err := dumpCmd.Run(ctx, rdb, nil, databases).Slice()
	if err != nil {
		return nil, fmt.Errorf("read the contents: %w", err)
	}
	keys := make([]snapshotKey, 0, len(rows))
	for _, row := range rows {
		keys = append(keys, parseKey(row.([]any), now))
	}
	return keys, nil
}

func parseKey(row []any, now time.Time) snapshotKey {
	k := snapshotKey{DB: int(row[0].(int64)), Key: row[1].(string), Type: row[2].(string)}
	if ttl := row[3].(int64); ttl >= 0 {
		k.Expires = now.Add(time.Duration(ttl) * time.Millisecond)
	}
	values, more := row[4].([]any), row[5].([]any)
	if k.Type != "stream" {
		k.Values = texts(values)
		for i := 0; i+1 < len(more); i += 2 {
			ttl := time.Duration(more[i+1].(int64)) * time.Millisecond
			k.Fields = append(k.Fields, fieldExpiry{Field: more[i].(string), Expires: now.Add(ttl)})
		}
		return k
	}
	for _, e := range values {
		entry := e.([]any)
		k.Entries = append(k.Entries, streamEntry{ID: entry[0].(string), Values: texts(entry[1].([]any))})
	}
	for _, g := range more {
		row := g.([]any)
		group := streamGroup{Name: row[0].(string), LastID: row[1].(string), Consumers: texts(row[2].([]any))}
		for _, p := range row[3].([]any) {
			row := p.([]any)
			group.Pending = append(group.Pending, streamPending{
				ID: row[0].(string), Consumer: row[1].(string),
				Delivered:  now.Add(-time.Duration(row[2].(int64)) * time.Millisecond),
				Deliveries: row[3].(int64),
			})
		}
		k.Groups = append(k.Groups, group)
	}
	return k
}

func texts(values []any) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i], _ = v.(string)
	}
	return out
}

// load writes keys into the Redis behind rdb, which is taken to be empty. Keys
// that have expired since they were saved are left out.
func load(ctx context.Context, rdb *redis.Client, keys []snapshotKey) error {
	conn := rdb.Conn()
	defer conn.Close()

	now := time.Now()
	for db, keys := range byDatabase(keys) {
		if err := conn.Select(ctx, db).Err(); err != nil {
			return fmt.Errorf("select database %d: %w", db, err)
		}
		pipe := conn.Pipeline()
		for _, k := range keys {
			if !k.Expires.IsZero() && !k.Expires.After(now) {
				continue
			}
			restore(ctx, pipe, k, now)
			if pipe.Len() < batch {
				continue
			}
			if err := flush(ctx, pipe); err != nil {
				return err
			}
		}
		if err := flush(ctx, pipe); err != nil {
			return err
		}
	}
	return conn.Select(ctx, 0).Err()
}

func byDatabase(keys []snapshotKey) map[int][]snapshotKey {
	out := map[int][]snapshotKey{}
	for _, k := range keys {
		out[k.DB] = append(out[k.DB], k)
	}
	return out
}

func flush(ctx context.Context, pipe redis.Pipeliner) error {
	cmds, err := pipe.Exec(ctx)
	for _, cmd := range cmds {
		err := cmd.Err()
		if err != nil && cmd.Name() == "hexpire" && strings.Contains(err.Error(), "unknown command") {
			continue // a Redis before 7.4: the field stays until its key goes
		}
		if err != nil {
			return fmt.Errorf("restore %s %v: %w", cmd.Name(), cmd.Args()[1], err)
		}
	}
	if err != nil && len(cmds) == 0 {
		return err
	}
	return nil
}

// restore queues the commands that make k.
func restore(ctx context.Context, pipe redis.Pipeliner, k snapshotKey, now time.Time) {
	fill := map[string]string{"list": "RPUSH", "set": "SADD", "hash": "HSET"}
	switch k.Type {
	case "string":
		pipe.Set(ctx, k.Key, k.Values[0], 0)
	case "list", "set", "hash":
		for values := range slices.Chunk(k.Values, batch) {
			pipe.Do(ctx, append([]any{fill[k.Type], k.Key}, anys(values)...)...)
		}
	case "zset":
		for pairs := range slices.Chunk(k.Values, batch) {
			args := []any{"ZADD", k.Key}
			for i := 0; i+1 < len(pairs); i += 2 {
				args = append(args, pairs[i+1], pairs[i])
			}
			pipe.Do(ctx, args...)
		}
	case "stream":
		restoreStream(ctx, pipe, k)
	}
	for _, f := range k.Fields {
		left := (f.Expires.Sub(now) + time.Second - 1) / time.Second
		pipe.Do(ctx, "HEXPIRE", k.Key, int64(max(left, 1)), "FIELDS", 1, f.Field)
	}
	if !k.Expires.IsZero() {
		pipe.PExpireAt(ctx, k.Key, k.Expires)
	}
}

func restoreStream(ctx context.Context, pipe redis.Pipeliner, k snapshotKey) {
	for _, e := range k.Entries {
		pipe.Do(ctx, append([]any{"XADD", k.Key, e.ID}, anys(e.Values)...)...)
	}
	for _, g := range k.Groups {
		pipe.XGroupCreateMkStream(ctx, k.Key, g.Name, g.LastID)
		for _, c := range g.Consumers {
			pipe.XGroupCreateConsumer(ctx, k.Key, g.Name, c)
		}
		for _, p := range g.Pending {
			pipe.Do(ctx, "XCLAIM", k.Key, g.Name, p.Consumer, 0, p.ID, "TIME", p.Delivered.UnixMilli(),
				"RETRYCOUNT", p.Deliveries, "FORCE", "JUSTID")
		}
	}
}

func anys(values []string) []any {
	out := make([]any, len(values))
	for i, v := range values {
		out[i] = v
	}
	return out
}

// writeSnapshot replaces the snapshot at path.
func writeSnapshot(path string, keys []snapshotKey) error {
	return atomicfile.Write(path, 0o600, func(w io.Writer) error {
		zip, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			return err
		}
		enc := gob.NewEncoder(zip)
		if err := enc.Encode(snapshotHead{snapshotFormat, snapshotVersion, time.Now(), len(keys)}); err != nil {
			return err
		}
		for _, k := range keys {
			if err := enc.Encode(k); err != nil {
				return err
			}
		}
		return zip.Close()
	})
}

// errSnapshot says that a file is not a snapshot this program can read.
var errSnapshot = errors.New("not a readable snapshot")

// readSnapshot reads the snapshot at path. The error is errSnapshot when the
// content is to blame, and something else when the file could not be read.
func readSnapshot(path string) ([]snapshotKey, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	bad := func(err error) error { return fmt.Errorf("read %s: %w: %w", path, errSnapshot, err) }
	zip, err := gzip.NewReader(bufio.NewReaderSize(f, 64<<10))
	if err != nil {
		return nil, bad(err)
	}
	dec := gob.NewDecoder(zip)
	var head snapshotHead
	if err := dec.Decode(&head); err != nil {
		return nil, bad(err)
	}
	if head.Format != snapshotFormat {
		return nil, bad(errors.New("it was not written by muster"))
	}
	if head.Version > snapshotVersion {
		return nil, bad(errors.New("it was written by a newer muster, version " + strconv.Itoa(head.Version)))
	}
	var keys []snapshotKey
	for {
		var k snapshotKey
		err := dec.Decode(&k)
		if errors.Is(err, io.EOF) { // and the checksum was right
			break
		}
		if err != nil {
			return nil, bad(err)
		}
		keys = append(keys, k)
	}
	if len(keys) != head.Keys {
		return nil, bad(fmt.Errorf("%d of %d keys", len(keys), head.Keys))
	}
	return keys, nil
}
