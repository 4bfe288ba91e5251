package tasks_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/tasks"
	"muster/tasks/redistest"
)

// row is a case with one result, or a failure with one message.
type row struct {
	name string
	run  func(t *testing.T, w *world) (any, error)
	want any
	err  string
}

func value[O any](name string, s func() tasks.Signature[O], want O, opts ...tasks.SendOption) row {
	return row{name, func(t *testing.T, w *world) (any, error) { return send(t, w, s(), opts...) }, want, ""}
}

func fails[O any](name string, s func() tasks.Signature[O], message string, opts ...tasks.SendOption) row {
	return row{name, func(t *testing.T, w *world) (any, error) { return send(t, w, s(), opts...) }, nil, message}
}

// story is a case that checks more than one value.
type story struct {
	name string
	run  func(t *testing.T, w *world)
}

func wantFailure(t *testing.T, err error, message string) *tasks.Failure {
	t.Helper()
	var f *tasks.Failure
	if !errors.As(err, &f) || !strings.Contains(f.Message, message) {
		t.Fatalf("got error %v, want a failure with %q", err, message)
	}
	return f
}

// runRows runs rows in one world, on each Redis.
func runRows(t *testing.T, rows []row) {
	t.Helper()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		for _, c := range rows {
			t.Run(c.name, func(t *testing.T) {
				got, err := c.run(t, w)
				if c.err != "" {
					wantFailure(t, err, c.err)
					return
				}
				if err != nil || !reflect.DeepEqual(got, c.want) {
					t.Fatalf("got %v, %v, want %v", got, err, c.want)
				}
			})
		}
	})
}

// runStories runs each story in a separate world, on each Redis.
func runStories(t *testing.T, stories []story) {
	t.Helper()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		for _, s := range stories {
			t.Run(s.name, func(t *testing.T) {
				if err := rdb.FlushDB(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
				s.run(t, newWorld(t, rdb, func(c *tasks.WorkerConfig) { c.MaxResult = 1 << 18 }))
			})
		}
	})
}
