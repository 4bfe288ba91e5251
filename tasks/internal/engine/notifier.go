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

	mu     sync.Mutex // guards the fields below
	sub    *subscription
	closed bool
}

func newNotifier(e *env) *notifier { return &notifier{env: e} }

// listen returns a channel that receives a value when the wait must read its workflow: once when the subscription to the
// given channel of Redis is active, and after each message. stop ends that. It does not wait for Redis.
func (n *notifier) listen(channel string) (changed <-chan struct{}, stop func(), err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, nil, errors.New("client is closed")
	}
	if n.sub == nil {
		n.sub = newSubscription(n.store.Redis())
	}
	changed, stop = n.sub.add(channel)
	return changed, stop, nil
}

// close ends the subscription, and returns when its goroutines have returned.
func (n *notifier) close() {
	n.mu.Lock()
	w := n.sub
	n.sub, n.closed = nil, true
	n.mu.Unlock()
	if w != nil {
		w.close()
	}
}

// subscription is a subscription with its goroutines.
type subscription struct {
	sub    *redis.PubSub
	loops  sync.WaitGroup
	closed chan struct{}

	mu    sync.Mutex                        // guards waits; not held during calls to Redis, whose server can be slow
	waits map[string]map[chan struct{}]bool // by channel, also of channels that are still subscribed
	dirty chan struct{}                     // has a value when channels of waits were added or removed
}

func newSubscription(rdb redis.UniversalClient) *subscription {
	s := &subscription{sub: rdb.Subscribe(context.Background()), closed: make(chan struct{}), dirty: make(chan struct{}, 1), waits: map[string]map[chan struct{}]bool{}}
	s.loops.Go(s.read)
	s.loops.Go(s.follow)
	return s
}

// add adds a wait for messages of a channel.
func (s *subscription) add(channel string) (<-chan struct{}, func()) {
	wait := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waits[channel] == nil {
		s.waits[channel] = map[chan struct{}]bool{}
		signal(s.dirty) // read wakes the wait when it is subscribed
	} else {
		wait <- struct{}{} // a message may have come before
	}
	s.waits[channel][wait] = true
	return wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waits[channel], wait)
		if len(s.waits[channel]) == 0 {
			signal(s.dirty)
		}
	}
}

// follow subscribes to the channels of waits, and ends the subscriptions of others, until the subscription is closed.
func (s *subscription) follow() {
	active := map[string]bool{}
	for {
		select {
		case <-s.closed:
			return
		case <-s.dirty:
		}
		var begin, end []string
		s.mu.Lock()
		for channel, waits := range s.waits {
			switch {
			case len(waits) == 0 && active[channel]:
				end = append(end, channel)
				delete(active, channel)
				delete(s.waits, channel)
			case len(waits) == 0:
				delete(s.waits, channel)
			case !active[channel]:
				begin = append(begin, channel)
				active[channel] = true
			}
		}
		s.mu.Unlock()
		// After an error, go-redis subscribes to all channels when it has connected again.
		if len(begin) > 0 {
			_ = s.sub.Subscribe(context.Background(), begin...)
		}
		if len(end) > 0 {
			_ = s.sub.Unsubscribe(context.Background(), end...)
		}
	}
}

// read wakes the waits of the channels that get a message, until the subscription is closed.
func (s *subscription) read() {
	for m := range s.sub.ChannelWithSubscriptions() {
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
		s.mu.Lock()
		for wait := range s.waits[channel] {
			select {
			case wait <- struct{}{}:
			default:
			}
		}
		s.mu.Unlock()
	}
}

func (s *subscription) close() {
	close(s.closed)
	_ = s.sub.Close()
	s.loops.Wait()
}
