package tasktype

// Failure is why a node has no value. As an error, and as the input of a handler, it is a [muster/tasks.Failure].
type Failure struct {
	Task     string `json:"task"`     // name of the task that failed
	Node     string `json:"node"`     // id of its node in the workflow
	Attempts int    `json:"attempts"` // attempts made, with the last one
	Message  string `json:"message"`  // text of the last error, cut after 4096 bytes
	Code     string `json:"code"`     // one of the codes here, or one that the handler chose
}

// The codes of failures. Handlers may fail with codes of their own, too.
const (
	CodeError        = "error"        // the handler returned an error
	CodePermanent    = "permanent"    // the handler returned an error that it marked as not worth a retry
	CodeTimeout      = "timeout"      // the soft time limit passed
	CodeHardTimeout  = "hard_timeout" // the hard time limit passed
	CodePanic        = "panic"        // the handler panicked
	CodeExpired      = "expired"      // it expired before it started
	CodeRevoked      = "revoked"      // a client or a failed group revoked it
	CodeLost         = "lost"         // too many workers died while it ran
	CodeInput        = "input"        // its input does not decode
	CodeResult       = "result"       // its result does not encode, or is too large
	CodeUnregistered = "unregistered" // no worker of its queue has a handler for it
	CodePlan         = "plan"         // its plan cannot be run
	CodeArchived     = "archived"     // an operator archived it
	CodeDamaged      = "damaged"      // the data of the workflow in Redis cannot be read
)
