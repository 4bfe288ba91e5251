package ui

import "muster/tasks/tasktype"

// stateWord returns the label of a node state.
func stateWord(s tasktype.Status) string {
	switch s {
	case tasktype.Pending:
		return "pending"
	case tasktype.Started:
		return "running"
	case tasktype.Retry:
		return "retrying"
	case tasktype.Success:
		return "succeeded"
	case tasktype.Failed:
		return "failed"
	case tasktype.Revoked:
		return "revoked"
	case tasktype.Skipped:
		return "skipped"
	}
	return string(s)
}

// outcomeWord returns the label of the outcome of a run that was followed by another run.
func outcomeWord(o tasktype.Outcome) string {
	switch o {
	case tasktype.OutcomeAgain:
		return "repeated"
	case tasktype.OutcomeReturned:
		return "worker stopped"
	case tasktype.OutcomeLost:
		return "worker died"
	case tasktype.OutcomeRetry:
		return "failed"
	}
	return string(o)
}

// workflowWord returns the label of a workflow state.
func workflowWord(s tasktype.WorkflowState) string {
	switch s {
	case tasktype.WorkflowSucceeded:
		return "succeeded"
	case tasktype.WorkflowFailed:
		return "failed"
	}
	return string(s)
}
