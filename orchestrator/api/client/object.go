package client

import (
	"bytes"
	"encoding/json"
)

// Object is a JSON object as it was sent.
type Object json.RawMessage

// MarshalJSON returns the object.
func (o Object) MarshalJSON() ([]byte, error) { return json.RawMessage(o).MarshalJSON() }

// UnmarshalJSON stores a copy of data, or nil for null.
func (o *Object) UnmarshalJSON(data []byte) error {
	*o = nil
	if string(data) != "null" {
		*o = bytes.Clone(data)
	}
	return nil
}
