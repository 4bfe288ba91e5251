package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"muster/tasks"
	"muster/tasks/redistest"
)

var (
	Greet  = tasks.New[string, string]("hello.greet")
	Shout  = tasks.New[string, string]("hello.shout")
	Gather = tasks.New[[]string, string]("hello.gather")
	Split  = tasks.New[string, []string]("hello.split")
	Shaky  = tasks.New[string, string]("hello.shaky", tasks.MaxRetry(3), tasks.ConstantBackoff(time.Millisecond))
	Excuse = tasks.New[tasks.Failure, string]("hello.excuse")
	Choose = tasks.New[string, string]("hello.choose")
)

// exampleTB is what an example has for a test.
type exampleTB struct {
	testing.TB
	ends []func()
}

func (e *exampleTB) Helper()                   {}
func (e *exampleTB) Name() string              { return "Example" }
func (e *exampleTB) Cleanup(f func())          { e.ends = append(e.ends, f) }
func (e *exampleTB) Context() context.Context  { return context.Background() }
func (e *exampleTB) Fatal(args ...any)         { must(errors.New(fmt.Sprint(args...))) }
func (e *exampleTB) Fatalf(f string, a ...any) { must(fmt.Errorf(f, a...)) }

func (e *exampleTB) end() {
	for i := len(e.ends) - 1; i >= 0; i-- {
		e.ends[i]()
	}
}

// exampleFleet starts a worker; the examples share what it knows.
func exampleFleet() (*tasks.Client, func()) {
	tb := &exampleTB{}
	client := tasks.NewClient(redistest.Mini(tb)) // a program calls tasks.Connect
	mux := tasks.NewMux()
	tasks.Handle(mux, Greet, func(_ context.Context, name string) (string, error) { return "hello " + name, nil })
	tasks.Handle(mux, Shout, func(_ context.Context, s string) (string, error) { return strings.ToUpper(s), nil })
	tasks.Handle(mux, Gather, func(_ context.Context, ss []string) (string, error) { return strings.Join(ss, ", "), nil })
	tasks.Handle(mux, Split, func(_ context.Context, s string) ([]string, error) { return strings.Fields(s), nil })
	tasks.Handle(mux, Shaky, func(ctx context.Context, s string) (string, error) {
		if tasks.InfoFrom(ctx).Attempt < 3 {
			return "", errors.New("not yet")
		}
		return s, nil
	})
	tasks.Handle(mux, Excuse, func(_ context.Context, f tasks.Failure) (string, error) { return "sorry: " + f.Message, nil })
	tasks.HandlePlan(mux, Choose, func(_ context.Context, s string) (tasks.Signature[string], error) {
		if strings.HasPrefix(s, "loud ") {
			return tasks.Chain(Greet.S(strings.TrimPrefix(s, "loud ")), Shout), nil
		}
		return Greet.S(s), nil
	})
	ready := make(chan struct{})
	worker, err := tasks.NewWorker(client, mux, tasks.WorkerConfig{Ready: func() { close(ready) }})
	must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	<-ready
	return client, func() {
		cancel()
		must(<-done)
		must(client.Close())
		tb.end()
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func show[O any](client *tasks.Client, s tasks.Signature[O], opts ...tasks.Option) {
	ctx := context.Background()
	run, err := s.Send(ctx, client, opts...)
	must(err)
	out, err := run.Wait(ctx)
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	fmt.Println(out)
}

func ExampleNew() {
	client, stop := exampleFleet()
	defer stop()
	show(client, Greet.S("ann"))
	// Output: hello ann
}

func ExampleChain() {
	client, stop := exampleFleet()
	defer stop()
	show(client, tasks.Chain(Greet.S("ann"), Shout))
	// Output: HELLO ANN
}

func ExampleGroup() {
	client, stop := exampleFleet()
	defer stop()
	show(client, tasks.Group(Greet.S("ann"), tasks.Chain(Greet.S("bob"), Shout)))
	// Output: [hello ann HELLO BOB]
}

func ExampleChord() {
	client, stop := exampleFleet()
	defer stop()
	show(client, tasks.Chord(tasks.Each([]string{"ann", "bob"}, Greet), Gather))
	// Output: hello ann, hello bob
}

func ExampleMap() {
	client, stop := exampleFleet()
	defer stop()
	names := Split.S("ann bob cid") // how many there are is known when it has run
	show(client, tasks.Chord(tasks.Map(names, Greet, tasks.AtMost(2)), Gather))
	// Output: hello ann, hello bob, hello cid
}

func ExampleSettle() {
	client, stop := exampleFleet()
	defer stop()
	ctx := context.Background()
	run, err := tasks.Settle(tasks.Group(Greet.S("ann"), tasks.New[string, string]("hello.greet").S("bob", tasks.Expires(-time.Second)))).Send(ctx, client)
	must(err)
	outcomes, err := run.Wait(ctx)
	must(err)
	for _, o := range outcomes {
		fmt.Println(o.Value, o.Err != nil)
	}
	// Output:
	// hello ann false
	//  true
}

func ExampleMaxRetry() {
	client, stop := exampleFleet()
	defer stop()
	show(client, Shaky.S("third time lucky"))
	show(client, Shaky.S("no luck", tasks.MaxRetry(1)))
	// Output:
	// third time lucky
	// error: task hello.shaky failed after 2 attempts: not yet
}

func ExampleSignature_Rescue() {
	client, stop := exampleFleet()
	defer stop()
	show(client, tasks.Chain(Shaky.S("x", tasks.MaxRetry(0)).Rescue(Excuse), Shout))
	// Output: SORRY: NOT YET
}

func ExampleHandlePlan() {
	client, stop := exampleFleet()
	defer stop()
	show(client, tasks.Each([]string{"ann", "loud bob"}, Choose))
	// Output: [hello ann HELLO BOB]
}

func ExampleAsyncResult_Watch() {
	client, stop := exampleFleet()
	defer stop()
	ctx := context.Background()
	run, err := tasks.Each([]string{"ann", "bob"}, Greet).Send(ctx, client)
	must(err)
	var last tasks.Progress
	for p, err := range run.Watch(ctx) {
		must(err)
		last = p
	}
	fmt.Println(last.Done, "of", last.Total, last.Status)
	// Output: 2 of 2 SUCCESS
}

func ExampleAsyncResult_Revoke() {
	client, stop := exampleFleet()
	defer stop()
	ctx := context.Background()
	run, err := Greet.S("ann").Send(ctx, client, tasks.In(time.Hour))
	must(err)
	must(run.Revoke(ctx))
	_, err = run.Wait(ctx)
	fmt.Println(errors.Is(err, tasks.ErrRevoked))
	// Output: true
}

func ExampleScheduler() {
	client, stop := exampleFleet()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	sent := make(chan string, 8)
	s := tasks.NewScheduler(client, tasks.SchedulerConfig{Sent: func(_, id string) { sent <- id }})
	must(s.Add("greeting", "@every 20ms", Greet.S("ann")))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	out, err := tasks.Attach[string](client, <-sent).Wait(context.Background())
	must(err)
	cancel()
	must(<-done)
	fmt.Println(out)
	// Output: hello ann
}
