package engine

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"muster/internal/redistest"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

func TestLogLinesAreDropped(t *testing.T) {
	t.Parallel()
	client := redistest.Server(t).Client()
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	l := newLogs(&local{env: &env{store: store.New(client, store.DefaultNamespace)}, log: slog.New(slog.NewTextHandler(&out, nil))})
	for i := range maxPending + 10 {
		l.add(store.Flow{Ref: fmt.Sprint(i)}, tasktype.LogLine{})
	}
	for range store.MaxLog + 7 {
		l.add(store.Flow{Ref: "0"}, tasktype.LogLine{})
	}
	if len(l.lines) != maxPending || l.dropped != 10+store.MaxLog+7 {
		t.Errorf("got lines of %d workflows and %d dropped", len(l.lines), l.dropped)
	}
	l.once(t.Context())
	if want := fmt.Sprintf(`msg="log lines of tasks were dropped" lines=%d error="store log lines: redis: client is closed"`, maxPending+10+store.MaxLog+7); !strings.Contains(out.String(), want) {
		t.Errorf("got %.300s, want %s", out.String(), want)
	}
	out.Reset()
	if l.once(t.Context()); out.Len() > 0 || len(l.lines) > 0 {
		t.Errorf("got %s, want nothing to store", out.String())
	}
}
