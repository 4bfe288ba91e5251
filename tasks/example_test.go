package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"muster/tasks"
	"muster/tasks/embedded"
	"muster/tasks/tasktype"
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

// exampleFleet starts a worker with the handlers of the examples.
func exampleFleet() (*tasks.Client, func()) {
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
	return exampleWorker(mux)
}

// exampleClient returns a client of a Redis in this process, whose data is deleted at the end.
func exampleClient() (client *tasks.Client, end func()) {
	dir, err := os.MkdirTemp("", "example")
	must(err)
	server, err := embedded.Start(embedded.Config{Dir: dir})
	must(err)
	client, err = tasks.Connect(context.Background(), server.URL())
	must(err)
	return client, func() {
		must(client.Close())
		must(server.Close())
		must(os.RemoveAll(dir))
	}
}

// exampleWorker starts a worker that runs the tasks of mux.
func exampleWorker(mux *tasks.Mux) (*tasks.Client, func()) {
	client, end := exampleClient()
	worker, err := tasks.StartWorker(context.Background(), client, mux, tasks.WorkerConfig{})
	must(err)
	return client, func() {
		must(worker.Stop())
		end()
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func show[O any](client *tasks.Client, s tasks.Signature[O], opts ...tasks.SendOption) {
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

func Example_nested() {
	client, stop := exampleFleet()
	defer stop()
	// A chord whose header has a chord, a map and a plan; groups in groups are lists in lists.
	crowd := tasks.Chord(tasks.Map(Split.S("ann bob"), Greet), Gather)
	loud := tasks.Chain(crowd, Shout)
	both := tasks.Group(loud, tasks.Chain(Greet.S("cid"), Shout), Choose.S("loud dan"))
	show(client, tasks.Chord(both, Gather))
	show(client, tasks.Group(tasks.Each([]string{"eve"}, Greet), tasks.Each([]string{"fay", "gil"}, Greet)))
	// Output:
	// HELLO ANN, HELLO BOB, HELLO CID, HELLO DAN
	// [[hello eve] [hello fay hello gil]]
}

func ExampleSettle() {
	client, stop := exampleFleet()
	defer stop()
	ctx := context.Background()
	run, err := tasks.Settle(tasks.Group(Greet.S("ann"), Shaky.S("bob", tasks.MaxRetry(0)))).Send(ctx, client)
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

func ExampleMux_Use() {
	mux := tasks.NewMux()
	mux.Use(func(ctx context.Context, info tasktype.Info, next func(context.Context) error) error {
		err := next(ctx)
		fmt.Println(info.Task, "attempt", info.Attempt, "error:", err)
		return err
	})
	tasks.Handle(mux, Shaky, func(ctx context.Context, s string) (string, error) {
		if tasks.InfoFrom(ctx).Attempt < 2 {
			return "", errors.New("not yet")
		}
		return s, nil
	})
	client, stop := exampleWorker(mux)
	defer stop()
	show(client, Shaky.S("there"))
	// Output:
	// hello.shaky attempt 1 error: not yet
	// hello.shaky attempt 2 error: <nil>
	// there
}

func ExampleWorkflow_Retry() {
	client, stop := exampleFleet()
	defer stop()
	ctx := context.Background()
	run, err := Greet.S("ann").Send(ctx, client, tasks.In(time.Hour))
	must(err)
	must(run.Cancel(ctx))
	must(run.Retry(ctx, Greet.RetryInput("0", "bob"))) // it runs at once
	fmt.Println(run.Wait(ctx))
	// Output: hello bob <nil>
}

func ExampleClient_SendMany() {
	client, stop := exampleFleet()
	defer stop()
	ctx := context.Background()
	results, err := client.SendMany(ctx, []tasks.Sending{
		{Work: Greet.S("ann")},
		{Work: Greet.S("bob"), Options: []tasks.SendOption{tasks.Queue("no such queue")}},
		{Work: Greet.S("eve")},
	})
	fmt.Println("all were sent:", err == nil)
	for _, r := range results {
		if r.Err != nil {
			fmt.Println("invalid:", errors.Is(r.Err, tasks.ErrInvalid))
			continue
		}
		out, err := tasks.Attach[string](client, r.ID).Wait(ctx)
		must(err)
		fmt.Println(out)
	}
	// Output:
	// all were sent: false
	// hello ann
	// invalid: true
	// hello eve
}
