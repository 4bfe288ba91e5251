package tasktype

// A Failure is the reason why a node has no value. As an error and as the input of a handler it is a
// [muster/tasks.Failure].
type Failure struct {
	Task     string `json:"task"`     // name of the failed task
	Node     string `json:"node"`     // ID of its node in the workflow
	Attempts int    `json:"attempts"` // number of attempts, including the last one
	Message  string `json:"message"`  // message of the last error, truncated to 4096 bytes
	Code     string `json:"code"`     // a code below, or one chosen by the handler
}

// Failure codes. Handlers may use other codes.
const (
	CodeError        = "error"        // the handler returned an error
	CodePermanent    = "permanent"    // the handler returned a permanent error
	CodeTimeout      = "timeout"      // the soft time limit was exceeded
	CodeHardTimeout  = "hard_timeout" // the hard time limit was exceeded
	CodePanic        = "panic"        // the handler panicked
	CodeExpired      = "expired"      // the node expired before its start
	CodeRevoked      = "revoked"      // a client or a failed group revoked it
	CodeLost         = "lost"         // too many workers died while it ran
	CodeInput        = "input"        // the input cannot be decoded
	CodeResult       = "result"       // the result cannot be encoded or is too large
	CodeUnregistered = "unregistered" // no worker of the queue has a handler
	CodePlan         = "plan"         // the plan is invalid
	CodeArchived     = "archived"     // an operator archived it
	CodeDamaged      = "damaged"      // the data of the workflow in Redis is unreadable
)
