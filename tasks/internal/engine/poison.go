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
	id, deadline, err := decode(p.Message)
	if err != nil {
		return fmt.Errorf("its message does not decode: %w", err)
	}
	if id != p.ID {
		return fmt.Errorf("its message is that of task %q", id)
	}
	p.Deadline = deadline
	return nil
}

// decode returns the id of a message of asynq, and its deadline in unix s, 0 if it has none.
func decode(message string) (id string, deadline int64, err error) {
	m := messageType.New()
	if err := proto.Unmarshal([]byte(message), m.Interface()); err != nil {
		return "", 0, err
	}
	fields := messageType.Descriptor().Fields()
	return m.Get(fields.ByName("id")).String(), m.Get(fields.ByName("deadline")).Int(), nil
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
