package ui

import "muster/tasks/tasktype"

// stateWord is what the pages call the state of a node.
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

// outcomeWord is the name of the outcome of a run that another run followed.
func outcomeWord(o tasktype.Outcome) string {
	switch o {
	case tasktype.OutcomeAgain:
		return "asked to run again"
	case tasktype.OutcomeReturned:
		return "worker stopped"
	case tasktype.OutcomeLost:
		return "worker died"
	case tasktype.OutcomeRetry:
		return "failed"
	}
	return string(o)
}

// workflowWord is what the pages call the state of a workflow.
func workflowWord(s tasktype.WorkflowState) string {
	switch s {
	case tasktype.WorkflowSucceeded:
		return "succeeded"
	case tasktype.WorkflowFailed:
		return "failed"
	}
	return string(s)
}
