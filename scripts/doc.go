// Package scripts tests the shell scripts in its directory.
package scripts
