package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"math"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/tasks"
	"muster/tasks/taskstest"
	"muster/tasks/tasktype"
)

// The type of an option determines where it may be given.
func TestOptionsActWhereTheyAreAllowed(t *testing.T) {
	t.Parallel()
	places := map[string]reflect.Type{
		"task": reflect.TypeFor[tasks.TaskOption](), "call": reflect.TypeFor[tasks.CallOption](),
		"group": reflect.TypeFor[tasks.GroupOption](), "send": reflect.TypeFor[tasks.SendOption](),
	}
	for want, options := range map[string][]any{
		"task call group send": {tasks.Queue, tasks.Priority, tasks.Timeout, tasks.HardTimeout, tasks.MaxRetry, tasks.Backoff,
			tasks.ConstantBackoff, tasks.In, tasks.At, tasks.Expires},
		"task":  {tasks.Alias, tasks.Limited[int], tasks.Choice},
		"group": {tasks.AtMost, tasks.FailFast},
		"send":  {tasks.ID, tasks.Unique, tasks.Once, tasks.FairnessKey, tasks.Headers, tasks.Retention, tasks.Name, tasks.Labels, tasks.ProgressKeys},
	} {
		for i, f := range options {
			of := reflect.TypeOf(f).Out(0)
			for place, p := range places {
				if got, may := of.Implements(p), strings.Contains(want, place); got != may {
					t.Errorf("option %d of %q at a %s: got %t, want %t", i, want, place, got, may)
				}
			}
		}
	}
}

// An option with a value that makes no sense is an error of Send, which names it.
func TestOptionsOutOfRangeAreErrorsOfSend(t *testing.T) {
	t.Parallel()
	const never = time.Duration(math.MaxInt64)
	inWorlds(t, func(t *testing.T, w *world) {
		wants := func(name string, err error) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), "tasks."+name+"(") && !strings.Contains(err.Error(), "tasks."+name+":") {
				t.Errorf("%s: got %v, want an error that names it", name, err)
			}
		}
		for name, opts := range map[string][]tasks.Option{
			"Queue":           {tasks.Queue(""), tasks.Queue("a b"), tasks.Queue("{a}"), tasks.Queue(strings.Repeat("x", 101))},
			"Priority":        {tasks.Priority(-1), tasks.Priority(math.MinInt), tasks.Priority(256)},
			"Timeout":         {tasks.Timeout(-1), tasks.Timeout(never)},
			"HardTimeout":     {tasks.HardTimeout(-time.Hour), tasks.HardTimeout(never)},
			"MaxRetry":        {tasks.MaxRetry(-1), tasks.MaxRetry(math.MinInt)},
			"Backoff":         {tasks.Backoff(0, time.Second), tasks.Backoff(-1, -1), tasks.Backoff(time.Second, time.Millisecond), tasks.Backoff(time.Second, never)},
			"ConstantBackoff": {tasks.ConstantBackoff(-time.Second), tasks.ConstantBackoff(never)},
			"In":              {tasks.In(-time.Nanosecond), tasks.In(never)},
			"Expires":         {tasks.Expires(0), tasks.Expires(-time.Second), tasks.Expires(never)},
		} {
			for _, o := range opts {
				declared := tasks.New[int, int]("t.id", o)
				wants(name, refusal(t, w, declared.S(1)))
				wants(name, refusal(t, w, tasks.Chain(ID.S(1), ID.With(o))))
				wants(name, refusal(t, w, tasks.Each([]int{1, 2}, ID, o)))
				wants(name, refusal(t, w, ID.S(1), o))
			}
		}
		for name, o := range map[string]tasks.TaskOption{
			`Limited: limit "a": number -1`: tasks.Limited[int](tasks.Concurrency("a", -1), nil), `Limited: limit "a": number 1000001`: tasks.Limited[int](tasks.Rate("a", 1_000_001, time.Second), nil),
			`Limited: limit "a": period 0s`: tasks.Limited[int](tasks.Rate("a", 1, 0), nil), `Limited: limit ""`: tasks.Limited[int](tasks.Limit{}, nil),
			"Alias": tasks.Alias("old", ""), "Choice": tasks.Choice("", 1),
		} {
			declared := tasks.New[int, int]("t.other", o)
			wants(name, refusal(t, w, declared.S(1)))
			m := tasks.NewMux()
			tasks.Handle(m, declared, func(context.Context, int) (int, error) { return 0, nil })
			_, err := tasks.NewWorker(w.client, m, tasks.WorkerConfig{})
			wants(name, err)
		}
		for _, o := range []tasks.GroupOption{tasks.AtMost(0), tasks.AtMost(-1)} {
			wants("AtMost", refusal(t, w, tasks.Group(ID.S(1)).With(o)))
			wants("AtMost", refusal(t, w, tasks.Map(Range.S(2), ID, o)))
			wants("AtMost", refusal(t, w, tasks.Each(nil, ID, o)))
		}
		for name, opts := range map[string][]tasks.SendOption{
			"At":           {tasks.At(time.Time{}), tasks.At(time.UnixMilli(math.MaxInt64))},
			"ID":           {tasks.ID(""), tasks.ID("a b"), tasks.ID(strings.Repeat("x", 101))},
			"Unique":       {tasks.Unique("", time.Second), tasks.Unique("k", 0), tasks.Unique("k", -1), tasks.Unique(strings.Repeat("k", 1025), time.Second)},
			"Once":         {tasks.Once("", time.Second), tasks.Once("k", 0), tasks.Once("k", never), tasks.Once(strings.Repeat("k", 1025), time.Second)},
			"FairnessKey":  {tasks.FairnessKey(""), tasks.FairnessKey("a/b"), tasks.FairnessKey("{a}")},
			"Retention":    {tasks.Retention(-1), tasks.Retention(never)},
			"ProgressKeys": {tasks.ProgressKeys(""), tasks.ProgressKeys("{x}")},
		} {
			for _, o := range opts {
				wants(name, refusal(t, w, ID.S(1), o))
				wants(name, w.client.Schedules().Put(t.Context(), tasks.Schedule{Name: "schedule", Spec: "@daily", Work: ID.S(1), Options: []tasks.SendOption{o}}))
			}
		}
		many := make([]tasks.SendOption, 10_000)
		for i := range many {
			many[i] = tasks.Headers(map[string]string{fmt.Sprint(i): ""})
		}
		if err := refusal(t, w, ID.S(1), many...); err == nil || !strings.Contains(err.Error(), "headers have") {
			t.Errorf("10,000 headers: got %v, want an error with the limit", err)
		}
		wantValue(t, sent(t, w, ID.S(1, nil), nil, tasks.Headers(nil)), 1)
	})
}

