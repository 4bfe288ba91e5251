package ui

import (
	"html/template"

	"muster/tasks/tasktype"
)

// funcs are functions of the templates.
var funcs = template.FuncMap{
	"state":    stateWord,
	"workflow": workflowWord,
	"flows":    func(prefix string, list []tasktype.Workflow) any { return flows{prefix, list} },
}

// flows is a list of workflows below the prefix of the pages.
type flows struct {
	Prefix string
	List   []tasktype.Workflow
}
