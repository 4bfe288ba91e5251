package otel_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	api "go.opentelemetry.io/otel/trace"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/otel"
	"muster/tasks/taskstest"
	"muster/tasks/tasktype"
)

func TestMain(m *testing.M) { redistest.Main(m) }

var (
	inc   = tasks.New[int, int]("o.inc", tasks.MaxRetry(1), tasks.ConstantBackoff(time.Millisecond))
	count = tasks.New[int, []int]("o.count")
	sum   = tasks.New[[]int, int]("o.sum")
	plan  = tasks.New[int, int]("o.plan")
	bad   = tasks.New[int, int]("o.bad", tasks.MaxRetry(1), tasks.ConstantBackoff(time.Millisecond))
	panik = tasks.New[int, int]("o.panic")
	polls = tasks.New[int, int]("o.polls")
)

// fleet returns a fleet with the tasks above and an in-memory exporter.
func fleet(t *testing.T) (*taskstest.Fleet, *trace.TracerProvider, *tracetest.InMemoryExporter) {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(exporter))
	var f *taskstest.Fleet
	mux := tasks.NewMux()
	mux.Use(func(ctx context.Context, info tasktype.Info, next func(context.Context) error) error {
		return otel.Middleware(f.Client(), otel.Config{Provider: provider})(ctx, info, next)
	})
	tasks.Handle(mux, inc, func(ctx context.Context, n int) (int, error) {
		if !api.SpanContextFromContext(ctx).IsValid() {
			return 0, tasks.Permanent(errors.New("no span in the context of the handler"))
		}
		return n + 1, nil
	})
	tasks.Handle(mux, count, func(_ context.Context, n int) ([]int, error) { return make([]int, n), nil })
	tasks.Handle(mux, sum, func(_ context.Context, ns []int) (int, error) { return len(ns), nil })
	tasks.HandlePlan(mux, plan, func(_ context.Context, n int) (tasks.Signature[int], error) {
		return tasks.Chain(inc.S(n), inc), nil
	})
	tasks.Handle(mux, bad, func(context.Context, int) (int, error) { return 0, errors.New("no luck") })
	tasks.Handle(mux, panik, func(context.Context, int) (int, error) { panic("oh") })
	asked := false
	tasks.Handle(mux, polls, func(_ context.Context, n int) (int, error) {
		if !asked {
			asked = true
			return 0, tasks.Again(time.Hour)
		}
		return n, nil
	})
	f = taskstest.New(t, mux)
	return f, provider, exporter
}

