// Package tasks runs typed tasks and workflows of them. It has Celery's canvas (chains, groups, chords, maps), and
// runs on Redis and asynq.
//
// A task is a function with a name that a worker runs, in this process or on another machine. A program that sends a
// task needs its declaration and not its code. This is a whole program: it declares a task, starts a worker with the
// code, sends the task and waits for its value.
//
//	package main
//
//	import (
//		"cmp"
//		"context"
//		"fmt"
//		"log"
//		"os"
//
//		"muster/tasks"
//	)
//
//	var Receipt = tasks.New[string, string]("order.receipt")
//
//	func main() {
//		ctx := context.Background()
//		client, err := tasks.Connect(ctx, cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379/0"))
//		check(err)
//		mux := tasks.NewMux()
//		tasks.Handle(mux, Receipt, func(_ context.Context, order string) (string, error) { return "receipt of " + order, nil })
//		worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
//		check(err)
//
//		receipt, err := Receipt.S("order 17").Do(ctx, client)
//		check(err)
//		fmt.Println(receipt)
//		check(worker.Stop()) // lets running tasks finish
//		check(client.Close())
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
// A [Signature] is work that yields a value: a task with its input, or several tasks that are combined. It is a Go
// value; nothing runs before it is sent. What is sent is a workflow. It is stored in Redis as a whole and runs to its
// end without the sender.
//
//	var (
//		Fetch = tasks.New[string, Page]("site.fetch", tasks.Timeout(30*time.Second), tasks.MaxRetry(3))
//		Index = tasks.New[[]Page, Report]("site.index")
//	)
//
//	pages := tasks.Each(urls, Fetch)                        // all urls at once
//	run, err := tasks.Chord(pages, Index).Send(ctx, client) // when the last page is there, index them
//	report, err := run.Wait(ctx)
//
// A task of the wrong type does not compile. These make signatures:
//
//   - [Task.S]: runs the task on an input
//   - [Value]: yields a constant, without a task
//   - [Chain]: runs a task on the value of a signature; [Chain3] to [Chain5] are for more steps
//   - [After]: runs a signature after another one, without its value
//   - [Group], [GroupOf]: runs signatures at once, and yields the list of their values in the order given
//   - [Each]: a group of one task, on every element of a list
//   - [Chord]: runs a task on the list that a group or a map yields
//   - [Map]: runs a task on every element of a list that another task yields
//   - [MapFunc]: the same with a signature in place of the task, as a chain for every element
//   - [Join]: runs two signatures of different types at once, and yields a [Pair]
//   - [Bind]: gives a task the second half of its input
//   - [OnSuccess]: also runs a task on the value
//   - [OnError]: also runs a task on the failure
//   - [Signature.Rescue]: runs a task on the failure, and yields its value instead
//   - [Settle]: yields the failures of a group or map as values
//
// A task bound with [HandlePlan] returns a signature, which takes its place: that is how a workflow decides while it
// runs. A signature that is used in two places of a send runs once, and both places get its value.
//
// # Options
//
// Where an option may be given follows from its type; elsewhere it does not compile.
//
//   - [Queue], [Priority], [Timeout], [HardTimeout], [MaxRetry], [Backoff], [ConstantBackoff], [In], [Expires]: in
//     [New], at a use of the task, and in Send
//   - [RetryIf], [Alias], [RateLimit], [External]: in New only
//   - [LinkError]: in New, and at a use
//   - [At]: at a use, and in Send
//   - [AtMost], [FailFast]: for a group or a map as a whole, in GroupOf, Each, Map and MapFunc
//   - [ID], [Unique], [FairnessKey], [Headers], [Retention], [ProgressKeys]: in Send only
//
// A use is S, [Task.With], Chain, Chord, Each, Map or [Signature.With]. An option given later wins: the order is New,
// Task.With, S or the combinator, Signature.With, Send. A value out of range is an error of Send.
//
// # Errors of handlers
//
// A handler that returns an error or panics has failed. It is called again if [MaxRetry] allows another attempt.
// [Permanent], [RetryIn] and [WithCode] mark an error. They may be nested in any way, also below fmt.Errorf with %w
// and errors.Join:
//
//   - The task fails without another attempt if there is a Permanent anywhere.
//   - The next attempt begins after the delay of the outermost RetryIn.
//   - The code of the [Failure] is that of the outermost WithCode. Without one it is that of a *Failure that the handler
//     returns, else [tasktype.CodeTimeout], [tasktype.CodePermanent] or [tasktype.CodeError].
//   - [Again] is no failure, unless the same error has a Permanent or a RetryIn.
//
// The outermost is the one with the fewest errors around it; of errors that were joined it is the first. Only the first
// 200,000 errors of a tree are read.
//
// # Answers from outside
//
// A task that is [External] waits for the answer of a person, or of a program in any language. A handler can give its
// own task away with [TokenFrom] and [ResultPending]. Such a task is STARTED and holds no slot. Whoever is to answer
// finds it with [Client.OpenTokens], has a token made with [Client.NewToken], and calls [Complete], [Client.Fail], or
// [Client.Extend] while the answer takes long.
//
// # States
//
//	PENDING ──▶ STARTED ──▶ SUCCESS
//	   ▲           │  ├───▶ FAILURE    the last attempt failed
//	   │           │  └───▶ REVOKED    by Revoke, or expired (also straight from PENDING)
//	   └── RETRY ◀─┘
//	PENDING ──▶ SKIPPED                what it needs has failed
//
// A node is one task of a workflow. Every node reaches SUCCESS, FAILURE, REVOKED or SKIPPED. When a node fails, the
// nodes that need its value are skipped at once. Its siblings go on, unless their group has [FailFast]. Wait returns
// the first failure without waiting for them.
//
// # What is promised
//
//   - A workflow that was sent runs to its end when senders, workers or Redis are killed, as far as Redis keeps what it
//     acknowledged (appendonly, with the fsync policy of your choice).
//   - Each continuation happens once: a join counts a member once, however often that ran, and the first result of a
//     node is the one that counts.
//   - A handler may run again: after a crash of its worker, and when its result could not be stored. The Key of
//     [tasktype.Info] is the same each time, for use as an idempotency key. Such a repeat is not counted as an attempt. A
//     node whose worker died eleven times fails.
//   - The work of a worker that died runs elsewhere after 9 to 12 seconds, or at once after [ExpireLeases].
//   - The keys of a workflow expire a [Retention] after its end, and not before.
//
// Your code can run more than once; no system can exclude that. Nor can a handler be stopped that ignores its context:
// after [HardTimeout] its node has failed and its slot is free, but its goroutine runs on.
//
// A task for which no live worker of its queue has a handler is put back for about a minute, and then fails with
// [tasktype.CodeUnregistered]. The file docs/upgrading.md says how to change tasks while workflows run, and what stays
// the same between releases.
//
// # Redis
//
// Redis must not evict keys: a workflow that loses one may never end. While maxmemory is set and maxmemory-policy is
// not noeviction, sends and workers return [ErrEvicts]. A Redis whose memory or disk is full refuses sends, see
// [Refused]; running workflows wait, and go on when there is room.
//
// A failover loses what the old master acknowledged and did not copy. What a workflow lost of its own past is done
// again. A workflow that was sent in the lost time is unknown; then Wait returns [ErrUnknown]. With Sentinels, an old
// master that lives takes writes until it is told to stop. To exclude that, set min-replicas-to-write to the number of
// replicas of a master, and min-replicas-max-lag to 10, on all of them. Then Send returns an error for what the new
// master would not know, and only what was under way in the last milliseconds can be lost. One fewer is not enough:
// another replica still follows the old master. The price is that a master takes writes only while all of its replicas
// follow it.
//
// # Limits
//
// A send has at most 200,000 nodes, and so has a map. Plans may be nested 1,000 deep. An input has at most 16 MiB, and
// so has a result ([WorkerConfig].MaxResult). The name of a queue has no brace, colon, bar or white space. The file
// docs/engine.md has the other limits, and says how the engine works.
//
// # More
//
// The folder examples has complete programs, from one for each word above to sagas, human approval and nightly
// schedules.
//
// [Client.Workers], [Client.Active], [Client.Reserved], [Client.Due], [Client.Queues] and [Client.Workflows] list what
// there is; [WriteTree] draws a workflow. [Client.Revoke], [Client.PauseQueue] and [Client.SetConcurrency] change
// it. A [Scheduler] sends work at given times. [Mux.Use] wraps handlers. [WorkerConfig].Observe is called after every
// attempt.
//
// Package tasktype has the structs that these return, the states of a node and the codes of failures. Package taskstest
// tests workflows without a server and without waiting. Package metrics is for Prometheus, package otel for
// OpenTelemetry.
package tasks
