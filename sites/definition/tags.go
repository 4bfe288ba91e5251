package definition

import (
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Tags of struct fields restrict the values of their keys: oneof lists the words, range has the minimum and the maximum of a
// number. The checks and docs/reference/site-definition.md use them.

// words returns the words in the oneof tag of a key of T.
func words[T any](key string) []string {
	for f := range reflect.TypeFor[T]().Fields() {
		if f.Tag.Get("yaml") == key {
			return strings.Fields(f.Tag.Get("oneof"))
		}
	}
	panic("definition: no key " + key)
}

// checkBounds checks the ranges of numbers in all sections.
func (c *checker) checkBounds(def *Definition) {
	def.Proxy.Fallback = c.oneOf(def.Proxy.Fallback, "", words[Proxy]("fallback"), def.Proxy.At, "proxy.fallback")
	checkRanges(c, &def.Politeness, def.Politeness.At, "politeness")
	checkRanges(c, &def.Limits, def.Limits.At, "limits")
	checkRanges(c, &def.Retries, def.Retries.At, "retries")
	checkRanges(c, &def.Blocks, def.Blocks.At, "blocks")
	checkRanges(c, &def.Proxy, def.Proxy.At, "proxy")
	checkRanges(c, &def.Render, def.Render.At, "render")
}

// checkRanges checks the numbers of a section, a pointer to a struct, against their range tags.
func checkRanges(c *checker, section any, at Pos, key string) {
	for f, v := range reflect.ValueOf(section).Elem().Fields() {
		low, high, ok := bounds(f)
		if !ok || v.Int() >= low && v.Int() <= high {
			continue
		}
		least, most, _ := strings.Cut(f.Tag.Get("range"), " ")
		c.problemAt(at, key+"."+f.Tag.Get("yaml"), "is %v; must be from %s to %s", v.Interface(), least, most)
	}
}

// bounds returns the range tag of a field, if it has one.
func bounds(f reflect.StructField) (low, high int64, ok bool) {
	least, most, ok := strings.Cut(f.Tag.Get("range"), " ")
	if !ok {
		return 0, 0, false
	}
	return number(f.Type, least), number(f.Type, most), true
}

// number parses a bound of a type. It panics if the tag is invalid; tests check all tags.
func number(t reflect.Type, text string) int64 {
	var n int64
	var err error
	switch t {
	case reflect.TypeFor[time.Duration]():
		var d time.Duration
		d, err = time.ParseDuration(text)
		n = int64(d)
	case reflect.TypeFor[Size]():
		size, ok := parseSize(text)
		if !ok {
			err = strconv.ErrSyntax
		}
		n = int64(size)
	default:
		n, err = strconv.ParseInt(text, 10, 64)
	}
	if err != nil {
		panic("definition: " + text + " is not of type " + t.String())
	}
	return n
}
