package redisd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// embedded is a miniredis in this process that outlives it in a file.
type embedded struct {
	mini  *miniredis.Miniredis
	rdb   *redis.Client // to itself
	file  string
	every time.Duration
	log   *slog.Logger

	cancel context.CancelFunc
	loops  sync.WaitGroup

	save   sync.Mutex // held while saving; guards the fields below
	last   uint64     // hash of what the file holds
	warned map[string]bool
}

const loading = "LOADING Redis is loading the dataset in memory"

// startEmbedded starts one at addr, for those who know password, with what file
// holds. Until that is loaded others are told so.
func startEmbedded(ctx context.Context, addr, password, file string, every time.Duration, log *slog.Logger) (*embedded, error) {
	e := &embedded{mini: miniredis.NewMiniRedis(), file: file, every: every, log: log, warned: map[string]bool{}}
	e.mini.SetError(loading)
	e.mini.RequireAuth(password)
	if err := e.mini.StartAddr(addr); err != nil {
		return nil, err
	}

	// Our own connection is let in by a word that nobody else knows.
	word := rand.Text()
	var ours atomic.Pointer[server.Peer]
	e.mini.Server().SetPreHook(func(p *server.Peer, cmd string, args ...string) bool {
		if cmd == "ECHO" && len(args) == 1 && args[0] == word {
			ours.Store(p)
		}
		if p == ours.Load() || cmd == "HELLO" || cmd == "AUTH" {
			return false
		}
		p.WriteError(loading)
		return true
	})
	e.rdb = redis.NewClient(&redis.Options{
		// Not its in-memory connection: that has no buffer, and a long pipeline
		// stands still when neither side reads.
		Addr:     e.mini.Addr(),
		Password: password,
		Protocol: 2, PoolSize: 1, DisableIdentity: true, MaxRetries: -1,
		ReadTimeout: time.Minute, WriteTimeout: time.Minute, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		OnConnect:                func(ctx context.Context, c *redis.Conn) error { return c.Echo(ctx, word).Err() },
	})

	if err := e.load(ctx); err != nil {
		_ = e.rdb.Close()
		e.mini.Close()
		return nil, err
	}
	e.mini.Server().SetPreHook(nil)

	run, cancel := context.WithCancel(context.Background())
	e.cancel = cancel
	e.loops.Go(func() { e.driveClock(run) })
	e.loops.Go(func() { e.saveLoop(run) })
	return e, nil
}

// load brings back what was saved. A file that cannot be understood is kept
// under another name: what it holds may be wanted.
func (e *embedded) load(ctx context.Context) error {
	keys, err := readSnapshot(e.file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, errSnapshot):
		aside := e.file + ".unreadable-" + strconv.FormatInt(time.Now().Unix(), 10)
		if err := os.Rename(e.file, aside); err != nil {
			return fmt.Errorf("put the unreadable snapshot aside: %w", err)
		}
		e.log.Warn("the saved contents of the built-in Redis cannot be read; starting empty", "err", err, "kept", aside)
		return nil
	case err != nil:
		return fmt.Errorf("bring back the contents of the built-in Redis: %w", err)
	}
	if err := load(ctx, e.rdb, keys); err != nil {
		return fmt.Errorf("bring back the contents of the built-in Redis from %s: %w", e.file, err)
	}
	e.log.Info("brought back the contents of the built-in Redis", "keys", len(keys))
	return nil
}

// driveClock lets keys expire as time passes: miniredis moves their clock only
// when told to.
func (e *embedded) driveClock(ctx context.Context) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-tick.C:
			now := time.Now()
			e.mini.FastForward(now.Sub(last))
			last = now
		case <-ctx.Done():
			return
		}
	}
}

// saveLoop saves every few seconds; less often when that takes long, since
// nothing else runs meanwhile.
func (e *embedded) saveLoop(ctx context.Context) {
	wait, failing := e.every, false
	for {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		start := time.Now()
		err := e.Save(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing: // once, not every few seconds
			e.log.Error("the built-in Redis cannot save its contents", "err", err)
		case err == nil && failing:
			e.log.Info("the built-in Redis saves its contents again")
		}
		failing = err != nil
		wait = max(e.every, 20*time.Since(start))
	}
}

// Save writes the contents to the file if they have changed.
func (e *embedded) Save(ctx context.Context) error {
	e.save.Lock()
	defer e.save.Unlock()

	keys, err := dump(ctx, e.rdb)
	if err != nil {
		return err
	}
	for _, k := range keys {
		if k.Type == "hll" && !e.warned[k.Type] {
			e.warned[k.Type] = true
			e.log.Warn("the built-in Redis cannot save HyperLogLogs; install redis-server to keep them", "key", k.Key)
		}
	}
	sum := contentHash(keys)
	if sum == e.last {
		return nil
	}
	if err := writeSnapshot(e.file, keys); err != nil {
		return err
	}
	e.last = sum
	return nil
}

var hashSeed = maphash.MakeSeed()

// contentHash ignores what only the passing of time changes.
func contentHash(keys []snapshotKey) uint64 {
	var h maphash.Hash
	h.SetSeed(hashSeed)
	add := func(parts ...string) {
		for _, s := range parts {
			maphash.WriteComparable(&h, len(s))
			_, _ = h.WriteString(s)
		}
	}
	for _, k := range keys {
		maphash.WriteComparable(&h, [5]int{k.DB, len(k.Values), len(k.Fields), len(k.Entries), len(k.Groups)})
		// A moment read from a running clock wobbles by some milliseconds.
		maphash.WriteComparable(&h, k.Expires.Round(time.Second).Unix())
		add(k.Key, k.Type)
		add(k.Values...)
		for _, f := range k.Fields {
			add(f.Field)
			maphash.WriteComparable(&h, f.Expires.Round(time.Second).Unix())
		}
		for _, e := range k.Entries {
			add(e.ID)
			add(e.Values...)
		}
		for _, g := range k.Groups {
			maphash.WriteComparable(&h, [2]int{len(g.Consumers), len(g.Pending)})
			add(g.Name, g.LastID)
			add(g.Consumers...)
			for _, p := range g.Pending {
				add(p.ID, p.Consumer)
				maphash.WriteComparable(&h, p.Deliveries)
			}
		}
	}
	return h.Sum64()
}

// Stop saves a last time and ends it.
func (e *embedded) Stop(ctx context.Context) error {
	e.cancel()
	e.loops.Wait()
	err := e.Save(ctx)
	if err != nil {
		err = fmt.Errorf("save the contents of the built-in Redis: %w", err)
	}
	_ = e.rdb.Close()
	e.mini.Close()
	return err
}
