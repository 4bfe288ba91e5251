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

// readable returns why asynq would not start a task that was taken out of a queue.
func readable(p store.Popped) error {
	if messageType == nil {
		return nil
	}
	m := messageType.New()
	if err := proto.Unmarshal([]byte(p.Message), m.Interface()); err != nil {
		return fmt.Errorf("its message does not decode: %w", err)
	}
	fields := messageType.Descriptor().Fields()
	if id := m.Get(fields.ByName("id")).String(); id != p.ID {
		return fmt.Errorf("its message is that of task %q", id)
	}
	return nil
}

// overdue reports whether the deadline of a task has passed, so that asynq fails it without a handler.
func overdue(message string) bool {
	if messageType == nil {
		return false
	}
	m := messageType.New()
	if err := proto.Unmarshal([]byte(message), m.Interface()); err != nil {
		return false
	}
	at := m.Get(messageType.Descriptor().Fields().ByName("deadline")).Int()
	return at > 0 && at <= time.Now().Unix()
}

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
