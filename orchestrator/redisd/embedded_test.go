package redisd

import (
	"compress/gzip"
	"encoding/gob"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
)

// fill writes keys of every type and returns what must be there again later.
func fill(t *testing.T, url string) {
	t.Helper()
	ctx := t.Context()
	rdb := client(t, url)
	pipe := rdb.Pipeline()
	pipe.Set(ctx, "string", "a\x00\xff\r\nb", 0)
	pipe.Set(ctx, "empty", "", 0)
	pipe.Set(ctx, "expiring", "v", time.Hour)
	pipe.Set(ctx, "bin\x00\xfekey", "v", 0)
	pipe.HSet(ctx, "hash", "f1", "v1", "f2", "\x00\xff", "", "empty name")
	pipe.SAdd(ctx, "set", "a", "b", "\xff")
	pipe.ZAdd(ctx, "zset", redis.Z{Score: 1.5, Member: "a"}, redis.Z{Score: 1700000000123456, Member: "b"},
		redis.Z{Score: -0.1, Member: "c"}, redis.Z{Score: 1e300, Member: "d"})
	for i := range 1200 { // more than one command carries
		pipe.RPush(ctx, "list", strconv.Itoa(i))
		pipe.ZAdd(ctx, "bigzset", redis.Z{Score: float64(i), Member: "m" + strconv.Itoa(i)})
		pipe.HSet(ctx, "bighash", "f"+strconv.Itoa(i), i)
	}
	pipe.XAdd(ctx, &redis.XAddArgs{Stream: "stream", ID: "5-1", Values: []string{"k", "v", "k2", "\xff"}})
	pipe.XAdd(ctx, &redis.XAddArgs{Stream: "stream", ID: "6-1", Values: []string{"k", "w"}})
	pipe.XAdd(ctx, &redis.XAddArgs{Stream: "stream", ID: "7-1", Values: []string{"k", "x"}})
	pipe.XGroupCreate(ctx, "stream", "group", "0")
	pipe.XGroupCreateMkStream(ctx, "emptystream", "group", "0")
	pipe.Do(ctx, "SELECT", 3)
	pipe.Set(ctx, "elsewhere", "v", 0)
	pipe.Do(ctx, "SELECT", 0)
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	read := &redis.XReadGroupArgs{Group: "group", Consumer: "c1", Streams: []string{"stream", ">"}, Count: 2}
	if err := rdb.XReadGroup(ctx, read).Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.XAck(ctx, "stream", "group", "5-1").Err(); err != nil {
		t.Fatal(err)
	}
}

// wantFilled checks with a client's eyes that fill's keys are there.
func wantFilled(t *testing.T, url string) {
	t.Helper()
	ctx := t.Context()
	rdb := client(t, url).(*redis.Client)
	check := func(what string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %#v, want %#v", what, got, want)
		}
	}
	for key, want := range map[string]string{"string": "a\x00\xff\r\nb", "empty": "", "expiring": "v", "bin\x00\xfekey": "v"} {
		check(key, rdb.Get(ctx, key).Val(), want)
	}
	if ttl := rdb.PTTL(ctx, "expiring").Val(); ttl <= 55*time.Minute || ttl > time.Hour {
		t.Errorf("expiring has %v left, want almost an hour", ttl)
	}
	check("TTL of string", rdb.PTTL(ctx, "string").Val(), time.Duration(-1))
	check("hash", rdb.HGetAll(ctx, "hash").Val(), map[string]string{"f1": "v1", "f2": "\x00\xff", "": "empty name"})
	check("set", rdb.SMIsMember(ctx, "set", "a", "b", "\xff", "c").Val(), []bool{true, true, true, false})
	check("zset", rdb.ZRangeWithScores(ctx, "zset", 0, -1).Val(), []redis.Z{
		{Score: -0.1, Member: "c"}, {Score: 1.5, Member: "a"}, {Score: 1700000000123456, Member: "b"}, {Score: 1e300, Member: "d"}})
	list := rdb.LRange(ctx, "list", 0, -1).Val()
	check("length of list", len(list), 1200)
	check("last of list", list[len(list)-1], "1199")
	check("size of bigzset", rdb.ZCard(ctx, "bigzset").Val(), int64(1200))
	check("size of bighash", rdb.HLen(ctx, "bighash").Val(), int64(1200))
	check("stream", rdb.XRange(ctx, "stream", "-", "+").Val(), []redis.XMessage{
		{ID: "5-1", Values: map[string]any{"k": "v", "k2": "\xff"}},
		{ID: "6-1", Values: map[string]any{"k": "w"}},
		{ID: "7-1", Values: map[string]any{"k": "x"}}})
	pending := rdb.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: "stream", Group: "group", Start: "-", End: "+", Count: 10}).Val()
	if len(pending) != 1 || pending[0].ID != "6-1" || pending[0].Consumer != "c1" || pending[0].RetryCount != 1 {
		t.Errorf("pending is %+v, want 6-1 with c1, delivered once", pending)
	}
	next, err := rdb.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "group", Consumer: "c2", Streams: []string{"stream", ">"}, Count: 5, NoAck: true, Block: -1}).Result()
	if err != nil || len(next) != 1 || len(next[0].Messages) != 1 || next[0].Messages[0].ID != "7-1" {
		t.Errorf("the group goes on with %v, %v; want 7-1", next, err)
	}
	check("groups of emptystream", len(rdb.XInfoGroups(ctx, "emptystream").Val()), 1)
	conn := rdb.Conn()
	defer conn.Close()
	if err := conn.Select(ctx, 3).Err(); err != nil {
		t.Fatal(err)
	}
	check("database 3", conn.Get(ctx, "elsewhere").Val(), "v")
	if err := conn.Select(ctx, 0).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestEmbeddedKeepsEverything(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Mode = Embedded
	first := start(t, cfg)
	if first.Mode() != Embedded || !first.Owned() || !strings.Contains(first.Guarantee(), "built into Muster") {
		t.Fatalf("mode %s, owned %v, %q", first.Mode(), first.Owned(), first.Guarantee())
	}
	fill(t, first.URL())
	stop(t, first)
	if Ping(t.Context(), first.URL(), time.Second) == nil {
		t.Fatal("it answers after Stop")
	}

	second := start(t, cfg)
	if second.URL() != first.URL() {
		t.Errorf("address was %s and is %s, want the same", first.URL(), second.URL())
	}
	wantFilled(t, second.URL())
}

