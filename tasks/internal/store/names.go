package store

import (
	"regexp"
	"strings"
)

// The fields of the hash of a workflow, which [flowKey] describes. Those of the second block are followed by a node.
const (
	FieldTasks        = "n"
	FieldTasksEnded   = "z"
	FieldSteps        = "vn"
	FieldStepsEnded   = "vz"
	FieldMembers      = "ct"
	FieldMembersEnded = "cc"
	FieldStopped      = "x"
	FieldUnbegun      = "U"
	FieldBefore       = "b"
	FieldNext         = "N"
	FieldAborted      = "!"
	FieldDeadline     = "D"
	FieldFairness     = "f"
	FieldOutside      = "o"
	FieldOutput       = "O"
	FieldParts        = "u"
	FieldRetriedBy    = "R"
	FieldRevision     = "v"
	FieldRoot         = "r"
	FieldSpans        = "d"
	FieldWasOpen      = "w"

	FieldArrived      = "j"
	FieldCaught       = "y"
	FieldError        = "e"
	FieldGraph        = "g" // of the workflow, without a node
	FieldHeld         = "h" // and the suffix of the set of its holders
	FieldInput        = "i"
	FieldMembersOf    = "m"
	FieldNeedsNoPlace = "q"
	FieldPlannedAt    = "s"
	FieldProgress     = "p"
	FieldRuns         = "a"
	FieldStored       = "k"
	FieldToken        = "t"
	fieldSignals      = "S" // followed by a task, as the next one
	fieldDelivered    = "L"
	suffixQueued      = "w" // of the list of the members that wait for a place
)

// The values of [FieldStopped].
const (
	StoppedByRevoke   = "1"
	StoppedByCancel   = "c"
	StoppedByDeadline = "d"
	StoppedByPause    = "p"
	StoppedByOrder    = "q"
)

// constants are the names that the scripts use for stored letters.
var constants = map[string]string{
	"DELAYED": string(StateDelayed), "RETRYING": string(StateRetrying), "LIMITED": string(StateLimited), "UNHANDLED": string(StateUnhandled), "GATHERING": string(StateGathering), "READY": string(StateReady), "OPEN": string(StateOpen),
	"PLANNED": string(StatePlanned), "MAPPING": string(StateMapping), "MAPPED": string(StateMapped), "SKIPPING": string(StateSkipping),
	"SKIPPED": string(StateSkipped), "SUCCEEDED": string(StateSucceeded), "FAILED": string(StateFailed), "REVOKED": string(StateRevoked),
	"TERMINAL": string([]byte{StateSucceeded, StateFailed, StateRevoked, StateSkipped, StateSkipping}),
	"STUCK":    string(eventStuck),
	"RAN":      string([]byte{StateSucceeded, StateFailed, StateRevoked}),
	"WAITING":  string([]byte{StateDelayed, StateRetrying, StateLimited, StateUnhandled, StateGathering, StateReady}),

	"TASKS": FieldTasks, "TASKS_ENDED": FieldTasksEnded, "STEPS": FieldSteps, "STEPS_ENDED": FieldStepsEnded, "MEMBERS": FieldMembers,
	"MEMBERS_ENDED": FieldMembersEnded, "STOPPED": FieldStopped, "UNBEGUN": FieldUnbegun, "BEFORE": FieldBefore, "NEXT": FieldNext, "ABORTED": FieldAborted, "DEADLINE": FieldDeadline, "FAIRNESS": FieldFairness, "OUTSIDE": FieldOutside, "OUTPUT": FieldOutput,
	"PARTS": FieldParts, "RETRIED_BY": FieldRetriedBy, "REVISION": FieldRevision, "ROOT": FieldRoot, "SPANS": FieldSpans, "WAS_OPEN": FieldWasOpen,
	"ARRIVED": FieldArrived, "CAUGHT": FieldCaught, "ERROR": FieldError, "GRAPH": FieldGraph, "HELD": FieldHeld, "INPUT": FieldInput,
	"MEMBERS_OF": FieldMembersOf, "NEEDS_NO_PLACE": FieldNeedsNoPlace, "PLANNED_AT": FieldPlannedAt, "PROGRESS": FieldProgress, "RUNS": FieldRuns, "STORED": FieldStored,
	"TOKEN": FieldToken, "SIGNALS": fieldSignals, "DELIVERED": fieldDelivered, "QUEUED": suffixQueued, "BY_REVOKE": StoppedByRevoke, "BY_CANCEL": StoppedByCancel, "BY_DEADLINE": StoppedByDeadline, "BY_PAUSE": StoppedByPause, "BY_ORDER": StoppedByOrder,
}

var constantPattern = regexp.MustCompile(`\{[A-Z_]+\}|'?\b[A-Z][A-Z_]*\b`)

// WithConstants returns the source of a script with the values of constants: NAME becomes a string, and {NAME} in a string the
// text alone. A script thus needs no variables for them, which would cost each call time.
func WithConstants(source string) string {
	return constantPattern.ReplaceAllStringFunc(source, func(s string) string {
		if value, ok := constants[s]; ok {
			return "'" + value + "'"
		}
		if value, ok := constants[strings.Trim(s, "{}")]; ok {
			return value
		}
		return s
	})
}
