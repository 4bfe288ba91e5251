// Package schema stores the version of the data that the orchestrator has in Redis, and
// brings older data up to it.
//
// A [Migration] changes the form of stored data and has a number: the schema
// that the data has afterwards. [Store.Open] is called once when a process
// connects. It refuses a newer schema, and runs the migrations that are missing
// in one process at a time:
//
//	Open ─▶ the schema is known: done (one command)
//	   └──▶ lock ─▶ claim the slots of a migration ─▶ run it ─▶ note its number ─▶ the next one
//
// The lock is a lease with a token that only grows. Before a migration begins,
// its token is written into each hash slot that it changes, and its scripts
// compare it there. A process that was frozen while another took over changes
// nothing any more.
package schema
