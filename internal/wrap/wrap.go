// Package wrap adds context to errors.
package wrap

import "fmt"

// Err returns err after a formatted prefix, or nil if err is nil.
func Err(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}