func attr(attrs []attribute.KeyValue, key string) string {
	for _, a := range attrs {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

func TestSpansAreChildrenOfTheSendersSpan(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		work tasks.Signature[int]
		want []string
	}{
		"map":   {tasks.Chord(tasks.Map(count.S(2), inc), sum), []string{"o.count 0#1", "o.inc 1.0#1", "o.inc 1.1#1", "o.sum 2#1"}},
		"plan":  {tasks.Chain(plan.S(1), inc), []string{"o.plan 0#1", "o.inc 0:0#1", "o.inc 0:1#1", "o.inc 1#1"}},
		"retry": {tasks.Chain(inc.S(1), bad), []string{"o.inc 0#1", "o.bad 1#1", "o.bad 1#2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, provider, exporter := fleet(t)
			ctx, root := provider.Tracer("test").Start(t.Context(), "sender")
			_, err := taskstest.Do(f, c.work, otel.Trace(ctx))
			if name != "retry" && err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range exporter.GetSpans() {
				got = append(got, s.Name+" "+attr(s.Attributes, "muster.node")+"#"+attr(s.Attributes, "muster.attempt"))
				if s.SpanContext.TraceID() != root.SpanContext().TraceID() || s.Parent.SpanID() != root.SpanContext().SpanID() {
					t.Errorf("span %s is not a child of the sender's span", s.Name)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("spans\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func TestSpansRecordErrors(t *testing.T) {
	t.Parallel()
	f, _, exporter := fleet(t)
	for _, s := range []tasks.Signature[int]{bad.S(1), panik.S(1), polls.S(1)} {
		_, _ = taskstest.Do(f, s)
	}
	var got []string
	for _, s := range exporter.GetSpans() {
		line := s.Name + " " + s.Status.Code.String() + " " + s.Status.Description
		for _, e := range s.Events {
			line += " [" + e.Name + " " + attr(e.Attributes, "exception.message") + "]"
		}
		got = append(got, line)
		if s.SpanContext.TraceID().String() == "" || s.Status.Code == codes.Ok {
			t.Errorf("span %+v", s)
		}
	}
	want := []string{
		"o.bad Error no luck [exception no luck]", "o.bad Error no luck [exception no luck]",
		"o.panic Error panic [exception panic: oh]",
		"o.polls Unset  [waits for another call or an external result ]", "o.polls Unset ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("spans\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestWorkflowWithoutTraceIsOneTrace(t *testing.T) {
	t.Parallel()
	f, _, exporter := fleet(t)
	testutil.Must(taskstest.Do(f, tasks.Chord(tasks.Map(count.S(2), inc), sum)))(t)
	spans := exporter.GetSpans()
	if len(spans) != 4 {
		t.Fatalf("%d spans, want 4", len(spans))
	}
	first := spans[0]
	if first.Parent.IsValid() {
		t.Errorf("the first span has the parent %v", first.Parent)
	}
	for _, s := range spans[1:] {
		if s.Parent.SpanID() != first.SpanContext.SpanID() || s.SpanContext.TraceID() != first.SpanContext.TraceID() {
			t.Errorf("span %s is a child of %v, want the first span %v", s.Name, s.Parent, first.SpanContext)
		}
	}
}

// Two workflows with one id, of which the first was deleted, have a trace each.
func TestLaterWorkflowHasItsOwnTrace(t *testing.T) {
	t.Parallel()
	f, _, exporter := fleet(t)
	for range 2 {
		testutil.Must(taskstest.Do(f, inc.S(1), tasks.ID("nightly")))(t)
		testutil.Ok(t, f.Client().Workflow("nightly").Delete(t.Context()))
	}
	spans := exporter.GetSpans()
	if len(spans) != 2 || spans[0].SpanContext.TraceID() == spans[1].SpanContext.TraceID() || spans[1].Parent.IsValid() {
		t.Errorf("got %+v, want two separate traces", spans)
	}
}

// A workflow that is not sampled has no spans, and needs no Redis call if the sender made the decision.
func TestUnsampledWorkflows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		parent bool
		keys   int
	}{"decided by the sender": {true, 0}, "decided by the first task": {false, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exporter := tracetest.NewInMemoryExporter()
			provider := trace.NewTracerProvider(trace.WithSyncer(exporter), trace.WithSampler(trace.ParentBased(trace.NeverSample())))
			var f *taskstest.Fleet
			mux := tasks.NewMux()
			mux.Use(func(ctx context.Context, info tasktype.Info, next func(context.Context) error) error {
				return otel.Middleware(f.Client(), otel.Config{Provider: provider})(ctx, info, next)
			})
			traces := map[string]bool{}
			tasks.Handle(mux, inc, func(ctx context.Context, n int) (int, error) {
				traces[api.SpanContextFromContext(ctx).TraceID().String()] = true
				return n + 1, nil
			})
			f = taskstest.New(t, mux)
			ctx := t.Context()
			if c.parent {
				ctx, _ = provider.Tracer("test").Start(ctx, "sender")
			}
			testutil.Must(taskstest.Do(f, tasks.Chain(inc.S(1), inc), otel.Trace(ctx)))(t)
			if n := len(exporter.GetSpans()); n != 0 {
				t.Errorf("%d spans, want none", n)
			}
			if len(traces) != 1 {
				t.Errorf("got the traces %v, want one", traces)
			}
			keys, err := f.Client().Redis().Keys(t.Context(), "muster:trace:*").Result()
			if err != nil || len(keys) != c.keys {
				t.Errorf("Redis has the keys %v (%v), want %d", keys, err, c.keys)
			}
		})
	}
}

func TestAttributesFollowTheConventions(t *testing.T) {
	t.Parallel()
	f, _, exporter := fleet(t)
	_, _ = taskstest.Do(f, bad.S(1), tasks.ID("w1"))
	s := exporter.GetSpans()[0]
	if s.SpanKind != api.SpanKindConsumer {
		t.Errorf("got kind %v", s.SpanKind)
	}
	for name, want := range map[string]string{
		"messaging.system": "muster", "messaging.operation.type": "process", "messaging.operation.name": "process",
		"messaging.destination.name": "default", "messaging.message.conversation_id": "w1",
		"error.type": "*errors.errorString", "muster.workflow": "w1", "muster.node": "0", "muster.attempt": "1",
	} {
		if got := attr(s.Attributes, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if id := attr(s.Attributes, "messaging.message.id"); !regexp.MustCompile(`^w1~\w+\.0$`).MatchString(id) {
		t.Errorf("messaging.message.id is %q, want the key of the node", id)
	}
}
