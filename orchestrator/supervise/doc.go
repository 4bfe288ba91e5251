// Package supervise keeps child processes running and stops all of them.
//
// A [Process] is a child that is restarted with exponential backoff when it exits, and stopped together with its process
// group. A PID file identifies each child and its supervisor by PID, start time and executable. After a crash, [CleanStale]
// in the next run stops exactly the leftover children, even if PIDs have been reused.
//
//	starting ──▶ up ──exits──▶ waiting ──delay──▶ up …
//	              └────────── Stop: signal, grace, kill ──▶ stopped
//
// On Linux the kernel also signals the children when their supervisor exits.
package supervise