func TestEmbeddedFieldExpiry(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Mode = Embedded
	s := start(t, cfg)
	rdb := client(t, s.URL())
	rdb.HSet(t.Context(), "h", "a", 1, "b", 2)
	if err := rdb.HExpire(t.Context(), "h", time.Hour, "a").Err(); err != nil {
		t.Fatal(err)
	}
	stop(t, s)
	s = start(t, cfg)
	ttl, err := client(t, s.URL()).HTTL(t.Context(), "h", "a", "b").Result()
	if err != nil || len(ttl) != 2 || ttl[0] < 3500 || ttl[1] != -1 {
		t.Fatalf("time left is %v, %v; want an hour and none", ttl, err)
	}
}

func TestEmbeddedExpires(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Mode = Embedded
	s := start(t, cfg)
	rdb := client(t, s.URL())
	if err := rdb.Set(t.Context(), "short", "v", 100*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the key expires", func() bool { return rdb.Exists(t.Context(), "short").Val() == 0 })

	// One whose time runs out while nothing runs does not come back.
	past := []snapshotKey{
		{Key: "past", Type: "string", Values: []string{"v"}, Expires: time.Now().Add(-time.Second)},
		{Key: "kept", Type: "string", Values: []string{"v"}},
	}
	stop(t, s)
	if err := writeSnapshot(s.cfg.snapshotFile(), past); err != nil {
		t.Fatal(err)
	}
	s = start(t, cfg)
	if got := client(t, s.URL()).Exists(t.Context(), "past", "kept").Val(); got != 1 {
		t.Fatalf("%d of the two keys are there, want only the one that does not expire", got)
	}
}

func TestEmbeddedSurvivesKill(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Mode = Embedded
	h, cmd := holder(t, cfg)
	set(t, h.URL, "k", "v")
	file := filepath.Join(cfg.DataDir, "redis", "embedded.snapshot")
	testutil.Eventually(t, "the key is saved", func() bool {
		keys, err := readSnapshot(file)
		return err == nil && len(keys) == 1 && keys[0].Key == "k"
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()

	s := start(t, cfg)
	wantValue(t, s.URL(), "k", "v")
	if s.URL() != h.URL {
		t.Errorf("address was %s and is %s, want the same", h.URL, s.URL())
	}
}

func TestEmbeddedSavesOnlyChanges(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Mode, cfg.SaveEvery = Embedded, time.Hour
	s := start(t, cfg)
	rdb := client(t, s.URL())
	saved := func() bool {
		t.Helper()
		_ = os.Remove(s.cfg.snapshotFile())
		if err := s.mini.Save(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := os.Stat(s.cfg.snapshotFile())
		return err == nil
	}
	rdb.Set(t.Context(), "k", "v", time.Hour)
	if !saved() {
		t.Error("a new key is not saved")
	}
	rdb.HSet(t.Context(), "h", "f", "1")
	if !saved() {
		t.Error("a new field is not saved")
	}
	rdb.Persist(t.Context(), "k")
	if !saved() {
		t.Error("a lifted expiry is not saved")
	}
	rdb.Get(t.Context(), "k")
	if saved() {
		t.Error("reading makes it save")
	}
}

func TestUnreadableSnapshotIsPutAside(t *testing.T) {
	t.Parallel()
	whole := filepath.Join(t.TempDir(), "whole")
	if err := writeSnapshot(whole, []snapshotKey{{Key: "k", Type: "string", Values: []string{strings.Repeat("v", 999)}}}); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	newer := filepath.Join(t.TempDir(), "newer")
	f, err := os.Create(newer)
	if err != nil {
		t.Fatal(err)
	}
	zip := gzip.NewWriter(f)
	if err := gob.NewEncoder(zip).Encode(snapshotHead{Format: snapshotFormat, Version: snapshotVersion + 1}); err != nil {
		t.Fatal(err)
	}
	_ = zip.Close()
	_ = f.Close()
	future, err := os.ReadFile(newer)
	if err != nil {
		t.Fatal(err)
	}
	flipped := append([]byte(nil), good...)
	flipped[len(flipped)/2] ^= 1

	for name, content := range map[string][]byte{
		"empty": {}, "text": []byte("hello"), "cut": good[:len(good)-5], "flipped": flipped, "newer": future,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			var log logbook
			cfg.Mode, cfg.Logger = Embedded, log.logger()
			dir := filepath.Join(cfg.DataDir, "redis")
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "embedded.snapshot"), content, 0o600); err != nil {
				t.Fatal(err)
			}
			s := start(t, cfg)
			if n := client(t, s.URL()).DBSize(t.Context()).Val(); n != 0 {
				t.Errorf("it starts with %d keys, want none", n)
			}
			kept, _ := filepath.Glob(filepath.Join(dir, "embedded.snapshot.unreadable-*"))
			if len(kept) != 1 || !strings.Contains(log.String(), "cannot be read") {
				t.Fatalf("kept %v, log %s; want the file kept and a warning", kept, log.String())
			}
			if got, _ := os.ReadFile(kept[0]); string(got) != string(content) {
				t.Error("the kept file is not the one that was there")
			}
		})
	}
}

