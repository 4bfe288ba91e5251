package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/clip"
	"muster/tasks/tasktype"
)

// Flow is the address of a workflow, with the data that scripts need.
type Flow struct {
	Ref       string // its reference, see [NewReference]
	Created   int64  // unix ms
	Root      string
	Retention int64  // of a success, ms
	Failed    int64  // retention of a failure, ms
	Caption   string // its text in the index, see [Caption]
	shard     int
}

// ID returns the id of the workflow.
func (f Flow) ID() string { return IDOf(f.Ref) }

// Key returns the key of a workflow in Redis.
func (k Keys) Key(f Flow) string { return k.flowKey(f.shard, f.Ref) }

// Shard returns the shard of the workflow.
func (f Flow) Shard() int { return f.shard }

// facts appends the arguments that describe a workflow to scripts.
func (f Flow) facts(args []any) []any {
	return append(args, f.Ref, f.Created, f.Root, fmt.Sprintf("%d,%d", f.Retention, f.Failed), f.Caption)
}

// DueInSpan returns when a node is due, by [FieldSpans]; zero if it is in none of the spans.
func DueInSpan(delayed, node string) time.Time {
	prefix, n, _ := parseSpan(node)
	for line := range strings.Lines(delayed) {
		span, rest, _ := strings.Cut(line, " ")
		if p, first, last := parseSpan(span); p == prefix && first <= n && n <= last {
			at, _, _ := strings.Cut(rest, " ")
			if at == "0" {
				return time.Time{}
			}
			return time.UnixMilli(toInt(at)).UTC()
		}
	}
	return time.Time{}
}

// Stopped returns the values of [FieldStopped] of workflows; that of a revoked one for each of the nodes that was revoked alone.
func (s Flows) Stopped(ctx context.Context, nodes []Entry) ([]string, error) {
	cmds, err := onEach(ctx, s.db, "look for stopped nodes", nodes, func(pipe redis.Pipeliner, n Entry) *redis.SliceCmd {
		return pipe.HMGet(ctx, s.Key(n.Flow), FieldStopped, n.Node)
	})
	out := make([]string, len(cmds))
	for i, c := range cmds {
		if out[i] = text(c.Val()[0]); strings.HasPrefix(text(c.Val()[1]), string(StateRevoked)) {
			out[i] = StoppedByRevoke
		}
	}
	return out, err
}

// The operations of [Flows.Stop].
const (
	OpRevoke   = "revoke"
	OpReplace  = "replace" // revoke it, if no task of it has begun
	OpCancel   = "cancel"
	OpDeadline = "deadline" // cancel it, if its deadline has passed
	OpPause    = "pause"
	OpResume   = "resume"
	OpBegin    = "begin" // it has waited for the end of another one
	OpOrder    = "order" // the workflow with a reference waits for its end
	OpDrop     = "drop"  // delete it, if it has ended
)

// The responses of [Flows.Stop].
const (
	StopOK        = "ok"
	StopCancelled = "cancelled" // of a cancellation: it was cancelled before, and has ended
	StopEnded     = "ended"
	StopRevoked   = "revoked"
	StopUnknown   = "unknown"
	StopBegun     = "begun"   // not replaced: a task of it has begun, or is not known to have not
	StopEarly     = "early"   // it has no deadline that has passed
	StopRunning   = "running" // not deleted: it has not ended
)

// Stop makes an operation on a workflow.
func (s Flows) Stop(ctx context.Context, f Flow, op string, args ...any) (string, error) {
	res, err := s.call(ctx, "stop", f.shard, append([]any{f.Ref, op}, args...)...)
	if err != nil {
		return "", fmt.Errorf("%s: %w", op, err)
	}
	return text(res[0]), nil
}

// Before returns the references of the workflows that have to end before f begins, and whether f waits for them now. If f does
// not exist, it returns [ErrUnknown].
func (s Flows) Before(ctx context.Context, f Flow) (refs []string, waits bool, err error) {
	res, err := s.rdb.HMGet(ctx, s.Key(f), FieldBefore, FieldStopped, FieldTasks).Result()
	if err != nil {
		return nil, false, fmt.Errorf("look up workflow %s: %w", f.ID(), err)
	}
	if text(res[2]) == "" {
		return nil, false, ErrUnknown
	}
	return strings.Fields(text(res[0])), text(res[1]) == StoppedByOrder, nil
}

// Withdraw removes ready nodes of a revoked workflow from their lists. first is the span of its first nodes, or empty. A take
// drops the ready nodes that are left.
func (s Flows) Withdraw(ctx context.Context, f Flow, first string, lanes []string) error {
	args := []any{f.Ref, first}
	for _, l := range lanes {
		args = append(args, l)
	}
	if _, err := s.call(ctx, "withdraw", f.shard, args...); err != nil {
		return fmt.Errorf("withdraw workflow %s: %w", f.ID(), err)
	}
	return nil
}

// abortRetention is how long a workflow that was given up can be read, in ms. The retention it was sent with is
// unknown.
const abortRetention = 24 * 3600 * 1000

