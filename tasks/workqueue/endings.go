package workqueue

import (
	"context"
	"fmt"
	"strings"
)

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
