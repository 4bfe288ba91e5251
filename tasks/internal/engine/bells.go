package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"muster/tasks/internal/store"
)

// bells tells waits of messages that their workflows have a value or have ended. All share one subscription, which the
// first one makes.
type bells struct {
	*env

	mu     sync.Mutex // guards the fields below
	waits  *waiter
	closed bool
}

func newBells(e *env) *bells { return &bells{env: e} }

// listen returns a channel that gets a value when a message on the workflow arrives, and a function that ends that.
func (b *bells) listen(ctx context.Context, id string) (<-chan struct{}, func(), error) {
	w, err := b.waiter()
	if err != nil {
		return nil, nil, err
	}
	return w.add(ctx, store.DoneChannel(id))
}

// waiter returns the one of all waits.
func (b *bells) waiter() (*waiter, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errors.New("client is closed")
	}
	if b.waits == nil {
		w := &waiter{sub: b.store.Redis().Subscribe(context.Background()), done: make(chan struct{}), bells: map[string]map[chan struct{}]bool{}}
		b.waits = w
		go w.read()
	}
	return b.waits, nil
}

// close ends the subscription, and returns when its reader has returned.
func (b *bells) close() {
	b.mu.Lock()
	w := b.waits
	b.waits, b.closed = nil, true
	b.mu.Unlock()
	if w != nil {
		w.close()
	}
}

// waiter is a subscription with its reader.
type waiter struct {
	sub  *redis.PubSub
	done chan struct{} // closed when the reader has returned

	mu    sync.Mutex                        // guards bells
	bells map[string]map[chan struct{}]bool // by channel
}

// add adds a wait for messages of a channel.
func (w *waiter) add(ctx context.Context, channel string) (<-chan struct{}, func(), error) {
	bell := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bells[channel] == nil {
		// Subscribe returns before Redis has answered; until then waits depend on lookEvery. A ctx that ends during the
		// call would close the connection, which other waits use.
		if err := w.sub.Subscribe(context.WithoutCancel(ctx), channel); err != nil {
			return nil, nil, fmt.Errorf("subscribe: %w", err)
		}
		w.bells[channel] = map[chan struct{}]bool{}
	}
	w.bells[channel][bell] = true
	return bell, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.bells[channel], bell)
		if len(w.bells[channel]) == 0 {
			delete(w.bells, channel)
			_ = w.sub.Unsubscribe(context.Background(), channel)
		}
	}, nil
}

// read rings the bells of the channels that get a message, until the subscription is closed.
func (w *waiter) read() {
	defer close(w.done)
	for m := range w.sub.ChannelWithSubscriptions() {
		var channel string
		switch m := m.(type) {
		case *redis.Message:
			channel = m.Channel
		case *redis.Subscription:
			if m.Kind != "subscribe" {
				continue
			}
			channel = m.Channel // messages from before may have been missed: look once
		default:
			continue
		}
		w.mu.Lock()
		for bell := range w.bells[channel] {
			select {
			case bell <- struct{}{}:
			default:
			}
		}
		w.mu.Unlock()
	}
}

func (w *waiter) close() {
	_ = w.sub.Close()
	<-w.done
}
