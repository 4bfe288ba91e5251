// Package supervise keeps child processes alive and leaves none behind.
//
// A [Process] is one child: started, restarted with a growing delay when it
// dies, stopped with its whole process group. Every child has a pid file that
// names it and its supervisor by pid, start time and executable, so that after
// a crash the next run's [CleanStale] finds exactly the leftovers of ours and
// nothing else, whatever else runs under the same name or has since got the
// same pid.
//
//	starting ──▶ up ──dies──▶ waiting ──delay──▶ up …
//	              └────────── Stop: signal, grace, kill ──▶ stopped
//
// On Linux the kernel also signals the children when their supervisor dies.
package supervise
