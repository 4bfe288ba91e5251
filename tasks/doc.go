// Package tasks runs typed tasks and workflows of them. It has Celery's canvas (chains, groups, chords, maps), and
// runs on Redis and asynq.
//
// A task is a function with a name that a worker runs, in this process or on another machine. A program that sends a
// task needs its declaration, but not its code. This is a complete program: it declares two tasks, starts a worker that
// runs them, sends a workflow of them and waits for its result.
//
//	package main
//
//	import (
//		"context"
//		"fmt"
//		"log"
//		"strings"
//
//		"muster/tasks"
//		"muster/tasks/embedded"
//	)
//
//	// A program that only sends work needs these declarations, but not the handlers.
//	var (
//		Count = tasks.New[string, int]("text.count", tasks.MaxRetry(3))
//		Sum   = tasks.New[[]int, int]("text.sum")
//	)
//
//	func main() {
//		ctx := context.Background()
//		server, err := embedded.Start(embedded.Config{Dir: "data"}) // a Redis in this program, which keeps its data in a directory
//		check(err)
//		client, err := tasks.Connect(ctx, server.URL()) // or redis://host:6379/0, redis-cluster://, redis-sentinel://
//		check(err)
//		mux := tasks.NewMux()
//		tasks.Handle(mux, Count, func(_ context.Context, text string) (int, error) { return len(strings.Fields(text)), nil })
//		tasks.Handle(mux, Sum, func(_ context.Context, counts []int) (total int, _ error) {
//			for _, n := range counts {
//				total += n
//			}
//			return total, nil
//		})
//		worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
//		check(err)
//
//		chapters := []string{"it was a dark night", "the wind rose", "the end"}
//		words, err := tasks.Chord(tasks.Each(chapters, Count), Sum).Do(ctx, client) // count in parallel, then sum
//		check(err)
//		fmt.Println(words, "words")
//		check(worker.Stop()) // waits for running tasks
//		check(client.Close())
//		check(server.Close())
//	}
//
//	func check(err error) {
//		if err != nil {
//			log.Fatal(err)
//		}
//	}
//
// # Signatures
//
// A [Signature] describes work that yields a value: a task with its input, or a combination of tasks. It is a Go
// value; nothing runs before it is sent. A signature that was sent is a workflow: it is stored in Redis as a whole,
// and runs to its end without the sender.
//
//	var (
//		Fetch = tasks.New[string, Page]("site.fetch", tasks.Timeout(30*time.Second), tasks.MaxRetry(3))
//		Index = tasks.New[[]Page, Report]("site.index")
//	)
//
//	pages := tasks.Each(urls, Fetch)                        // all urls at once
//	run, err := tasks.Chord(pages, Index).Send(ctx, client) // indexes the pages once all are fetched
//	report, err := run.Wait(ctx)
//
// [Client.SendMany] sends many workflows in few round trips. Package outbox sends in the transactions of a database.
//
// A task of the wrong type does not compile. [Task.S] is the signature of one task, [Value] that of a constant. [Chain],
// [After], [Group], [Each], [Chord], [Map], [MapFunc] and [Join] combine signatures; [Bind] gives a task the second half of
// its input. [OnSuccess], [OnError], [Signature.Rescue], [Try], [Settle] and [Compensate] act on outcomes.
//
// A task bound with [HandlePlan] returns a signature, which replaces it: so a workflow decides at run time about its next
// steps. A signature that is used in two places of a send runs once, and both places get its value.
//
// # Options
//
// The type of an option decides where it may be given; anywhere else it does not compile: a [TaskOption] in [New], a
// [CallOption] at a use of a task, a [GroupOption] for a group, a map or a join, a [SendOption] in Send. An [Option] may be
// given in New, at a use and in Send.
//
// The uses of a task are S, [Task.With], Chain, Chord, Each, Map and [Signature.With]. An option given later overrides
// an earlier one: the order is New, Task.With, S or the combinator, Signature.With, Send. Send returns an error for a
// value out of range.
//
// # Errors of handlers
//
// A handler that returns an error or panics has failed. It is called again if [MaxRetry] allows another attempt.
// [Permanent], [RetryIn] and [WithCode] mark an error. They may be nested in any way, also below fmt.Errorf with %w
// and errors.Join:
//
//   - The task fails without another attempt if the error has a Permanent anywhere.
//   - The next attempt begins after the delay of the outermost RetryIn.
//   - The code of the [Failure] comes from the outermost WithCode. Without one it comes from a *Failure that the handler
//     returns; else it is [tasktype.CodeTimeout], [tasktype.CodePermanent] or [tasktype.CodeError].
//   - [Again] is not a failure, unless the same error has a Permanent or a RetryIn.
//
// The outermost is the one with the fewest errors around it; of errors that were joined it is the first. Only the first
// 200,000 errors of a tree are read.
//
// # Long handlers
//
// [Step] runs a function once for a task: its value is stored, and later attempts get it without a call. [Save] stores one value, such as a
// cursor, for [Saved] in later attempts. [Emit] shows output while the handler runs: [Workflow.Output] follows it.
//
// # External tasks
//
// A task that is [External] is completed by a person, or by a program in any language. A handler can make its own task wait
// in the same way, with [TokenFrom] and [ResultPending]. Such a task is STARTED and occupies no slot of a worker. The
// program that completes it finds it with [Inspector.OpenTokens], gets a token from [Workflow.NewToken], and calls [Task.Complete] or
// [Client.Fail]; [Client.Extend] moves the deadline. A program that knows the ID of the workflow needs no token: [Task.Signal]
// completes the task by its name, also before it is open. Package api does the same over HTTP.
//
// # States
//
//	PENDING ──▶ STARTED ──▶ SUCCESS
//	   ▲           │  ├───▶ FAILURE    the last attempt failed, or Cancel (also straight from PENDING)
//	   │           │  └───▶ REVOKED    by Revoke, or expired (also straight from PENDING)
//	   └── RETRY ◀─┘
//	PENDING ──▶ SKIPPED                a node that it needs has failed
//
// A node is one task of a workflow. Every node reaches SUCCESS, FAILURE, REVOKED or SKIPPED. When a node fails, the
// nodes that need its value are skipped at once. The other members of its group continue, unless the group has
// [FailFast]; Wait returns the first failure without waiting for them.
//
// # Guarantees
//
//   - A workflow that was sent runs to its end even if senders, workers or Redis are killed, provided that Redis keeps
//     the writes that it acknowledged (appendonly, with the fsync policy of your choice).
//   - Each continuation happens once: a join counts each member once, even if it ran more than once, and only the first
//     result of a node is stored.
//   - A handler may run again: after a crash of its worker, and when its result could not be stored. The Key of
//     [tasktype.Info] is the same each time, for use as an idempotency key. Such a repeat is not counted as an attempt. A
//     node whose worker died eleven times fails.
//   - The tasks of a worker that died run elsewhere after 4 to 6 seconds, or at once after [Client.ExpireLeases].
//   - The keys of a workflow expire a [Retention], or a [FailureRetention], after its end, and not before.
//
// So a handler can run more than once; no system can exclude that. A handler that ignores its context cannot be
// stopped: after [HardTimeout] its node has failed and its slot is free, but its goroutine still runs.
//
// A task for which no live worker of its queue has a handler waits until such a worker starts. After
// [WorkerConfig].HandlerWait it fails with [tasktype.CodeUnregistered]. The file docs/how-to/upgrading.md explains how to change tasks while workflows run, and which parts
// stay the same between releases.
//
// # Redis
//
// Redis must not evict keys: a workflow that loses one may never end. While maxmemory is set and maxmemory-policy is
// not noeviction, sends and workers return [ErrEvicts]. A Redis whose memory or disk is full refuses sends, see
// [Refused]; running workflows wait, and continue when there is room.
//
// A failover loses the writes that the old master acknowledged and did not replicate. A workflow repeats the steps whose
// results were lost. A workflow that was sent in that time is unknown: Wait returns [ErrNotFound]. With Sentinels, an old
// master that is still running accepts writes until they demote it. To exclude that, set min-replicas-to-write to the
// number of replicas of a master, and min-replicas-max-lag to 10, on all of them. Then Send returns an error for a
// workflow that the new master would not have, and only the writes of the last milliseconds can be lost. One fewer is
// not enough: another replica still follows the old master. The price is that a master accepts writes only while all of
// its replicas follow it.
//
// # Limits
//
// A send has at most 200,000 nodes, and so has a map. Plans may be nested 1,000 deep. An input has at most 16 MiB, and
// so has a result ([WorkerConfig].MaxResult). The name of a queue has no brace, colon, bar or white space. The file
// docs/concepts/engine.md has the other limits, and describes the engine.
//
// # More
//
// The directory examples has complete programs, such as a saga, an approval and a nightly schedule.
//
// [Client.Workflow] is the handle of a workflow, as Send returns it: it reads, pauses, cancels, revokes, retries and deletes.
// [Client.Inspect] lists workflows, queues, workers and schedules. [Client.PauseQueue] stops a queue; [Client.SetConcurrency]
// changes how many tasks run at once. A [Schedule] sends work at given times, see [Schedules.Put]. [Mux.Use] wraps handlers.
// [WorkerConfig].Observe is called after every attempt.
//
// Package tasktype has the structs that these return, the states of a node and the codes of failures. Package taskstest
// runs workflows in tests, without a server and without waiting. Package api serves workflows over HTTP. Package metrics exports to Prometheus, package otel to
// OpenTelemetry.
package tasks
