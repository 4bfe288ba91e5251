package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
)

// ErrSignals means that a workflow keeps as many signals of a task as it can.
var ErrSignals = store.Kind(store.ErrFull, fmt.Sprintf("the workflow has %d signals for this task that no node has received", store.MaxSignals))

// Signal completes the first open node of a task in a workflow with a value. If there is none, the value is kept for the next
// node of the task that opens.
func (a *Completer) Signal(ctx context.Context, workflow, task string, value json.RawMessage) error {
	var line bytes.Buffer
	invalid := func(format string, args ...any) error {
		return store.Kind(graph.ErrInvalid, fmt.Sprintf(format, args...))
	}
	if err := json.Compact(&line, value); err != nil {
		return invalid("the value is not JSON: %v", err)
	}
	if line.Len() > maxCompletion {
		return invalid("the value has %d bytes, more than the limit of %d; store it elsewhere and send a key", line.Len(), maxCompletion)
	}
	if err := graph.CheckTask(task); err != nil {
		return invalid("%v", err)
	}
	fl, err := a.graphs.load(ctx, workflow)
	if err != nil {
		return err
	}
	res, err := a.store.Tokens.Signal(ctx, fl.Flow, task, encodeToken(randomBytes(9)), line.Bytes(), mayKeep(fl.g, task))
	if err != nil {
		return a.store.Explain(ctx, err)
	}
	switch res {
	case store.SignalUnknown:
		return ErrUnknown
	case store.SignalEnded:
		return ErrEnded
	case store.SignalFull:
		return ErrSignals
	case store.SignalNone:
		return invalid("no node of the task waits, and the task is not declared with tasks.External or tasks.Choice")
	case store.SignalOpen:
		if err := a.advancer.deliver(ctx, fl, task); err != nil {
			a.log.WarnContext(ctx, "workers deliver the signal", "workflow", workflow, "task", task, "error", err)
		}
	}
	return nil
}

// mayKeep reports whether a node of a task may wait for a signal later. Plans can add tasks that g does not have.
func mayKeep(g *graph.Graph, task string) bool {
	known, waits := false, false
	g.EachSpec(func(sp *graph.Spec) {
		if sp.Task == task {
			known, waits = true, waits || sp.External || len(sp.Choices) > 0
		}
	})
	return waits || !known
}

// signalNote is the entry of the agenda for a task whose signals are to be delivered, followed by the task.
const signalNote = "!signal "

// deliverTries is how often a delivery gives way to other processes before it leaves the rest to the agenda.
const deliverTries = 10

// deliver completes open nodes of a task with the signals that are kept for it, as far as there are both.
func (a *advancer) deliver(ctx context.Context, fl *flow, task string) error {
	for failed := 0; failed < deliverTries; {
		sg, err := a.store.Tokens.Signalled(ctx, fl.Flow, task)
		if err != nil || sg == nil {
			return err
		}
		id, g, err := a.graphs.values(fl).named(ctx, sg.Node)
		if err != nil {
			return err
		}
		c := completed(g, id, store.ChangeSucceed, sg.Value)
		guard := store.IfSignal(sg.Node, task, sg.ID, byOutside+sg.ID)
		guard.Scope, guard.Planned = c.Scope, c.Planned // the plan is checked first: the guard removes the signal
		t, err := a.apply(ctx, fl, []store.Change{guard, c})
		if err != nil {
			return err
		}
		if t.Guard != store.TokenOK {
			failed++ // another process has completed the node or delivered the signal
			continue
		}
		if err := a.settle(ctx, fl, t); err != nil {
			return err
		}
	}
	return nil // the agenda has an entry
}

// A token is "<secret>.<workflow>.<node>", so that it leads to its node. Redis has a hash of the secret only.
type token struct{ hash, workflow, node string }

const secretSize = 16 // bytes

// newToken returns a token for a node, and the hash of its secret.
func newToken(workflow, node string) (full, hash string) {
	secret := randomBytes(secretSize)
	return encodeToken(secret) + "." + workflow + "." + node, hashToken(secret)
}

// encodeToken writes bytes as text for a token.
func encodeToken(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func hashToken(secret []byte) string {
	sum := sha256.Sum256(secret)
	return encodeToken(sum[:secretSize])
}

// parseToken reads a token. Its error does not repeat it: it is a secret.
func parseToken(s string) (token, error) {
	text, rest, _ := strings.Cut(strings.TrimSpace(s), ".")
	workflow, node, ok := strings.Cut(rest, ".")
	secret, err := base64.RawURLEncoding.DecodeString(text)
	if !ok || err != nil || len(secret) != secretSize || workflow == "" || len(workflow) > store.MaxReference {
		return token{}, fmt.Errorf("invalid token: %w", ErrUnknown)
	}
	if _, err := graph.ParseID(node); err != nil {
		return token{}, fmt.Errorf("invalid token: %w", ErrUnknown)
	}
	return token{hashToken(secret), workflow, node}, nil
}