// A later version adds fields and an earlier one lacks some: both are read.
func TestSnapshotOfAnotherVersion(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "other")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	zip := gzip.NewWriter(f)
	enc := gob.NewEncoder(zip)
	type head struct {
		Format        string
		Version, Keys int
		Compression   string
	}
	type key struct {
		Key, Type string
		Values    []string
		Idle      time.Duration
	}
	for _, v := range []any{head{snapshotFormat, 1, 1, "none"}, key{"k", "string", []string{"v"}, 7}} {
		if err := enc.Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	_ = zip.Close()
	_ = f.Close()
	got, err := readSnapshot(path)
	want := []snapshotKey{{Key: "k", Type: "string", Values: []string{"v"}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("read %+v, %v; want %+v", got, err, want)
	}
}

// A script's writes are saved together or not at all.
func TestSnapshotIsOfOneMoment(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Mode, cfg.SaveEvery = Embedded, time.Hour
	s := start(t, cfg)
	rdb := client(t, s.URL())
	both := redis.NewScript(`redis.call('INCR', 'a') redis.call('RPUSH', 'z', 'x') return 1`)
	done := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := both.Run(t.Context(), rdb, nil).Err(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 50 {
		keys, err := dump(t.Context(), s.mini.rdb)
		if err != nil {
			t.Fatal(err)
		}
		a, z := "0", 0
		for _, k := range keys {
			switch k.Key {
			case "a":
				a = k.Values[0]
			case "z":
				z = len(k.Values)
			}
		}
		if a != strconv.Itoa(z) {
			t.Fatalf("a is %s and z has %d elements, want the same", a, z)
		}
	}
	close(done)
	writer.Wait()
}

func BenchmarkSave(b *testing.B) {
	m, err := startEmbedded(b.Context(), "127.0.0.1:0", "sesame", filepath.Join(b.TempDir(), "s"), time.Hour, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = m.Stop(b.Context()) }()
	pipe := m.rdb.Pipeline()
	for i := range 10_000 { // about what a queue of that many tasks holds
		n := strconv.Itoa(i)
		pipe.HSet(b.Context(), "asynq:{default}:t:"+n, "msg", strings.Repeat("x", 200), "state", "completed", "result", n)
		pipe.ZAdd(b.Context(), "asynq:{default}:completed", redis.Z{Score: float64(i), Member: n})
		if i%500 == 499 {
			if _, err := pipe.Exec(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	}
	for i := 0; b.Loop(); i++ {
		m.rdb.Set(b.Context(), "changed", i, 0)
		if err := m.Save(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
