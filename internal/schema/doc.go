// Package schema stores the schema version of the data of the orchestrator in Redis and migrates older data.
//
// A [Migration] changes the format of stored data. Its number is the schema version of the data afterwards. Each process calls
// [Store.Open] when it connects. Open rejects a newer schema and runs the missing migrations in one process at a time:
//
//	Open ─▶ current schema: done (one command)
//	   └──▶ lock ─▶ claim the slots of a migration ─▶ run it ─▶ record its number ─▶ next migration
//
// The lock is a lease with an increasing token. Before a migration starts, its token is written to each hash slot that it changes,
// and its scripts compare it there. A process that was frozen while another took over cannot change data.
package schema
