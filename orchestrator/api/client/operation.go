package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"

	"muster/orchestrator/access"
	"muster/tasks/api"
)

// Operation is an operation of the API with its input and output: the server registers it, and Call calls it.
//
// The fields of In have the tags path, query and header, as huma defines them; a field Body is the JSON body. A field with
// the zero value is not sent.
type Operation[In, Out any] struct{ Declaration }

// Declaration describes an operation.
type Declaration struct {
	Method, Path, ID, Tag, Summary string
	Description                    string
	Roles                          []access.Role // of which a caller needs one
	Status                         int           // of a success; 0 means 200, or 204 without content
	Problems                       []int         // statuses in addition to the common ones
	Frequent                       bool          // routine work of agents, omitted from the audit log
	Waits                          bool          // its requests wait for something to happen
	NoKey                          bool          // it needs no key, and responds with more to a viewer
}

// None is an input or output without content.
type None = api.None

// With is an input that has only a body.
type With[T any] = api.With[T]

// Declare returns the operation of a method and a path, as in "GET /v1/jobs". Reads need the role viewer and others operator,
// unless opts have other roles.
func Declare[In, Out any](pattern, id, tag, summary string, opts ...func(*Declaration)) Operation[In, Out] {
	method, path, _ := strings.Cut(pattern, " ")
	d := Declaration{Method: method, Path: path, ID: id, Tag: tag, Summary: summary, Roles: []access.Role{access.Operator}}
	if method == http.MethodGet {
		d.Roles = []access.Role{access.Viewer}
	}
	for _, opt := range opts {
		opt(&d)
	}
	return Operation[In, Out]{d}
}

// Roles sets the roles of which a caller needs one.
func Roles(roles ...access.Role) func(*Declaration) {
	return func(d *Declaration) { d.Roles = roles }
}

// Fails adds the statuses of problems to the common ones.
func Fails(statuses ...int) func(*Declaration) {
	return func(d *Declaration) { d.Problems = append(d.Problems, statuses...) }
}

// Says sets the description.
func Says(text string) func(*Declaration) { return func(d *Declaration) { d.Description = text } }

// Returns sets the status of a success.
func Returns(status int) func(*Declaration) { return func(d *Declaration) { d.Status = status } }

var forAdmins, forReaders = Roles(access.Admin), Roles(access.Viewer, access.Agent)

// ofAgents makes an operation one of agents, as frequent as work.
func ofAgents(d *Declaration) { d.Roles, d.Frequent = []access.Role{access.Agent}, true }

// Call calls the operation.
func (o Operation[In, Out]) Call(ctx context.Context, c *Client, in In) (out Out, err error) {
	err = o.call(ctx, c, in, "", &out)
	return out, err
}

// call calls the operation for the page of a list that begins at a cursor, and decodes the response.
func (o Operation[In, Out]) call(ctx context.Context, c *Client, in In, cursor string, out *Out) error {
	r := request{path: o.Path, query: url.Values{}, header: http.Header{}}
	if err := r.add(reflect.ValueOf(in)); err != nil {
		return fmt.Errorf("encode the request %s %s: %w", o.Method, o.Path, err)
	}
	if cursor != "" {
		r.query.Set("cursor", cursor)
	}
	media := ""
	if r.body != nil {
		media = jsonType
	}
	res, err := c.send(ctx, o.Method, r.path, r.query, r.header, media, r.body)
	if err != nil {
		return err
	}
	if res.StatusCode == http.StatusNoContent {
		return c.decode(res, nil)
	}
	return c.decode(res, out)
}

// Do is Call for an operation whose output the caller does not need.
func (o Operation[In, Out]) Do(ctx context.Context, c *Client, in In) error {
	_, err := o.Call(ctx, c, in)
	return err
}

// All calls the operation of a list for each page, and returns up to limit elements; 0 means all.
func All[In, T any](ctx context.Context, c *Client, o Operation[In, Page[T]], in In, limit int) ([]T, error) {
	list := []T{}
	for cursor := ""; ; {
		var page Page[T]
		if err := o.call(ctx, c, in, cursor, &page); err != nil {
			return nil, err
		}
		list = append(list, page.Data...)
		if limit > 0 && len(list) >= limit {
			return list[:limit], nil
		}
		if cursor = page.Next; cursor == "" {
			return list, nil
		}
	}
}

// request is the HTTP request for an input.
type request struct {
	path   string
	query  url.Values
	header http.Header
	body   io.Reader
}

// add adds the fields of a struct.
func (r *request) add(in reflect.Value) error {
	for field, v := range in.Fields() {
		name, opts, _ := strings.Cut(field.Tag.Get("query"), ",")
		switch path, header := field.Tag.Get("path"), field.Tag.Get("header"); {
		case !field.IsExported():
		case field.Name == "Body":
			if v.Kind() == reflect.Pointer && v.IsNil() {
				continue
			}
			data, err := json.Marshal(v.Interface())
			if err != nil {
				return err
			}
			r.body = bytes.NewReader(data)
		case field.Anonymous:
			if err := r.add(v); err != nil {
				return err
			}
		case path != "":
			r.path = strings.Replace(r.path, "{"+path+"}", url.PathEscape(textOf(v)), 1)
		case v.IsZero():
		case header != "":
			r.header.Set(header, textOf(v))
		case v.Kind() == reflect.Slice && opts == "explode":
			for i := range v.Len() {
				r.query.Add(name, textOf(v.Index(i)))
			}
		case name != "":
			r.query.Set(name, textOf(v))
		}
	}
	return nil
}

// textOf returns a parameter as a string.
func textOf(v reflect.Value) string {
	switch v := v.Interface().(type) {
	case time.Time:
		return v.Format(time.RFC3339Nano)
	case []string:
		return strings.Join(v, ",")
	default:
		return fmt.Sprint(v)
	}
}