func refusal[O any](t *testing.T, w *world, s tasks.Signature[O], opts ...tasks.SendOption) error {
	_, err := s.Send(t.Context(), w.client, opts...)
	return err
}

// A limit below a millisecond is a limit.
func TestTimeLimitsAreRoundedUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.New(t))
	for _, opts := range [][]tasks.CallOption{{tasks.Timeout(time.Microsecond)}, {tasks.Timeout(0), tasks.HardTimeout(time.Microsecond)}} {
		_, err := send(t, w, Hold.S("for ever", opts...))
		wantFailure(t, err, "")
	}
	w.open("for ever")
}

// A duration counts from when its node can run: a declaration made long before a send expires nothing.
func TestExpiresCountsFromTheNode(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		const span = time.Second // a loaded machine needs its time
		quick := ID.With(tasks.Expires(span))
		slow := ID.With(tasks.In(span + 50*time.Millisecond))
		for name, s := range map[string]tasks.Signature[int]{
			"declared long before":   quick.S(1),
			"a delay that is longer": quick.S(1, tasks.In(span+50*time.Millisecond)),
			"a step of a chain":      tasks.Chain(slow.S(1), quick),
			"a rescue":               tasks.Chain(slow.S(1), Fail).Rescue(Instead.With(tasks.Expires(span))),
			"members of a map":       tasks.Chord(tasks.Map(tasks.Chain(slow.S(3), Range), quick), Sum),
			"one at a time":          tasks.Chord(tasks.Each([]int{1, 2}, quick, tasks.AtMost(1)), Sum),
		} {
			if _, err := send(t, w, s); err != nil {
				t.Errorf("%s: got %v, want a value", name, err)
			}
		}
	})
}

// A task that has no time for another attempt fails with its last error.
func TestExpiresKeepsTheLastError(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		s := Fail.S(7, tasks.MaxRetry(5), tasks.ConstantBackoff(time.Hour), tasks.Expires(time.Minute))
		_, err := send(t, w, s)
		f := wantFailure(t, err, "E7")
		if f.Code != tasktype.CodeError || f.Attempts != 1 || errors.Is(err, tasks.ErrRevoked) {
			t.Errorf("got %+v, want code %q after one attempt", f, tasktype.CodeError)
		}
		group := tasks.Each([]int{7, 7}, Fail, tasks.MaxRetry(5), tasks.ConstantBackoff(time.Hour), tasks.Expires(time.Minute))
		_, err = send(t, w, tasks.Chord(group, Sum))
		if f := wantFailure(t, err, "E7"); f.Code != tasktype.CodeError || f.Attempts != 1 {
			t.Errorf("a group: got %+v, want code %q after one attempt", f, tasktype.CodeError)
		}
		for _, s := range []tasks.Signature[int]{Late.S(1), tasks.Chord(tasks.Each(ints(3), Late, tasks.In(time.Millisecond)), Sum)} {
			_, err = send(t, w, s)
			if f := wantFailure(t, err, "not called again, before it expired"); f.Code != tasktype.CodeExpired || !errors.Is(err, tasks.ErrRevoked) {
				t.Errorf("got %+v, want code %q", f, tasktype.CodeExpired)
			}
		}
	})
}

