//go:build !unix

package api

func connectionLimit() int { return mostConnections }
