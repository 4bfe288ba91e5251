package luascript

import (
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// WrongType adds to the error of a key that has another type than it must have what to do about it: the keys are those
// that it can be. It returns other errors as they are.
func WrongType(err error, keys ...string) error {
	if !redis.HasErrorPrefix(err, "WRONGTYPE") {
		return err
	}
	of := strings.Join(keys, ", ")
	if len(keys) > 1 {
		of = "of " + of + " that has another type" // TYPE shows it
	}
	return fmt.Errorf("%w; delete the key %s", err, of)
}