// Abort gives up a workflow that cannot be read. If a lease is given, its worker must still have it. It reports whether the
// workflow had not ended before.
func (s Flows) Abort(ctx context.Context, f Flow, failure []byte, l *NodeLease) (bool, error) {
	caption, created, err := s.listed(ctx, f)
	if err != nil {
		return false, fmt.Errorf("give up workflow %s: %w", f.ID(), err)
	}
	worker, field, value := "", "", ""
	if l != nil {
		worker, field, value = l.Worker, l.field(), l.value()
	}
	res, err := s.call(ctx, "abort", f.shard, f.Ref, failure, abortRetention, worker, field, value, caption, created)
	if err != nil {
		return false, fmt.Errorf("give up workflow %s: %w", f.ID(), err)
	}
	return toInt(res[0]) == 1, nil
}

// Unreadable is the caption of a workflow that only its graph has a caption of.
const Unreadable = "(unreadable)"

// listed returns the caption of a live workflow and when it was sent, as the index has them: its graph may be undecodable.
func (s Flows) listed(ctx context.Context, f Flow) (caption string, created int64, err error) {
	for cursor := uint64(0); ; {
		found, next, err := s.rdb.ZScan(ctx, s.liveKey(f.shard), cursor, f.Ref+" *", 1000).Result()
		if err != nil {
			return "", 0, err
		}
		if len(found) > 1 {
			at, _ := strconv.ParseFloat(found[1], 64)
			return cmp.Or(strings.TrimPrefix(found[0], f.Ref+" "), Unreadable), int64(at), nil
		}
		if cursor = next; cursor == 0 {
			return Unreadable, SentAt(f.Ref).UnixMilli(), nil
		}
	}
}

