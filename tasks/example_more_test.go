package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"muster/tasks"
)

// code returns the code of a failure.
func code(err error) string {
	if f, ok := errors.AsType[*tasks.Failure](err); ok {
		return f.Code
	}
	return fmt.Sprint(err)
}

// Several tasks run on every element of a list that another task returns. The function is called once, with a
// signature for the element.
func ExampleMapFunc() {
	client, stop := exampleFleet()
	defer stop()
	show(client, tasks.MapFunc(Split.S("ann bob"), func(name tasks.Signature[string]) tasks.Signature[string] {
		quiet := tasks.Chain(name, Greet)
		loud := tasks.Chain(quiet, Shout) // quiet is used twice and runs once
		return tasks.Chord(tasks.Group(quiet, loud), Gather)
	}))
	// Output: [hello ann, HELLO ANN hello bob, HELLO BOB]
}

// Two signatures of different types run at once, and both values are passed on.
func ExampleJoin() {
	words := tasks.New[string, int]("page.words")
	describe := tasks.New[tasks.Pair[string, int], string]("page.describe")
	mux := tasks.NewMux()
	tasks.Handle(mux, Shout, func(_ context.Context, s string) (string, error) { return strings.ToUpper(s), nil })
	tasks.Handle(mux, words, func(_ context.Context, s string) (int, error) { return len(strings.Fields(s)), nil })
	tasks.Handle(mux, describe, func(_ context.Context, p tasks.Pair[string, int]) (string, error) {
		return fmt.Sprintf("%s has %d words", p.First, p.Second), nil
	})
	client, stop := exampleWorker(mux)
	defer stop()
	show(client, tasks.Chain(tasks.Join(Shout.S("all about owls"), words.S("all about owls")), describe))
	// Output: ALL ABOUT OWLS has 3 words
}

// Try turns the failure of one task into a value, so that the next step can decide.
func ExampleTry() {
	price := tasks.New[string, int]("shop.price")
	label := tasks.New[tasks.Outcome[int], string]("shop.label")
	mux := tasks.NewMux()
	tasks.Handle(mux, price, func(_ context.Context, item string) (int, error) {
		if item == "pear" {
			return 0, errors.New("sold out")
		}
		return 3, nil
	})
	tasks.Handle(mux, label, func(_ context.Context, o tasks.Outcome[int]) (string, error) {
		if o.Err != nil {
			return o.Err.Message, nil
		}
		return fmt.Sprintf("%d EUR", o.Value), nil
	})
	client, stop := exampleWorker(mux)
	defer stop()
	show(client, tasks.Group(tasks.Chain(tasks.Try(price.S("apple")), label), tasks.Chain(tasks.Try(price.S("pear")), label)))
	// Output: [3 EUR sold out]
}

// Bind sets the second half of the input of a task; the map passes only the first half.
func ExampleBind() {
	convert := tasks.New[tasks.Pair[int, float64], int]("shop.convert")
	mux := tasks.NewMux()
	tasks.Handle(mux, convert, func(_ context.Context, in tasks.Pair[int, float64]) (int, error) {
		return int(float64(in.First) * in.Second), nil
	})
	client, stop := exampleWorker(mux)
	defer stop()
	show(client, tasks.Map(tasks.Value([]int{100, 2000}), tasks.Bind(convert, 0.5)))
	// Output: [50 1000]
}

// Callbacks run beside the work and do not change its value. Wait does not wait for them, WaitAll does.
func ExampleOnSuccess() {
	print := tasks.New[string, int]("callback.print")
	apologize := tasks.New[tasks.Failure, int]("callback.apologize")
	mux := tasks.NewMux()
	tasks.Handle(mux, Greet, func(_ context.Context, name string) (string, error) { return "hello " + name, nil })
	tasks.Handle(mux, Shout, func(context.Context, string) (string, error) { return "", errors.New("no voice") })
	tasks.Handle(mux, print, func(_ context.Context, s string) (int, error) { return fmt.Println("done:", s) })
	tasks.Handle(mux, apologize, func(_ context.Context, f tasks.Failure) (int, error) { return fmt.Println("sorry:", f.Message) })
	client, stop := exampleWorker(mux)
	defer stop()
	ctx := context.Background()
	for _, s := range []tasks.Signature[string]{
		tasks.OnSuccess(Greet.S("ann"), print),
		tasks.OnError(tasks.Chain(Greet.S("ann"), Shout), apologize), // of any step
	} {
		run, err := s.Send(ctx, client)
		must(err)
		must(run.WaitAll(ctx))
	}
	// Output:
	// done: hello ann
	// sorry: no voice
}

