// Package tasks runs typed tasks with Celery's canvas, on asynq and Redis.
//
// A task is declared apart from its code, so that a sender imports no handler. Signatures say what to
// run and combine to larger ones; sending one makes a workflow:
//
//	var (
//		Fetch = tasks.New[string, Page]("site.fetch", tasks.Timeout(30*time.Second), tasks.MaxRetry(3))
//		Index = tasks.New[[]Page, Report]("site.index")
//	)
//
//	run, err := tasks.Chord(tasks.Each(urls, Fetch), Index).Send(ctx, client)
//	report, err := run.Wait(ctx)
//
// A worker binds tasks to code with [Handle] and runs them with [NewWorker].
//
// # States
//
//	PENDING ──▶ STARTED ──▶ SUCCESS
//	   ▲           │  ├───▶ FAILURE    the last attempt failed
//	   │           │  └───▶ REVOKED    by someone, or expired (also straight from PENDING)
//	   └── RETRY ◀─┘
//	PENDING ──▶ SKIPPED                what it needs has failed
//
// Every node of every workflow reaches one of SUCCESS, FAILURE, REVOKED and SKIPPED. A failure skips
// what needs its value, at once; siblings that run go on, unless their group was sent with
// [FailFast]. Wait returns the first failure without waiting for them.
//
// # Errors of handlers
//
// A handler that returns an error has failed. It is called again if [MaxRetry] allows another attempt. [Permanent],
// [RetryIn] and [WithCode] mark an error. They may be nested in any way, also below fmt.Errorf with %w and errors.Join:
//
//   - The task fails without another attempt if there is a [Permanent] anywhere.
//   - The next attempt begins after the delay of the outermost [RetryIn].
//   - The code of the [Failure] is that of the outermost [WithCode]. Without one it is that of a *[Failure] which the
//     handler returns, else [tasktype.CodeTimeout], [tasktype.CodePermanent] or [tasktype.CodeError].
//   - [Again] is no failure, unless the same error has a [Permanent] or a [RetryIn].
//
// The outermost is the one with the fewest errors around it, and among errors that were joined the first. Only the
// first 200,000 errors of a tree are looked at.
//
// # Answers from outside
//
// A task that is [External] waits for an answer of a person, or of a program in any language; a handler can give its own task away
// with [TokenFrom] and [ResultPending]. Such a task is STARTED and holds no slot. Who is to answer finds it with [Client.OpenTokens], has
// a token made with [Client.NewToken], and calls [Complete], [Client.Fail], or [Client.Extend] while it takes long.
//
// # What is promised
//
//   - A workflow that was sent runs to its end, whatever is killed in between: senders, workers, or
//     Redis, as far as Redis keeps what it acknowledged (appendonly with the fsync policy of your choice).
//   - Each continuation happens once: joins count a member once however often it ran, and the
//     first result of a node stands.
//   - A handler may run again: after a crash of its worker, and when its outcome could not be stored.
//     [tasktype.Info].Key is the same each time, for use as an idempotency key. Such a repeat uses up no attempt;
//     a node that took eleven workers with it fails.
//   - The work of a worker that dies runs elsewhere after 9 to 12 seconds, or at once after [ExpireLeases]: a
//     worker is dead when two looks found that it was silent for 6 seconds.
//   - Keys of a workflow expire a [Retention] after its end, and not before.
//
// A task that no live worker of its queue has a handler for is put back for about a minute, and then fails
// with [tasktype.CodeUnregistered].
//
// Redis must not evict keys: a workflow that loses one may never end. While maxmemory is set and
// maxmemory-policy is not noeviction, sends and workers return [ErrEvicts]. A Redis whose memory or disk is
// full refuses sends, see [Refused]; what is under way waits, and goes on when there is room.
//
// A failover loses what Redis had acknowledged and not copied. What a workflow lost of its own past is done
// again; a workflow that was sent just then can be unknown, which Wait says as [ErrUnknown]. How much that
// is depends on how Redis is set. With Sentinels, an old master that lives takes writes until it is told:
// set min-replicas-to-write to the number of replicas a master has, and min-replicas-max-lag to 10, on all of
// them. Then Send returns an error for what the new master would not know, and only what was under way in
// the last milliseconds can be lost. One fewer does not help: another replica still follows the old master.
// The price is that a master takes writes only while all of its replicas follow it.
//
// Nobody can promise that user code runs exactly once, nor stop a handler that ignores its context:
// after [HardTimeout] its node has failed and its slot is free, but the goroutine runs on.
//
// # Limits
//
// A send has at most 200,000 nodes, and so has a map; plans may be nested 1,000 deep. An input has at most
// 16 MiB, and a result as many ([WorkerConfig].MaxResult). The name of a queue holds no brace, colon, bar or
// white space. The file docs/engine.md says how the engine works, and more of its limits.
//
// # What else there is
//
// Workers tell what they do, live: [Client.Workers], [Client.Active], [Client.Reserved], [Client.Due],
// [Client.Queues]; a workflow as a tree is [WriteTree]. [Client.Revoke], [Client.PauseQueue] and
// [Client.SetConcurrency] change what they do. A [Scheduler] sends work at its times. [Mux.Use] wraps
// handlers, and [WorkerConfig].Observe hears of every attempt. Package tasktype has the structs that all of these
// return, with the states of a node and the codes of failures; taskstest tests workflows without
// Redis and without waiting; metrics is for Prometheus, otel for OpenTelemetry.
package tasks
