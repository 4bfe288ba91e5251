package engine

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"muster/tasks/internal/store"
)

// messageType is that of asynq's messages, as it registers it; nil if it does so no more.
var messageType = func() protoreflect.MessageType {
	t, err := protoregistry.GlobalTypes.FindMessageByName("asynq.TaskMessage")
	if err != nil {
		return nil
	}
	return t
}()

// readable reads what a task that was taken out of a queue says of itself. The error is why asynq would
// not start it.
func readable(p *store.Popped) error {
	if messageType == nil {
		return nil
	}
	m := messageType.New()
	if err := proto.Unmarshal([]byte(p.Message), m.Interface()); err != nil {
		return fmt.Errorf("its message does not decode: %w", err)
	}
	field := func(name protoreflect.Name) protoreflect.Value {
		return m.Get(messageType.Descriptor().Fields().ByName(name))
	}
	if id := field("id").String(); id != p.ID {
		return fmt.Errorf("its message is that of task %q", id)
	}
	p.Deadline = field("deadline").Int()
	if p.Deadline == 0 && field("headers").Map().Get(protoreflect.ValueOfString(header).MapKey()).String() == headerVersion {
		p.Task = field("type").String()
	}
	return nil
}

// overdue reports whether a deadline has passed, so that asynq fails its task without a handler.
func overdue(deadline int64) bool { return deadline > 0 && deadline <= time.Now().Unix() }

// bury takes out of a queue what is no task. Should a node stand behind it, the agenda hands it over
// again.
func (w *Worker) bury(queue string, p store.Popped, cause error) {
	w.log.Error("what was in a queue is no task, and was deleted", "queue", queue, "id", p.ID, "bytes", len(p.Message), "error", cause)
	ctx, cancel := context.WithTimeout(context.Background(), aheadTimeout)
	defer cancel()
	if err := w.e.store.Bury(ctx, queue, p.ID); err != nil {
		w.log.Warn("what is no task is left in its queue", "queue", queue, "id", p.ID, "error", err)
	}
}

// suspects holds the place of the one suspected node that may run in this process: when it dies, the others
// were not the cause.
var suspects = make(chan struct{}, 1)

// alone lets a suspected node run when no other one does in this process, until leave is called. Without
// leave it does not run here now: it was put back, or is someone else's.
func (w *Worker) alone(ctx context.Context, r *Run) (leave func(), err error) {
	select {
	case suspects <- struct{}{}:
	default:
		return nil, w.again(ctx, r, jitter(suspectPause), store.RepeatAgain, "")
	}
	leave = func() { <-suspects }
	mine, err := w.e.store.Enter(ctx, r.fl.Flow, r.Info.Node, r.epoch, w.cfg.Name)
	if err != nil || !mine {
		leave()
		return nil, err
	}
	return leave, nil
}

// suspectPause is about how long a suspected node waits until it is tried again while another one runs.
const suspectPause = 100 * time.Millisecond