// The error of an attempt decides whether another one follows. A code lets the caller distinguish failures.
func ExamplePermanent() {
	fetch := tasks.New[string, string]("page.fetch", tasks.MaxRetry(3), tasks.Backoff(time.Millisecond, time.Second))
	mux := tasks.NewMux()
	tasks.Handle(mux, fetch, func(ctx context.Context, page string) (string, error) {
		return "", map[string]error{
			"/gone": tasks.Permanent(errors.New("page is gone")),
			"/shop": tasks.WithCode("blocked", errors.New("too many requests")),
		}[page]
	})
	client, stop := exampleWorker(mux)
	defer stop()
	for _, page := range []string{"/gone", "/shop"} {
		_, err := fetch.S(page).Do(context.Background(), client)
		fmt.Println(code(err), err)
	}
	// Output:
	// permanent task page.fetch failed: page is gone
	// blocked task page.fetch failed after 4 attempts: too many requests
}

// A handler that returns Again is called again after a delay. It occupies no slot meanwhile and uses up no attempt.
func ExampleAgain() {
	await := tasks.New[string, string]("export.await")
	polls := 0
	mux := tasks.NewMux()
	tasks.Handle(mux, await, func(ctx context.Context, export string) (string, error) {
		if polls++; polls < 4 {
			return "", tasks.Again(time.Millisecond)
		}
		return fmt.Sprintf("%s is ready after %d polls, attempt %d", export, polls, tasks.InfoFrom(ctx).Attempt), nil
	})
	client, stop := exampleWorker(mux)
	defer stop()
	show(client, await.S("export 17"))
	// Output: export 17 is ready after 4 polls, attempt 1
}

// Timeout ends the context of a handler, HardTimeout abandons a handler that ignores its context.
func ExampleTimeout() {
	render := tasks.New[string, string]("report.render", tasks.Timeout(10*time.Millisecond))
	print := tasks.New[string, string]("report.print", tasks.HardTimeout(10*time.Millisecond))
	mux := tasks.NewMux()
	tasks.Handle(mux, render, func(ctx context.Context, _ string) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	})
	tasks.Handle(mux, print, func(context.Context, string) (string, error) { select {} })
	client, stop := exampleWorker(mux)
	defer stop()
	for _, task := range []tasks.Task[string, string]{render, print} {
		_, err := task.S("sales").Do(context.Background(), client)
		fmt.Println(code(err))
	}
	// Output:
	// timeout
	// hard_timeout
}

// Tasks with a priority run before tasks without.
func ExamplePriority() {
	inOrder(func(ctx context.Context, client *tasks.Client, pack tasks.Task[string, bool]) []*tasks.Run[bool] {
		return []*tasks.Run[bool]{
			sentRun(pack.S("order 1").Send(ctx, client)),
			sentRun(pack.S("urgent order 2", tasks.Priority(1)).Send(ctx, client)),
		}
	})
	// Output:
	// urgent order 2
	// order 1
}

// Customers take turns, however many tasks one of them has sent.
func ExampleFairnessKey() {
	inOrder(func(ctx context.Context, client *tasks.Client, resize tasks.Task[string, bool]) (runs []*tasks.Run[bool]) {
		for _, image := range []string{"Max: cat", "Max: dog", "Max: owl", "Zoe: boat"} {
			customer, _, _ := strings.Cut(image, ":")
			runs = append(runs, sentRun(resize.S(image).Send(ctx, client, tasks.FairnessKey(customer))))
		}
		return runs
	})
	// Output:
	// Max: cat
	// Zoe: boat
	// Max: dog
	// Max: owl
}

// The deliveries to one customer run one at a time. Although the worker has two slots, and the deliveries to Max wait for the one to
// Zoe, they do not delay it.
func ExampleLimited() {
	ctx := context.Background()
	client, end := exampleClient()
	defer end()
	customer := func(parcel string) string {
		name, _, _ := strings.Cut(parcel, ":")
		return name
	}
	deliver := tasks.New[string, string]("shop.deliver", tasks.Limited(tasks.Concurrency("shop.customer", 1), customer))
	zoe := make(chan struct{})
	mux := tasks.NewMux()
	tasks.Handle(mux, deliver, func(_ context.Context, parcel string) (string, error) {
		if customer(parcel) == "Zoe" {
			close(zoe)
		}
		<-zoe
		return "delivered " + parcel, nil
	})
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{Concurrency: 2})
	must(err)
	run, err := tasks.Each([]string{"Max: cat", "Max: dog", "Max: owl", "Zoe: boat"}, deliver).Send(ctx, client)
	must(err)
	done, err := run.Wait(ctx)
	must(err)
	fmt.Println(strings.Join(done, "\n"))
	must(worker.Stop())
	// Output:
	// delivered Max: cat
	// delivered Max: dog
	// delivered Max: owl
	// delivered Zoe: boat
}

