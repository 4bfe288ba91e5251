package workqueue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Outputs reads the outputs of settled items, in the order in which the items were settled. One process at a time may read them: it
// acknowledges the outputs that it has stored, and they are removed; the next reader reads the others again.
type Outputs struct{ *store }

// Output is one entry of the output stream.
type Output struct {
	Seq   string // its place in the stream; for Ack
	Item  string // the ID of its item
	Index int    // its place among the item's outputs, from 0
	Data  []byte
}

// Outputs returns the reader of the queue's outputs.
func (q *Queue) Outputs() *Outputs { return &Outputs{&q.store} }

// Read returns the oldest outputs that are not acknowledged, up to n. If there
// are none it waits up to block for the first, and returns an empty list.
func (o *Outputs) Read(ctx context.Context, n int, block time.Duration) ([]Output, error) {
	if o.err != nil {
		return nil, o.err
	}
	deadline := time.Now().Add(block)
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		// A blocked read does not see ctx end, so it blocks for a short time only.
		wait := min(max(time.Until(deadline), -1), 500*time.Millisecond)
		if wait >= 0 && wait < time.Millisecond {
			wait = -1
		}
		streams, err := o.rdb.XRead(ctx, &redis.XReadArgs{
			Streams: []string{o.keys.out, "0-0"}, Count: int64(max(n, 1)), Block: wait,
		}).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("read the outputs of queue %s: %w", o.name, err)
		}
		if len(streams) > 0 && len(streams[0].Messages) > 0 {
			return parseOutputs(streams[0].Messages), nil
		}
		if wait < 0 || !time.Now().Before(deadline) {
			return nil, nil
		}
	}
}

func parseOutputs(msgs []redis.XMessage) []Output {
	out := make([]Output, len(msgs))
	for i, m := range msgs {
		n, _ := strconv.Atoi(toString(m.Values["n"]))
		out[i] = Output{Seq: m.ID, Item: toString(m.Values["id"]), Index: n, Data: []byte(toString(m.Values["data"]))}
	}
	return out
}

// Backlog returns how many outputs are not acknowledged, and how many bytes of
// data they have. A producer that is far ahead of its reader should wait.
func (o *Outputs) Backlog(ctx context.Context) (n, bytes int64, err error) {
	list, err := o.ints(ctx, "count the outputs", "backlog")
	if err != nil {
		return 0, 0, err
	}
	return list[0], list[1], nil
}

// Ack removes all outputs up to and including seq, or none when seq is "", and stores notes, by name, for Notes; an empty one is
// removed. Both happen, or neither.
func (o *Outputs) Ack(ctx context.Context, seq string, notes map[string]string) error {
	after := ""
	if seq != "" {
		ms, n, ok := strings.Cut(seq, "-")
		last, err := strconv.ParseUint(n, 10, 64)
		if !ok || err != nil {
			return fmt.Errorf("acknowledge outputs of queue %s: %q is not a place in the stream", o.name, seq)
		}
		after = ms + "-" + strconv.FormatUint(last+1, 10)
	}
	args := []any{after}
	for name, text := range notes {
		args = append(args, name, text)
	}
	_, err := o.run(ctx, "acknowledge outputs", "ack", args...)
	return err
}

const notePrefix = "note:"

// Notes returns the notes of the reader of the outputs; see Ack.
func (o *Outputs) Notes(ctx context.Context) (map[string]string, error) {
	if o.err != nil {
		return nil, o.err
	}
	all, err := o.rdb.HGetAll(ctx, o.keys.reader).Result()
	if err != nil {
		return nil, fmt.Errorf("read the notes of queue %s: %w", o.name, err)
	}
	notes := map[string]string{}
	for field, text := range all {
		if name, ok := strings.CutPrefix(field, notePrefix); ok {
			notes[name] = text
		}
	}
	return notes, nil
}

// Ending is the end of an item in state error, or a decision on it by Amend or PassFailed.
type Ending struct {
	Seq          string // its place among the endings; grows
	Item         string // the ID of its item
	State        State
	ResourceKeys []string // the resource keys of the item at that time
	Note         string   // the error or reason
	Data         []byte   // of PassFailed
}

// Endings returns up to n endings after seq, oldest first; "" means from the beginning. An ending is added in the
// same step as the outcome, and kept until the queue is deleted. See Config.KeepEndings.
func (q *Queue) Endings(ctx context.Context, seq string, n int) ([]Ending, error) {
	if q.err != nil {
		return nil, q.err
	}
	from := "-"
	if seq != "" {
		from = "(" + seq
	}
	msgs, err := q.rdb.XRangeN(ctx, q.keys.out, from, "+", int64(max(n, 1))).Result()
	if err != nil {
		return nil, fmt.Errorf("read the endings of queue %s: %w", q.name, err)
	}
	list := make([]Ending, len(msgs))
	for i, m := range msgs {
		list[i] = Ending{
			Seq: m.ID, Item: toString(m.Values["id"]), State: stateOf(toString(m.Values["state"])),
			ResourceKeys: strings.FieldsFunc(toString(m.Values["lane"]), func(r rune) bool { return r == '\x1f' }),
			Note:         toString(m.Values["note"]), Data: []byte(toString(m.Values["data"])),
		}
	}
	return list, nil
}
