package engine

import (
	"context"
	"errors"
	"fmt"
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
// given channel of Redis is active, and after each message. stop ends that.
func (n *notifier) listen(ctx context.Context, channel string) (changed <-chan struct{}, stop func(), err error) {
	w, err := n.subscription()
	if err != nil {
		return nil, nil, err
	}
	return w.add(ctx, channel)
}

// subscription returns the subscription that all waits share.
func (n *notifier) subscription() (*subscription, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, errors.New("client is closed")
	}
	if n.sub == nil {
		w := &subscription{sub: n.store.Redis().Subscribe(context.Background()), done: make(chan struct{}), waits: map[string]map[chan struct{}]bool{}}
		n.sub = w
		go w.read()
	}
	return n.sub, nil
}

// close ends the subscription, and returns when its reader has returned.
func (n *notifier) close() {
	n.mu.Lock()
	w := n.sub
	n.sub, n.closed = nil, true
	n.mu.Unlock()
	if w != nil {
		w.close()
	}
}

// subscription is a subscription with its reader.
type subscription struct {
	sub  *redis.PubSub
	done chan struct{} // closed when the reader has returned

	mu    sync.Mutex                        // guards waits
	waits map[string]map[chan struct{}]bool // by channel
}

// add adds a wait for messages of a channel.
func (s *subscription) add(ctx context.Context, channel string) (<-chan struct{}, func(), error) {
	wait := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waits[channel] == nil {
		// Subscribe returns before Redis has replied; read wakes the wait when it has. A ctx that ends during the call
		// would close the connection, which other waits use.
		if err := s.sub.Subscribe(context.WithoutCancel(ctx), channel); err != nil {
			return nil, nil, fmt.Errorf("subscribe: %w", err)
		}
		s.waits[channel] = map[chan struct{}]bool{}
	} else {
		wait <- struct{}{} // a message may have come before
	}
	s.waits[channel][wait] = true
	return wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waits[channel], wait)
		if len(s.waits[channel]) == 0 {
			delete(s.waits, channel)
			_ = s.sub.Unsubscribe(context.Background(), channel)
		}
	}, nil
}

// read wakes the waits of the channels that get a message, until the subscription is closed.
func (s *subscription) read() {
	defer close(s.done)
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
	_ = s.sub.Close()
	<-s.done
}