// inOrder sends tasks, then starts a worker that runs one at a time and prints their inputs.
func inOrder(send func(context.Context, *tasks.Client, tasks.Task[string, bool]) []*tasks.Run[bool]) {
	ctx := context.Background()
	client, end := exampleClient()
	defer end()
	task := tasks.New[string, bool]("shop.work")
	runs := send(ctx, client, task)
	mux := tasks.NewMux()
	tasks.Handle(mux, task, func(_ context.Context, s string) (bool, error) {
		fmt.Println(s)
		return true, nil
	})
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{Concurrency: 1})
	must(err)
	for _, run := range runs {
		_, err := run.Wait(ctx)
		must(err)
	}
	must(worker.Stop())
}

func sentRun[O any](run *tasks.Run[O], err error) *tasks.Run[O] {
	must(err)
	return run
}

// A second workflow with an ID is rejected while the results of the first are kept.
func ExampleID() {
	client, stop := exampleFleet()
	defer stop()
	ctx := context.Background()
	sentRun(Greet.S("ann").Send(ctx, client, tasks.ID("greeting-1")))
	first, err := Greet.S("bob").Send(ctx, client, tasks.ID("greeting-1"))
	fmt.Println(errors.Is(err, tasks.ErrDuplicate))
	out, err := first.Wait(ctx)
	must(err)
	fmt.Println(out)
	// Output:
	// true
	// hello ann
}

// A second workflow with a unique key is rejected while the first is running.
func ExampleUnique() {
	client, stop := exampleFleet()
	defer stop()
	ctx := context.Background()
	run := sentRun(Greet.S("ann").Send(ctx, client, tasks.Unique("greeting", time.Hour), tasks.In(time.Hour)))
	_, err := Greet.S("ann").Send(ctx, client, tasks.Unique("greeting", time.Hour))
	fmt.Println(errors.Is(err, tasks.ErrDuplicate))
	must(run.Revoke(ctx))
	show(client, Greet.S("ann"), tasks.Unique("greeting", time.Hour))
	// Output:
	// true
	// hello ann
}

// The value of a part of a workflow is read by its signature, or by the id of its node.
func ExampleValueOf() {
	client, stop := exampleFleet()
	defer stop()
	ctx := context.Background()
	ann := Greet.S("ann")
	run := sentRun(tasks.Chord(tasks.Group(ann, Greet.S("bob")), Gather).Send(ctx, client))
	value, err := tasks.ValueOf(ctx, run, ann)
	must(err)
	fmt.Println(value)
	raw, err := run.NodeValue(ctx, "1")
	must(err)
	fmt.Println(string(raw))
	// Output:
	// hello ann
	// "hello bob"
}

// Programs in any language read the progress of a workflow from plain keys, which handlers can add to.
func ExampleProgressKeys() {
	total := tasks.New[[]string, int]("backup.total")
	mux := tasks.NewMux()
	tasks.Handle(mux, Split, func(_ context.Context, s string) ([]string, error) { return strings.Fields(s), nil })
	tasks.Handle(mux, Greet, func(_ context.Context, s string) (string, error) { return s, nil })
	tasks.Handle(mux, total, func(ctx context.Context, all []string) (int, error) {
		tasks.PublishKey(ctx, "result_count", fmt.Sprint(len(all)))
		return len(all), nil
	})
	client, stop := exampleWorker(mux)
	defer stop()
	ctx := context.Background()
	run := sentRun(tasks.Chord(tasks.Map(Split.S("ann bob cid"), Greet), total).Send(ctx, client, tasks.ProgressKeys("backup")))
	_, err := run.Wait(ctx)
	must(err)
	for _, name := range []string{"status", "total_chunks", "completed_chunks", "result_count"} {
		fmt.Println(name, client.Redis().Get(ctx, "backup:"+run.ID()+":"+name).Val())
	}
	// Output:
	// status COMPLETE
	// total_chunks 3
	// completed_chunks 3
	// result_count 3
}
