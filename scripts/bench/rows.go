package main

import "slices"

// areas are the files of this command that measure something, in the order of the report. A new area is
// a file with a function that returns its rows, and its line here.
var areas = []func() []row{
	machineRows,
	canvasRows,
	proxyRows,
	queueRows,
	siteRows,
}

func rows() []row {
	var all []row
	for _, area := range areas {
		all = slices.Concat(all, area())
	}
	return all
}
