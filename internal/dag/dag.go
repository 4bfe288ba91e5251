// Package dag contains the algorithms for drawing a workflow: a directed acyclic graph whose nodes are numbers, described by the
// dependencies of each node.
package dag

import "slices"

// Layers returns, for each node, the length of the longest path to it: 0 for a node without dependencies. Nodes on a cycle, and their
// dependents, are in layer 0.
func Layers(needs [][]int) []int {
	layer, open, after := make([]int, len(needs)), make([]int, len(needs)), Invert(needs)
	var free []int
	for i, list := range needs {
		if open[i] = len(list); open[i] == 0 {
			free = append(free, i)
		}
	}
	for len(free) > 0 {
		i := free[0]
		free = free[1:]
		for _, j := range after[i] {
			layer[j] = max(layer[j], layer[i]+1)
			if open[j]--; open[j] == 0 {
				free = append(free, j)
			}
		}
	}
	return layer
}

// Invert returns the dependents of each node.
func Invert(needs [][]int) [][]int {
	after := make([][]int, len(needs))
	for i, list := range needs {
		for _, j := range list {
			after[j] = append(after[j], i)
		}
	}
	return after
}

// Reduce returns the transitive reduction of the dependencies.
func Reduce(needs [][]int) [][]int {
	layer, seen, out := Layers(needs), make([]int, len(needs)), make([][]int, len(needs))
	for i, list := range needs {
		list = slices.Clone(list)
		slices.SortStableFunc(list, func(a, b int) int { return layer[b] - layer[a] })
		implied := map[int]bool{}
		for _, need := range list {
			stack := []int{need}
			for len(stack) > 0 {
				k := stack[len(stack)-1]
				stack = stack[:len(stack)-1]
				for _, j := range needs[k] {
					// A node in a lower layer than all members of list cannot imply one of them.
					if layer[j] >= layer[list[len(list)-1]] && seen[j] != i+1 {
						seen[j], implied[j] = i+1, true
						stack = append(stack, j)
					}
				}
			}
		}
		for _, need := range needs[i] {
			if !implied[need] {
				out[i], implied[need] = append(out[i], need), true
			}
		}
	}
	return out
}
