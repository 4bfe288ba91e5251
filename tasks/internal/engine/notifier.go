package engine

import (
	"context"
	"errors"
	"sync"

	"github.com/redis/go-redis/v9"
)

// notifier wakes waits when a message about their workflow arrives. All waits of a process share one subscription, which
// the first one opens.
type notifier struct {
	*env
	loops  sync.WaitGroup
	closed chan struct{}
	dirty  chan struct{} // has a value when channels of waits were added or removed

	mu    sync.Mutex                        // guards the fields below; not held during calls to Redis, whose server can be slow
	sub   *redis.PubSub                     // nil until it is used
	waits map[string]map[chan struct{}]bool // by channel, also of channels that are still subscribed; nil once the notifier is closed
}

// listen returns a channel that receives a value when the wait must read its workflow: once when the subscription to the
// given channel of Redis is active, and after each message. stop ends that. It does not wait for Redis.
func (n *notifier) listen(channel string) (changed <-chan struct{}, stop func(), err error) {
	wait := make(chan struct{}, 1)
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.waits == nil:
		return nil, nil, errors.New("client is closed")
	case n.sub == nil:
		n.sub = n.store.Redis().Subscribe(context.Background())
		n.loops.Go(n.read)
		n.loops.Go(n.follow)
	}
	if n.waits[channel] == nil {
		n.waits[channel] = map[chan struct{}]bool{}
		signal(n.dirty) // read wakes the wait when it is subscribed
	} else {
		wait <- struct{}{} // a message may have come before
	}
	n.waits[channel][wait] = true
	return wait, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.waits[channel], wait)
		if len(n.waits[channel]) == 0 {
			signal(n.dirty)
		}
	}, nil
}

// close ends the subscription, and returns when its goroutines have returned.
func (n *notifier) close() {
	n.mu.Lock()
	sub, open := n.sub, n.waits != nil
	n.waits = nil
	n.mu.Unlock()
	if sub != nil && open {
		close(n.closed)
		_ = sub.Close()
	}
	n.loops.Wait()
}

// follow subscribes to the channels of waits, and ends the subscriptions of others, until the subscription is closed.
func (n *notifier) follow() {
	active := map[string]bool{}
	for {
		select {
		case <-n.closed:
			return
		case <-n.dirty:
		}
		var begin, end []string
		n.mu.Lock()
		for channel, waits := range n.waits {
			switch {
			case len(waits) == 0 && active[channel]:
				end = append(end, channel)
				delete(active, channel)
				delete(n.waits, channel)
			case len(waits) == 0:
				delete(n.waits, channel)
			case !active[channel]:
				begin = append(begin, channel)
				active[channel] = true
			}
		}
		n.mu.Unlock()
		// After an error, go-redis subscribes to all channels when it has connected again.
		if len(begin) > 0 {
			_ = n.sub.Subscribe(context.Background(), begin...)
		}
		if len(end) > 0 {
			_ = n.sub.Unsubscribe(context.Background(), end...)
		}
	}
}

// read wakes the waits of the channels that get a message, until the subscription is closed.
func (n *notifier) read() {
	for m := range n.sub.ChannelWithSubscriptions() {
		var channel string
		switch m := m.(type) {
		case *redis.Message:
			channel = m.Channel
		case *redis.Subscription:
			if m.Kind != "subscribe" {
				continue
			}
			channel = m.Channel // also after a connection was lost: messages may have been missed
		default:
			continue
		}
		n.mu.Lock()
		for wait := range n.waits[channel] {
			select {
			case wait <- struct{}{}:
			default:
			}
		}
		n.mu.Unlock()
	}
}