// The options of a send that apply to every task apply to plans, and to plans in plans.
func TestOptionsOfASendReachPlans(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		for name, s := range map[string]tasks.Signature[int]{"plan": FailTo.S(1), "plan after a step": tasks.Chain(ID.S(1), FailTo)} {
			_, err := send(t, w, s, tasks.MaxRetry(2), tasks.ConstantBackoff(0))
			if f := wantFailure(t, err, "E1"); f.Attempts != 3 {
				t.Errorf("%s: got %d attempts, want 3", name, f.Attempts)
			}
		}
	})
}

// The delay between attempts is the ConstantBackoff of a task, also if it is zero.
func TestConstantBackoffIsTheDelay(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{0, time.Millisecond, time.Minute} {
		step := tasks.New[int, int]("backoff.step", tasks.MaxRetry(1), tasks.ConstantBackoff(d))
		mux := tasks.NewMux()
		tasks.Handle(mux, step, func(ctx context.Context, n int) (int, error) {
			if tasks.InfoFrom(ctx).Attempt == 1 {
				return 0, errors.New("not yet")
			}
			return n, nil
		})
		f := taskstest.New(t, mux)
		began := f.Now()
		if _, err := taskstest.Do(f, step.S(1)); err != nil {
			t.Fatal(err)
		}
		if got := f.Now().Sub(began); got != d {
			t.Errorf("ConstantBackoff(%s): waited %s, want %s", d, got, d)
		}
	}
}

// A wrong combination does not compile, and the message names the types.
func TestWrongCodeDoesNotCompile(t *testing.T) {
	t.Parallel()
	check := typeChecker(t)
	for code, want := range map[string][]string{
		`tasks.Chain(Number.S(1), Upper)`:                                    {"tasks.Task[string, string]", "tasks.Task[int,"},
		`tasks.Chord(tasks.Each([]int{1}, Number), Upper)`:                   {"tasks.Task[string, string]", "tasks.Task[[]int,"},
		`tasks.Chord(Number.S(1), Sum)`:                                      {"tasks.Signature[int]", "tasks.Signature[[]"},
		`tasks.Map(Number.S(1), Number)`:                                     {"tasks.Signature[int]", "tasks.Signature[[]"},
		`tasks.Each([]string{"a"}, Number)`:                                  {"tasks.Task[int, int]", "tasks.Task[string,"},
		`tasks.Group(Number.S(1), Upper.S("a"))`:                             {"tasks.Signature[string]", "tasks.Signature[int]"},
		`Number.S("a")`:                                                      {`"a"`, "int"},
		`Number.S(1).Rescue(Text)`:                                           {"tasks.Task[int, string]", "tasks.Task[tasks.Failure, int]"},
		`tasks.OnError(Number.S(1), Upper)`:                                  {"tasks.Task[string, string]", "tasks.Task[tasks.Failure,"},
		`tasks.Bind(Number, 2)`:                                              {"tasks.Task[int, int]", "tasks.Task[tasks.Pair["},
		`tasks.Handle(mux, Number, strings.ToUpper)`:                         {"func(s string) string", "func(context.Context, I) (O, error)"},
		`var run *tasks.Run[string]; run, _ = Number.S(1).Send(ctx, client)`: {"*tasks.Run[int]", "*tasks.Run[string]"},
	} {
		errs := check(code)
		if !slices.ContainsFunc(errs, func(err error) bool {
			return !slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(err.Error(), w) })
		}) {
			t.Errorf("%s: got %v, want an error with %q", code, errs, want)
		}
	}
	if errs := check("_ = Number.S(1)"); len(errs) > 0 {
		t.Errorf("without wrong code: got %v, want none", errs)
	}
}

// codePrelude has the declarations that the code uses.
const codePrelude = `package page

import (
	"context"
	"strings"

	"muster/tasks"
)

var (
	ctx    context.Context
	client *tasks.Client
	mux    *tasks.Mux

	Number = tasks.New[int, int]("t.number")
	Sum    = tasks.New[[]int, int]("t.sum")
	Text   = tasks.New[int, string]("t.text")
	Upper  = tasks.New[string, string]("t.upper")
)

func _(context.Context, strings.Builder) {
	%s
}
`

// typeChecker returns a function that returns the type errors of a statement.
func typeChecker(t *testing.T) func(code string) []error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
	return func(code string) (errs []error) {
		f, err := parser.ParseFile(fset, "", fmt.Sprintf(codePrelude, code), parser.SkipObjectResolution)
		if err != nil {
			return []error{err}
		}
		cfg := types.Config{Importer: imports, Error: func(err error) {
			if e := (types.Error{}); !errors.As(err, &e) || !e.Soft {
				errs = append(errs, err)
			}
		}}
		_, _ = cfg.Check("page", fset, []*ast.File{f}, nil) // Error gets its errors
		return errs
	}
}