// DropPlaces deletes the sets of members that hold slots of groups, and the lists of members that wait for one, of a workflow with fields.
func (s Flows) DropPlaces(ctx context.Context, f Flow, fields map[string]string) error {
	var keys []string
	for field := range fields {
		if group, ok := strings.CutPrefix(field, FieldHeld); ok {
			keys = append(keys, s.Key(f)+":"+field, s.Key(f)+":"+suffixQueued+group)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return s.rdb.Del(ctx, keys...).Err()
}

// Fields reads fields of a workflow, and returns those that it has.
func (s Flows) Fields(ctx context.Context, f Flow, fields ...string) (map[string]string, error) {
	return s.fieldsOf(ctx, s.Key(f), fields...)
}

func (s Flows) fieldsOf(ctx context.Context, key string, fields ...string) (map[string]string, error) {
	out := make(map[string]string, len(fields))
	for part := range slices.Chunk(fields, 1000) {
		vs, err := s.rdb.HMGet(ctx, key, part...).Result()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", key, err)
		}
		for i, v := range vs {
			if str, ok := v.(string); ok {
				out[part[i]] = str
			}
		}
	}
	return out, nil
}

// All reads a whole workflow.
func (s Flows) All(ctx context.Context, f Flow) (map[string]string, error) {
	all, err := s.rdb.HGetAll(ctx, s.Key(f)).Result()
	if err != nil {
		return nil, fmt.Errorf("read workflow %s: %w", f.ID(), err)
	}
	if len(all) == 0 {
		return nil, ErrUnknown
	}
	return all, nil
}

// Revision returns a string that differs after each change of the fields of a workflow that readers see.
func (s Flows) Revision(ctx context.Context, f Flow) (string, error) {
	fields, err := s.Fields(ctx, f, revisionFields...)
	if err == nil && fields[FieldTasks] == "" {
		err = ErrUnknown
	}
	return RevisionOf(fields), err
}

// revisionFields are the fields that [Flows.Revision] is made of.
var revisionFields = []string{FieldTasks, FieldRevision, FieldStopped, FieldAborted}

// RevisionOf is [Flows.Revision] of the fields of a workflow.
func RevisionOf(all map[string]string) string {
	var parts []string
	for _, name := range revisionFields {
		parts = append(parts, all[name])
	}
	return strings.Join(parts, " ")
}

// SetProgress records how far a running node is.
func (s Flows) SetProgress(ctx context.Context, f Flow, node string, done, total int) error {
	_, err := s.call(ctx, "progress", f.shard, f.Ref, node, fmt.Sprintf("%d/%d", done, total), thousandths(done, total))
	return err
}

// thousandths returns a share of a task, 0 to 1000.
func thousandths(done, total int) int {
	if total <= 0 {
		return 0
	}
	return int(1000 * min(1, max(0, float64(done)/float64(total))))
}

// Reset is how the fields of an ended workflow change when it is retried.
type Reset struct {
	Revision string            // of the workflow that the other fields were computed from
	Call     string            // id of the call: a repeated call has no further effect
	Delete   []string          // fields
	Set      map[string]string // values by field
	Plans    []string          // planned nodes whose plan has ended
	Failed   []string          // nodes that had failed
	Runs     []Literal         // nodes with their last runs, as [EncodeRun] returns them
	Lanes    []string          // of the workflow
	First    string            // span of its first nodes, if it is one; else empty
	Source   string            // reference of the workflow to copy; empty to retry the workflow itself
	Roots    []Release         // nodes that can run
}

// The responses of [Flows.Retry].
const (
	RetryOK      = "ok"
	RetryChanged = "changed" // the workflow has another revision
	RetryBusy    = "busy"    // a worker has leases of nodes of the workflow
	RetryRunning = "running"
	RetryRevoked = "revoked"
	RetryDamaged = "damaged"
	RetryUnknown = "unknown"
)

// Retry resets nodes of an ended workflow, or of a new copy of the workflow Source in the same shard, and releases nodes that can run.
func (s Flows) Retry(ctx context.Context, f Flow, r *Reset) (string, Todo, error) {
	args := append(f.facts(nil), r.Revision, r.Call, len(r.Delete), len(r.Set), len(r.Plans), len(r.Failed), len(r.Lanes), len(r.Roots), r.First, r.Source, len(r.Runs))
	add := func(list []string) {
		for _, s := range list {
			args = append(args, s)
		}
	}
	add(r.Delete)
	for _, field := range slices.Sorted(maps.Keys(r.Set)) {
		args = append(args, field, r.Set[field])
	}
	add(r.Plans)
	add(r.Failed)
	add(r.Lanes)
	for _, run := range r.Runs {
		args = append(args, run.Node, run.Input)
	}
	grow := Grow{Roots: r.Roots}
	res, err := s.call(ctx, "retry", f.shard, grow.roots(args)...)
	if err != nil {
		return "", Todo{}, fmt.Errorf("reset workflow: %w", err)
	}
	if len(res) < 2 {
		return text(res[0]), Todo{}, nil
	}
	return text(res[0]), todo(res[1]), nil
}

// maxMessage is the limit of the message that is kept of a run, in bytes.
const maxMessage = 300

// EncodeRun returns the form in which scripts store a run that was followed by another; the scripts add its number.
func EncodeRun(a *tasktype.NodeAttempt) []byte {
	out := strconv.AppendInt(nil, int64(a.Attempt), 10)
	for _, at := range [...]time.Time{a.Started, a.Ended} {
		out = append(out, '|')
		if !at.IsZero() {
			out = strconv.AppendInt(out, at.UnixMilli(), 10)
		}
	}
	failure, _ := json.Marshal([2]string{a.Code, clip.Bytes(a.Message, maxMessage)}) // strings have no error
	out = append(out, '|')
	out = append(out, a.Outcome...)
	out = append(out, '|')
	out = append(out, a.Worker...)
	out = append(out, '|')
	return append(out, failure...)
}

// ParseRuns reads the field of [FieldRuns]. It omits damaged lines.
func ParseRuns(lines []byte) (out []tasktype.NodeAttempt) {
	for line := range bytes.Lines(lines) {
		p := strings.SplitN(string(line), "|", 7)
		var failure [2]string
		if len(p) < 7 || json.Unmarshal([]byte(p[6]), &failure) != nil {
			continue
		}
		a := tasktype.NodeAttempt{Run: int(toInt(p[0])), Attempt: int(toInt(p[1])), Outcome: tasktype.Outcome(p[4]), Worker: p[5], Code: failure[0], Message: failure[1]}
		for i, at := range [...]*time.Time{&a.Started, &a.Ended} {
			if p[2+i] != "" {
				*at = time.UnixMilli(toInt(p[2+i])).UTC()
			}
		}
		out = append(out, a)
	}
	return out
}

// A reference names one send of a workflow: "<id>~" if its id was generated, "<id>~<nonce>" if the sender chose the id.
// Keys, ready lists, leases, messages and tokens have references, so that leases and results of a deleted workflow have no
// effect on a later workflow with the same id, and a graph in memory never changes. Users see ids.
const referenceMark = "~"

// A chosen ID has up to 100 bytes.
const (
	nonceSize    = 12 // characters, which make 60 random bits
	MaxReference = 100 + len(referenceMark) + nonceSize
)

// NewReference returns a reference for a workflow with a chosen id.
func NewReference(id string) string {
	return id + referenceMark + strings.ToLower(rand.Text()[:nonceSize])
}

// GeneratedReference returns the reference of a workflow with a generated id, which no other workflow has.
func GeneratedReference(id string) string { return id + referenceMark }

// IDOf returns the id in a reference.
func IDOf(ref string) string {
	id, _, _ := strings.Cut(ref, referenceMark)
	return id
}

// Address returns the address of the workflow with a reference, or of the latest one with an id. It does not look
// whether the workflow exists.
func (s Flows) Address(ctx context.Context, refOrID string) (Flow, error) {
	n, err := s.shardCount(ctx)
	if err != nil {
		return Flow{}, err
	}
	f := Flow{Ref: refOrID, shard: shardOf(IDOf(refOrID), n)}
	if strings.Contains(refOrID, referenceMark) {
		return f, nil
	}
	f.Ref, err = s.rdb.Get(ctx, s.chosenKey(f.shard, refOrID)).Result()
	if errors.Is(err, redis.Nil) {
		f.Ref, err = GeneratedReference(refOrID), nil
	}
	if err != nil {
		return Flow{}, fmt.Errorf("look up workflow %s: %w", refOrID, err)
	}
	return f, nil
}
