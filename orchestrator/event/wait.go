package event

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	blockFor  = 250 * time.Millisecond // per call of the shared reader, which ends after the call in which the last waiter leaves
	lookEvery = 5 * time.Second        // interval of polls by a waiter that was not woken
)

// waiters are the readers of this process that wait for an event. One goroutine reads the stream of all events for them.
type waiters struct {
	rdb redis.UniversalClient

	mu      sync.Mutex // guards the rest
	all     map[*waiter]struct{}
	reading bool
}

// waiter waits for an event of a job, or of any job if job is "".
type waiter struct {
	job  string
	wake chan struct{} // receives a value when there may be an event
}

// join adds a waiter for the events of a job. Every event that is added from now on wakes it.
func (ws *waiters) join(job string) *waiter {
	w := &waiter{job, make(chan struct{}, 1)}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.all[w] = struct{}{}
	if !ws.reading {
		ws.reading = true
		go ws.read()
	}
	return w
}

func (ws *waiters) leave(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.all, w)
}

// wait waits up to d until there may be an event.
func (w *waiter) wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(min(d, lookEvery))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-w.wake:
	case <-t.C:
	}
}

// read wakes waiters until none are left.
func (ws *waiters) read() {
	last := ""
	for {
		ws.mu.Lock()
		if len(ws.all) == 0 {
			ws.reading = false
			ws.mu.Unlock()
			return
		}
		ws.mu.Unlock()
		jobs, next, err := ws.next(last)
		if err != nil || last == "" { // events may be unread
			jobs = nil
		} else if len(jobs) == 0 {
			continue
		}
		last = next
		ws.wake(jobs)
		if err != nil {
			time.Sleep(blockFor)
		}
	}
}

// next returns the jobs of the events after an ID, and the ID of the last one. It waits for the first event. Without an ID it
// returns the last ID.
func (ws *waiters) next(last string) (jobs map[string]bool, next string, err error) {
	ctx := context.Background()
	if last == "" {
		newest, err := ws.rdb.XRevRangeN(ctx, AllKey(), "+", "-", 1).Result()
		if err != nil || len(newest) == 0 {
			return nil, start.String(), err
		}
		return nil, newest[0].ID, nil
	}
	read, err := ws.rdb.XRead(ctx, &redis.XReadArgs{Streams: []string{AllKey(), last}, Count: maxBatch, Block: blockFor}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, last, nil
	}
	if err != nil {
		return nil, "", err
	}
	jobs = map[string]bool{}
	for _, stream := range read {
		for _, m := range stream.Messages {
			job, _ := m.Values["job"].(string)
			jobs[job], last = true, m.ID
		}
	}
	return jobs, last, nil
}

// wake wakes the waiters for events of jobs; nil means all waiters.
func (ws *waiters) wake(jobs map[string]bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.all {
		if jobs != nil && w.job != "" && !jobs[w.job] {
			continue
		}
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}
