package definition

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"muster/internal/yamlstrict"
)

// Setting is the effective value of a key of a definition, and its origin.
type Setting struct {
	Key   string `json:"key"` // as in the file, such as politeness.delay
	Value string `json:"value"`
	From  string `json:"from"` // default, or file:line
}

// DefaultOrigin is the origin of a setting that is not in the file.
const DefaultOrigin = "default"

// Settings returns every setting with a value, in the order of the schema.
func (d *Definition) Settings() []Setting {
	s := settings{def: d, places: d.places}
	s.add("", reflect.ValueOf(*d))
	return s.list
}

type settings struct {
	def    *Definition
	places map[string]yamlstrict.Place
	list   []Setting
}

// add adds the settings in v, under key.
func (s *settings) add(key string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			s.add(key, v.Elem())
		}
		return
	case reflect.Map:
		for _, k := range sortedKeys(v.Interface().(map[string]string)) { // the only type of map
			s.leaf(yamlstrict.Join(key, k), v.MapIndex(reflect.ValueOf(k)).String())
		}
		return
	case reflect.Slice:
		s.slice(key, v)
		return
	case reflect.Struct:
	default:
		s.leaf(key, scalarText(v))
		return
	}
	switch x := v.Interface().(type) {
	case XPath: // empty: its selector is under css
	case Selector:
		s.leaf(key, x.Text)
	case Pattern:
		if !x.IsZero() {
			s.leaf(key, x.String())
		}
	case Path:
		s.leaf(key, x.Text)
	default:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Tag.Get("yaml"); name != "" {
				s.add(yamlstrict.Join(key, name), v.Field(i))
			}
		}
	}
}

func (s *settings) slice(key string, v reflect.Value) {
	for i := range v.Len() {
		at := fmt.Sprintf("%s[%d]", key, i)
		switch x := v.Index(i).Interface().(type) {
		case Record:
			at = yamlstrict.Join(key, x.Name)
		case Field:
			at = yamlstrict.Join(key, x.Name)
		case Source:
			if field, isAny := strings.CutSuffix(key, ".any"); isAny && v.Len() == 1 {
				at = field // its keys are beside those of the field
			}
		}
		if e := v.Index(i); e.Kind() == reflect.String && v.Len() == 1 && s.places[key].Short {
			s.leaf(key, e.String())
		} else {
			s.add(at, e)
		}
	}
}

// leaf adds a single value, unless it is empty.
func (s *settings) leaf(key, value string) {
	from, given := s.origin(key)
	if value == "" || !given && inner(key, value) {
		return
	}
	s.list = append(s.list, Setting{key, value, from})
}

// inner reports whether a default is not shown: it does not apply to a start page, a link or a field, or only repeats
// the site's.
func inner(key, value string) bool {
	if strings.Contains(key, ".fields.") && (strings.HasSuffix(key, ".of") || strings.HasSuffix(key, ".locale")) {
		return true
	}
	nothing := value == "0" || value == "0s" || value == "false"
	section, _, _ := strings.Cut(key, ".")
	return nothing && (strings.HasPrefix(section, "start") || section == "listing" || section == "detail" || section == "records")
}

// origin returns the position of a key in the file, also if the value is written in short, as one text.
func (s *settings) origin(key string) (from string, given bool) {
	for at := key; at != ""; {
		if w, ok := s.places[at]; ok && (at == key || w.Short) {
			file := s.def.file
			if s.def.shared[at] {
				file = s.def.sharedFile
			}
			return fmt.Sprintf("%s:%d", file, w.At.Line), true
		}
		i := strings.LastIndexAny(at, ".[")
		if i < 0 || !isShort(at[i:]) {
			break
		}
		at = at[:i]
	}
	return DefaultOrigin, false
}

// isShort reports whether a key may be omitted, with only its value written.
func isShort(key string) bool {
	return key == ".css" || key == ".url" || key == ".any" || strings.HasPrefix(key, "[")
}

func scalarText(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return x.String()
	case Size:
		return strconv.FormatInt(int64(x), 10)
	}
	return fmt.Sprint(v.Interface())
}
